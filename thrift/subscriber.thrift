/*
 * What a subscriber of HQueue serves, as in Alibaba's HQueue. A worker calls it with the messages
 * of one partition, in their order, over Thrift's binary protocol, unframed. So a subscriber in
 * any language is a server of this service that says in ZooKeeper where it listens: docs/push.md.
 */
namespace java com.etao.hadoop.hbase.queue.thrift.generated
namespace py hqueue_thrift.subscriber
namespace go subscriber
namespace cpp hqueue.subscriber
namespace netstd HQueue.Subscriber
namespace php HQueue.Subscriber
namespace rb HQueue.Subscriber
namespace rs hqueue_subscriber
namespace js hqueue.subscriber
namespace swift HQueueSubscriber

/**
 * HQueue MessageID
 */
struct TMessageID {
  1: i64 timestamp,
  2: i16 sequenceID
}

/**
 * A header of a message: a name, which is UTF-8, and a value
 */
struct THeader {
  1: binary name,
  2: binary value
}

/**
 * HQueue Message. Without a key it has no field 5, and without headers no field 6. A key that is
 * there may be empty, and so may a value. One that is delivered has fields 1 and 2.
 */
struct TMessage {
  1: optional TMessageID id,
  2: optional i16 partitionID,
  3: binary topic,
  4: binary value,
  5: optional binary key,
  6: optional list<THeader> headers
}

/**
 * HQueue Subscriber Service. The status: 0 the messages are done; 1 retry, the same messages again
 * after a pause; 2 they become dead letters. Any other is a retry. Beside it a reply may have a
 * further field, which no IDL can say: 2, a string, why the messages were not done.
 */
service HQueueSubscriberService {
  i32 consumeMessages(1:list<TMessage> messages)
}

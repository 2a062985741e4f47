/*
 * What a subscriber of HQueue serves: seed 001, section 3.5.5. A worker calls it with the messages
 * of one partition, in their order, over Thrift's binary protocol, unframed. So a subscriber in
 * any language is a server of this service that says in ZooKeeper where it listens: docs/push.md.
 */
namespace java com.etao.hadoop.hbase.queue.thrift.generated
namespace py hqueue.subscriber

/**
 * HQueue MessageID
 */
struct TMessageID {
  1: i64 timestamp,
  2: i16 sequenceID
}

/**
 * HQueue Message
 */
struct TMessage {
  1: optional TMessageID id,
  2: optional i16 partitionID,
  3: binary topic,
  4: binary value
}

/**
 * HQueue Subscriber Service. The status: 0 the messages are done; 1 retry, the same messages again
 * after a pause; 2 reject, to the dead letters. Any other is a retry.
 */
service HQueueSubscriberService {
  i32 consumeMessages(1:list<TMessage> messages)
}

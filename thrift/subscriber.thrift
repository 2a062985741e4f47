/*
 * The service of a subscriber, as in Alibaba's HQueue. A worker calls it with the messages of one
 * partition, in their order, over Thrift's binary protocol, unframed. A subscriber in any language
 * is a server of this service that registers its address in ZooKeeper:
 * docs/push-reference.md.
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
 * The ID of a message: milliseconds since the epoch, and a sequence number
 */
struct TMessageID {
  1: i64 timestamp,
  2: i16 sequenceID
}

/**
 * A header of a message: a name, which is UTF-8, and a value of any bytes
 */
struct THeader {
  1: binary name,
  2: binary value
}

/**
 * A message. Without a key it has no field 5, and without headers no field 6. A key and a value may
 * be empty. A message that is delivered has fields 1 and 2.
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
 * An answer for each message of a call, in place of a status. It is no error: Thrift can return a
 * struct beside a status only as an exception. Messages are numbered from 0, in the order of the
 * call. All messages that the answer doesn't name are done. An answer that names no message, or
 * contradicts itself or the call, counts as no answer. So does this struct for workers and hubs of a
 * release that doesn't know it.
 */
exception TDeliveryAnswer {
  /**
   * The messages that become dead letters, each with the reason, which is cut to a thousand
   * characters. At most 1,000 messages, and no message from retryFrom on.
   */
  1: optional map<i32, string> rejected,
  /** The first message to deliver again, with all that follow it. Not set if there is none. */
  2: optional i32 retryFrom,
  /** The reason why they must be delivered again. */
  3: optional string reason,
  /**
   * The pause before they are delivered again, in milliseconds: 0 to 86400000. Not set for the
   * back-off of the subscription.
   */
  4: optional i32 retryDelayMs
}

/**
 * The subscriber's service. The result is a status: 0, the messages are done; 1, retry: send the
 * same messages again after a pause; 2, reject: make them dead letters. Any other status means
 * retry. A reply may have one more field, which the IDL can't express: field 2, a string with the
 * reason why the messages were not done.
 */
service HQueueSubscriberService {
  i32 consumeMessages(1:list<TMessage> messages) throws (1: TDeliveryAnswer answer)
}

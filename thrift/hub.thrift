/*
 * What a hub of HQueue serves, over Thrift's binary protocol, unframed (buffered transport). A hub
 * owns some of the topics of a queue, and writes their messages to the queue's log. Any hub can be
 * called: one that does not own a topic answers with the one that does, or that should (TRedirect).
 *
 * How a client publishes:
 *   1. Call any hub, with redirected = false.
 *   2. On TRedirect call the hub that it names, with redirected = true. Follow a few in a row, not
 *      more: while hubs come and go, two may name each other for a moment. Then pause, begin again.
 *   3. Remember which hub answered: the topic's next messages go there, with redirected = false.
 * One connection makes one call at a time. Calls that are made one after the other are in the log
 * in that order.
 */
include "subscriber.thrift"

namespace java com.etao.hadoop.hbase.queue.thrift.hub
namespace py hqueue.hub

/**
 * What became of a call that failed.
 */
enum TOutcome {
  /* Nothing of it is in the log, nor will be. It can be made again. */
  NOT_APPLIED = 0,
  /* It may be in the log, or may come to be. Made again, its messages may be there twice. */
  UNKNOWN = 1
}

/**
 * Where messages are that were published: all in one partition, with consecutive IDs from this one
 * on. The ID after timestamp t and sequence 32767 has timestamp t + 1 and sequence 0.
 */
struct TPublished {
  1: subscriber.TMessageID id,
  2: i16 partitionID,
  3: i32 count
}

/**
 * Call this hub, with redirected = true. Nothing was done here.
 */
exception TRedirect {
  1: string host,
  2: i32 port
}

/**
 * The call makes no sense, however often it is made: the text says why. Nothing was done.
 */
exception TIllegalArgument {
  1: string message
}

/**
 * This hub does not serve that queue. Nothing was done.
 */
exception TNoSuchQueue {
  1: string message
}

/**
 * The caller may not do this. Nothing was done.
 */
exception TNotAllowed {
  1: string message
}

/**
 * The hub can't do it now: HBase or ZooKeeper did not answer, or the hub is ending. With
 * NOT_APPLIED call again after a pause, any hub.
 */
exception TUnavailable {
  1: string message,
  2: TOutcome outcome
}

/**
 * The hub has as much to do as it takes. Nothing was done. Call again after a pause.
 */
exception TBusy {
  1: string message
}

service HQueueHubService {
  /**
   * Publish a message. It is in the log when this returns, and every reader will see it.
   *   queue      the queue. A hub may serve several.
   *   publisher  who calls: a name of 1 to 200 characters. Nobody proves it yet.
   *   topic      the topic, which is created when it is first published to. 1 to 255 bytes.
   *   message    its value, and key and headers if it has any. Its topic is the one above, or empty;
   *              its id and partitionID are passed over.
   *   redirected whether another hub named this one.
   */
  TPublished publish(1: string queue, 2: string publisher, 3: string topic,
                     4: subscriber.TMessage message, 5: bool redirected)
    throws (1: TRedirect redirect, 2: TIllegalArgument illegalArgument, 3: TNoSuchQueue noSuchQueue,
            4: TNotAllowed notAllowed, 5: TUnavailable unavailable, 6: TBusy busy)

  /**
   * Publish messages of one topic, all or none, in their order and with no other between them.
   * At least one; together as large as a batch may be: 65536 messages and 8 MiB.
   */
  TPublished publishMessages(1: string queue, 2: string publisher, 3: string topic,
                             4: list<subscriber.TMessage> messages, 5: bool redirected)
    throws (1: TRedirect redirect, 2: TIllegalArgument illegalArgument, 3: TNoSuchQueue noSuchQueue,
            4: TNotAllowed notAllowed, 5: TUnavailable unavailable, 6: TBusy busy)
}

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
 *
 * Names:
 *   - A publisher, a caller, a subscriber and a session have names of 1 to 200 characters: the
 *     letters a to z and A to Z, digits, '_', '-' and '.'. The first one is neither '-' nor '.'.
 *   - A queue's name is made of the same characters. It may begin with a namespace and a colon; a
 *     namespace has letters, digits and '_', and "default:" is never written. All of it has 1 to 200
 *     characters.
 *   - A topic has 1 to 255 bytes of UTF-8. One that begins with "hqueue." is the system's own: it is
 *     refused, and so is a header whose name begins so.
 *
 * What is left out:
 *   - In some languages (Go, C++, Rust, ...) an argument that is a struct can't be left out. A nil or
 *     an empty struct arrives without any field, and counts as left out: `delivery`, `preferences`,
 *     `since`, `rules`. A `messageID` or a `message` can't be left out, and is refused.
 *   - An optional field can be left out in each language, and is not the same as its zero value: an
 *     empty list of `TTopicAccess` means nobody, a `messageBound` of 0 is refused.
 *   - Other arguments have no such state. Their zero values mean what they say: redirected = false,
 *     number = 0 is a publisher's first sequence number, waitMs = 0 doesn't wait, mode = 0 is CREATE.
 *     An empty name and port 0 are refused.
 *   - In an answer and in an exception all fields are set that are not optional.
 *
 * Clients that are there know the names in this file, so these stay. Where the field has other words
 * for what they mean: publishOnce is an idempotent publish, and its number a sequence number; consumed
 * is a subscription's cursor, and consume a cumulative acknowledgement; a subscription that is detached
 * is a subscription session that ended; TTopicAccess is a topic's access control list (ACL).
 */
include "subscriber.thrift"

namespace java com.etao.hadoop.hbase.queue.thrift.hub
namespace py hqueue.hub
namespace go hub
namespace cpp hqueue.hub
namespace netstd HQueue.Hub
namespace php HQueue.Hub
namespace rb HQueue.Hub
namespace rs hqueue_hub
namespace js hqueue.hub
namespace swift HQueueHub

/**
 * What became of a call that failed.
 */
enum TOutcome {
  /* Nothing of it is in the log, nor will be. It can be made again. */
  NOT_APPLIED = 0,
  /* It may be in the log already, or later. Made again, its messages may be there twice. */
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

/** The call is invalid, however often it is made: the text says why. Nothing was done.
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

/**
 * What became of an idempotent publish.
 */
struct TPublishedOnce {
  /* So many of the call's first messages were in the topic already: nothing was done for them. */
  1: i32 dropped,
  /* Where the others are. Left out if there are none. */
  2: optional TPublished published,
  /* This publisher's last message in the topic: a good since for all that it publishes later. */
  3: subscriber.TMessageID newest
}

/**
 * The last message of a publisher that gives sequence numbers. Both are left out if the topic has no
 * message of it.
 */
struct TNewestNumber {
  1: optional i64 number,
  2: optional subscriber.TMessageID id
}

/**
 * A subscriber's way with a topic: whether subscribe may create it, or attach to one that is there.
 */
enum TSubscribeMode {
  /* It must not be there. */
  CREATE = 0,
  /* It must be there. */
  ATTACH = 1,
  CREATE_OR_ATTACH = 2
}

/**
 * How a subscriber wants its messages. It is kept with the subscription. All fields belong together:
 * with one of them, those that are left out are set to their defaults. Without any of them nothing is
 * given, and what is kept stays. To set all of them to their defaults, give an empty application.
 */
struct TPreferences {
  /* At most this many messages wait for it (1 or more); the oldest are dropped, and counted. Left
   * out: no bound. */
  1: optional i32 messageBound,
  /* Its cursor is stored at the latest after this many messages (1 or more). Left out: 100. */
  2: optional i32 consumeInterval,
  /* At most this many messages are delivered and not consumed (1 or more; from 10000 on as 10000).
   * Left out: 1000. */
  3: optional i32 deliveryWindow,
  /* What its application keeps here: at most 100 names and values of printable characters, a name
   * and its value at most 1000 characters together. Left out or empty: nothing. */
  4: optional map<string, string> application
}

/**
 * How messages reach a subscriber: the hub calls an HQueueSubscriberService (subscriber.thrift)
 * there, one call at a time, in the order of the topic. A status of 0 means that the messages of the
 * call are consumed; or only that they were received, if explicitConsume is set: then consume moves
 * the cursor. The session is a name that the client made for itself, new for each of its lives. With an
 * empty host, port 0 and an empty session it counts as left out.
 */
struct TDelivery {
  1: string host,
  2: i32 port,
  3: string session,
  /* Left out: false. */
  4: optional bool explicitConsume
}

/**
 * What is so after subscribe. The next message that is delivered is the first one after the cursor.
 */
struct TSubscribed {
  1: subscriber.TMessageID consumed,
  /* Whether this call created the subscription. */
  2: bool created,
  3: TPreferences preferences,
  /* Call detached in time: a session that the hub does not hear from for so long is over for it. */
  4: i32 sessionMs
}

/**
 * Why a subscription session ended: the hub delivers to the subscriber no more.
 */
enum TDetachedReason {
  /* The hub does not own the topic any more: subscribe again, at any hub. */
  TOPIC_LEFT = 0,
  /* Another session has attached, or the subscription is gone: don't. */
  REPLACED = 1,
  UNSUBSCRIBED = 2
}

struct TDetached {
  1: string subscriber,
  2: string topic,
  3: TDetachedReason reason
}

/**
 * There is such a subscription already. Nothing was done.
 */
exception TSubscriptionExists {
  1: string message
}

/**
 * There is no such subscription, or it is not attached by this session. Nothing was done.
 */
exception TNoSuchSubscription {
  1: string message
}

/**
 * A topic's ACL: who may do what with it, where the hubs go by ACLs (their setting authorizer). Names
 * that callers give; a name and a * behind it stands for all names that begin with it, and * alone for
 * all names. An empty list: nobody. In a call, a list that is left out stays as it is; in an answer
 * none is left out. 256 names each at most.
 */
struct TTopicAccess {
  1: optional list<string> publish,
  /* Subscribe, consume and unsubscribe. */
  2: optional list<string> subscribe,
  /* Move it, delete it, see and change this ACL. */
  3: optional list<string> manage
}

service HQueueHubService {
  /**
   * Publish a message. It is in the log when this returns, and every reader will see it.
   *   queue      the queue. A hub may serve several.
   *   publisher  who calls: a name. Nobody proves it yet.
   *   topic      the topic, which is created when it is first published to.
   *   message    its value, which may be empty, and key and headers if it has any. An empty key is
   *              a key. Its topic is the one above, or empty; its id and partitionID are passed over.
   *   redirected whether another hub named this one.
   */
  TPublished publish(1: string queue, 2: string publisher, 3: string topic,
                     4: subscriber.TMessage message, 5: bool redirected)
    throws (1: TRedirect redirect, 2: TIllegalArgument illegalArgument, 3: TNoSuchQueue noSuchQueue,
            4: TNotAllowed notAllowed, 5: TUnavailable unavailable, 6: TBusy busy)

  /**
   * Publish messages of one topic, all or none, in their order and with no other between them.
   * At least one; together as large as a batch may be: 65536 messages and 8 MiB,
   * with 262144 headers.
   */
  TPublished publishMessages(1: string queue, 2: string publisher, 3: string topic,
                             4: list<subscriber.TMessage> messages, 5: bool redirected)
    throws (1: TRedirect redirect, 2: TIllegalArgument illegalArgument, 3: TNoSuchQueue noSuchQueue,
            4: TNotAllowed notAllowed, 5: TUnavailable unavailable, 6: TBusy busy)

  /**
   * Publish messages of one topic with sequence numbers of their publisher: each once, however often
   * it is called, whatever became of the calls before, and whichever hub has the topic by then. As
   * publishMessages otherwise.
   *   publisher  whose sequence numbers these are. One process at a time publishes under a name, and
   *              makes its next call to a topic when it knows what became of the one before.
   *   number     the first message's sequence number, 0 or more; the others' follow. They grow with
   *              every message of a topic, and may leave some out: a message whose number is not above
   *              the topic's last one of this publisher is a duplicate, and is left out.
   *   since      a message in the topic, or any ID, before which none of these messages was tried:
   *              what a new owner of the topic has to read. Left out, or 0 and 0: all that is kept of
   *              the topic. The newest of the last answer is such an ID.
   * A message carries both in its headers: hqueue.publisher, and hqueue.number in decimal digits.
   * Topics and headers that begin with "hqueue." are the system's own: a call with some is refused.
   * Once a message has expired by the queue's time to live, it is not known any more.
   */
  TPublishedOnce publishOnce(1: string queue, 2: string publisher, 3: string topic,
                             4: list<subscriber.TMessage> messages, 5: i64 number,
                             6: subscriber.TMessageID since, 7: bool redirected)
    throws (1: TRedirect redirect, 2: TIllegalArgument illegalArgument, 3: TNoSuchQueue noSuchQueue,
            4: TNotAllowed notAllowed, 5: TUnavailable unavailable, 6: TBusy busy)

  /**
   * The last sequence number of a publisher in a topic: where it goes on after a restart.
   * A message whose outcome was unknown may still be written; publishOnce knows.
   *   since      as for publishOnce: what lies before is not looked at. Left out: nothing lies before.
   */
  TNewestNumber newestNumber(1: string queue, 2: string publisher, 3: string topic,
                             4: subscriber.TMessageID since, 5: bool redirected)
    throws (1: TRedirect redirect, 2: TIllegalArgument illegalArgument, 3: TNoSuchQueue noSuchQueue,
            4: TNotAllowed notAllowed, 5: TUnavailable unavailable, 6: TBusy busy)

  /**
   * Let another hub own a topic. Its owner appends what waits, and leaves it; then the caller is sent
   * to that hub, which makes the topic its own, and answers. Who calls for the topic between the two
   * may bring it to a third hub; then the move begins again. Afterwards it is as any topic: hubs that
   * have too much to do leave some to others.
   *   host, port  the hub's address, as it is registered. It has to be available.
   */
  void moveTopic(1: string queue, 2: string caller, 3: string topic, 4: string host, 5: i32 port,
                 6: bool redirected)
    throws (1: TRedirect redirect, 2: TIllegalArgument illegalArgument, 3: TNoSuchQueue noSuchQueue,
            4: TNotAllowed notAllowed, 5: TUnavailable unavailable, 6: TBusy busy)

  /**
   * Delete a topic: its subscriptions end, and nobody appends to it any more. Its messages stay in the
   * queue for as long as it keeps messages. A topic that is created later under this name is another
   * one: it has none of them. Whether there was such a topic. What failed half-way can be called again.
   */
  bool deleteTopic(1: string queue, 2: string caller, 3: string topic, 4: bool redirected)
    throws (1: TRedirect redirect, 2: TIllegalArgument illegalArgument, 3: TNoSuchQueue noSuchQueue,
            4: TNotAllowed notAllowed, 5: TUnavailable unavailable, 6: TBusy busy)

  /**
   * Change a topic's ACL: the lists that are given replace those that are there. Returns all of it
   * as it is then. When this returns it holds for every call, whatever hub has the topic; a subscriber
   * that may not subscribe any more is detached. With no list given the ACL is only returned. A topic
   * that is not there is created, if a list is given: so it has an ACL before anybody publishes to it.
   */
  TTopicAccess changeAccess(1: string queue, 2: string caller, 3: string topic,
                            4: TTopicAccess rules, 5: bool redirected)
    throws (1: TRedirect redirect, 2: TIllegalArgument illegalArgument, 3: TNoSuchQueue noSuchQueue,
            4: TNotAllowed notAllowed, 5: TUnavailable unavailable, 6: TBusy busy)

  /**
   * Subscribe to a topic, and have its messages delivered from the cursor on. A new
   * subscription begins at the topic's end: it gets what is published after this returns. An
   * attached one of another session is detached first. Called again by the same session, it changes
   * what is given, and nothing is lost.
   *   subscriber   the subscription's name within the topic.
   *   delivery     where messages go; left out, it is created (or changed) and not attached.
   *   preferences  to be kept; left out, or without any field, those that it has stay.
   */
  TSubscribed subscribe(1: string queue, 2: string subscriber, 3: string topic,
                        4: TSubscribeMode mode, 5: TDelivery delivery, 6: TPreferences preferences,
                        7: bool redirected)
    throws (1: TRedirect redirect, 2: TIllegalArgument illegalArgument, 3: TNoSuchQueue noSuchQueue,
            4: TNotAllowed notAllowed, 5: TUnavailable unavailable, 6: TBusy busy,
            7: TSubscriptionExists exists, 8: TNoSuchSubscription noSuchSubscription)

  /**
   * End a subscription: nothing more is delivered, and its cursor and preferences are gone.
   */
  void unsubscribe(1: string queue, 2: string subscriber, 3: string topic, 4: bool redirected)
    throws (1: TRedirect redirect, 2: TIllegalArgument illegalArgument, 3: TNoSuchQueue noSuchQueue,
            4: TNotAllowed notAllowed, 5: TUnavailable unavailable, 6: TBusy busy,
            7: TNoSuchSubscription noSuchSubscription)

  /**
   * Stop delivering to a subscriber of this session. The subscription stays, and the call under way
   * is waited for: when this returns, its cursor is stored.
   */
  void closeSubscription(1: string queue, 2: string subscriber, 3: string topic, 4: string session)
    throws (1: TIllegalArgument illegalArgument, 2: TNoSuchQueue noSuchQueue,
            3: TUnavailable unavailable, 4: TBusy busy, 5: TNoSuchSubscription noSuchSubscription)

  /**
   * A subscriber is done with this message and all before it: move its cursor there, if it is behind.
   * It makes room in the delivery window. The cursor is stored within the consume interval, and when
   * the subscription ends here.
   */
  void consume(1: string queue, 2: string subscriber, 3: string topic,
               4: subscriber.TMessageID messageID, 5: bool redirected)
    throws (1: TRedirect redirect, 2: TIllegalArgument illegalArgument, 3: TNoSuchQueue noSuchQueue,
            4: TNotAllowed notAllowed, 5: TUnavailable unavailable, 6: TBusy busy,
            7: TNoSuchSubscription noSuchSubscription)

  /**
   * Wait until something that a session attached here is detached, waitMs at most (30000 at most);
   * what is so by then, once each. Keep one such call under way at each hub where the session has
   * attached something; when it fails, or nothing comes for long, subscribe again.
   */
  list<TDetached> detached(1: string queue, 2: string session, 3: i32 waitMs)
    throws (1: TIllegalArgument illegalArgument, 2: TNoSuchQueue noSuchQueue, 3: TBusy busy)

  /**
   * Where this process serves HQueue's Thrift API, by which whole queues are put to and scanned
   * (hqueue.thrift): host:port. Empty if it does not.
   */
  string apiAddress()
}

/*
 * The service of HQueue's hubs, over Thrift's binary protocol, unframed (buffered transport). A hub
 * owns some of the topics of a queue, and writes their messages to the queue's log. Call any hub: a hub
 * that does not own a topic names the one that does, or that should (TRedirect).
 *
 * How a client publishes:
 *   1. Call any hub, with redirected = false.
 *   2. On TRedirect call the hub that it names, with redirected = true. Follow only a few redirects in
 *      a row: while hubs come and go, two may name each other for a moment. Then pause, and begin
 *      again.
 *   3. Remember the hub that answered, and send it the topic's next messages, with redirected = false.
 * One connection makes one call at a time. Calls that are made one after the other are in the log in
 * that order.
 *
 * Names:
 *   - A publisher, a caller, a subscriber and a session have names of 1 to 200 characters: the letters
 *     a to z and A to Z, digits, '_', '-' and '.'. The first one is neither '-' nor '.'.
 *   - A queue's name is made of the same characters. It may begin with a namespace and a colon; a
 *     namespace has letters, digits and '_', and "default:" is never written. All of it has 1 to 200
 *     characters.
 *   - A topic has 1 to 255 bytes of UTF-8. Topics and header names that begin with "hqueue." are the
 *     system's own: calls with them are refused.
 *
 * What is left out:
 *   - In some languages (Go, C++, Rust, ...) an argument that is a struct can't be left out. A nil or
 *     an empty struct arrives without any field, and counts as left out: `delivery`, `preferences`,
 *     `since`, `rules`. A `messageID` or a `message` can't be left out, and is refused.
 *   - An optional field can be left out in every language. That is not the same as its zero value: an
 *     empty list of `TTopicAccess` means nobody, a `messageBound` of 0 is refused.
 *   - Other arguments have no such state. Their zero values mean what they say: redirected = false,
 *     number = 0 is a publisher's first sequence number, waitMs = 0 doesn't wait, mode = 0 is CREATE.
 *     An empty name and port 0 are refused.
 *   - In answers and exceptions, every field that is not optional is set.
 *
 * The names in this file stay, since existing clients use them. Some have other names in the field:
 * publishOnce is an idempotent publish, and its number is a sequence number; consumed is a
 * subscription's cursor, and consume is a cumulative acknowledgement; a detached subscription is a
 * subscription session that ended; TTopicAccess is a topic's access control list (ACL).
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
 * Whether a failed call may have been applied.
 */
enum TOutcome {
  /* Nothing of the call is in the log, nor will be. It can be repeated. */
  NOT_APPLIED = 0,
  /* The messages may be in the log, now or later. If the call is repeated, they may be there twice. */
  UNKNOWN = 1
}

/**
 * The position of published messages: all in one partition, with consecutive IDs from this one on. The
 * ID after timestamp t and sequence 32767 has timestamp t + 1 and sequence 0.
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

/** The call is invalid, and repeating it won't help: the message says why. Nothing was done. */
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
 * The hub can't do it now: HBase or ZooKeeper did not answer, or the hub is ending. If the outcome is
 * NOT_APPLIED, call any hub again after a pause.
 */
exception TUnavailable {
  1: string message,
  2: TOutcome outcome
}

/**
 * The hub has reached one of its limits, or the caller its quota. Nothing was done. Call again after a
 * pause: if retryAfterMs is set, after that many milliseconds. A connection that calls earlier is
 * answered late.
 */
exception TBusy {
  1: string message,
  2: optional i32 retryAfterMs
}

/**
 * The result of an idempotent publish.
 */
struct TPublishedOnce {
  /* How many of the call's first messages were in the topic already. They were left out. */
  1: i32 dropped,
  /* The position of the others. Left out if there are none. */
  2: optional TPublished published,
  /* The ID of this publisher's last message in the topic. Use it as since in later calls. */
  3: subscriber.TMessageID newest
}

/**
 * The last message with a sequence number of a publisher. Both fields are left out if the topic has
 * none.
 */
struct TNewestNumber {
  1: optional i64 number,
  2: optional subscriber.TMessageID id
}

/**
 * Whether subscribe may create a subscription, or attach to an existing one.
 */
enum TSubscribeMode {
  /* Create the subscription. It must not exist. */
  CREATE = 0,
  /* Attach to the subscription. It must exist. */
  ATTACH = 1,
  CREATE_OR_ATTACH = 2
}

/**
 * A subscriber's preferences, which are kept with the subscription. All fields belong together: if one
 * is set, those that are left out get their defaults. If none is set, the stored preferences stay. To
 * reset all of them to their defaults, give an empty application.
 */
struct TPreferences {
  /* At most this many messages wait for the subscriber (1 or more); the oldest are dropped, and
   * counted. Left out: no bound. */
  1: optional i32 messageBound,
  /* The cursor is stored at the latest after this many messages (1 or more). Left out: 100. */
  2: optional i32 consumeInterval,
  /* At most this many messages are delivered and not consumed (1 or more; from 10000 on as 10000).
   * Left out: 1000. */
  3: optional i32 deliveryWindow,
  /* Names and values that the subscriber's application keeps here: at most 100, of printable
   * characters, and a name and its value of at most 1000 characters together. Left out or empty:
   * nothing. */
  4: optional map<string, string> application,
  /* How many calls with a message alone may have no answer before it becomes a dead letter; 0 for
   * any number: docs/push-guarantees.md. Left out: 5. */
  5: optional i32 unansweredCallsMax
}

/**
 * How messages reach a subscriber: the hub calls an HQueueSubscriberService (subscriber.thrift) there,
 * one call at a time, in the order of the topic. A status of 0 means that the messages of the call are
 * consumed. If explicitConsume is set, it means only that they were received, and consume moves the
 * cursor. The session is a name that the client makes for itself, a new one at each start. With an
 * empty host, port 0 and an empty session, the struct counts as left out.
 */
struct TDelivery {
  1: string host,
  2: i32 port,
  3: string session,
  /* Left out: false. */
  4: optional bool explicitConsume
}

/**
 * The subscription's state after subscribe. The first message after the cursor is delivered next.
 */
struct TSubscribed {
  1: subscriber.TMessageID consumed,
  /* Whether this call created the subscription. */
  2: bool created,
  3: TPreferences preferences,
  /* Call detached more often than this: the hub ends a session that is silent for longer. */
  4: i32 sessionMs
}

/**
 * Why a subscription session ended, so that the hub stopped delivering.
 */
enum TDetachedReason {
  /* The hub does not own the topic any more: subscribe again, at any hub. */
  TOPIC_LEFT = 0,
  /* Another session has attached (REPLACED), or the subscription was deleted (UNSUBSCRIBED): don't
   * subscribe again. */
  REPLACED = 1,
  UNSUBSCRIBED = 2
}

struct TDetached {
  1: string subscriber,
  2: string topic,
  3: TDetachedReason reason
}

/**
 * The subscription exists already. Nothing was done.
 */
exception TSubscriptionExists {
  1: string message
}

/**
 * The subscription does not exist, or this session is not attached to it. Nothing was done.
 */
exception TNoSuchSubscription {
  1: string message
}

/**
 * A topic's ACL: the callers that may use it, if the hubs' setting authorizer enables ACLs. The lists
 * have names that callers give. A name with a * at its end stands for all names that begin with the
 * text before it, and * alone for all names. An empty list allows nobody. In a call, a list that is
 * left out stays as it is; answers have all lists. A list has at most 256 names.
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
   * Publish a message. When the call returns, the message is in the log and every reader will see it.
   *   queue      the queue. A hub may serve several.
   *   publisher  the caller's name. It is not authenticated.
   *   topic      the topic, which is created at its first publish.
   *   message    a value, which may be empty, and a key and headers if it has any. An empty key is a
   *              key. Its topic is the one above, or empty; its id and partitionID are ignored.
   *   redirected whether another hub's TRedirect named this hub.
   */
  TPublished publish(1: string queue, 2: string publisher, 3: string topic,
                     4: subscriber.TMessage message, 5: bool redirected)
    throws (1: TRedirect redirect, 2: TIllegalArgument illegalArgument, 3: TNoSuchQueue noSuchQueue,
            4: TNotAllowed notAllowed, 5: TUnavailable unavailable, 6: TBusy busy)

  /**
   * Publish messages of one topic: all or none of them, in their order and with no other between them.
   * At least one message, and at most what a batch may have: 65536 messages, 8 MiB and 262144 headers.
   */
  TPublished publishMessages(1: string queue, 2: string publisher, 3: string topic,
                             4: list<subscriber.TMessage> messages, 5: bool redirected)
    throws (1: TRedirect redirect, 2: TIllegalArgument illegalArgument, 3: TNoSuchQueue noSuchQueue,
            4: TNotAllowed notAllowed, 5: TUnavailable unavailable, 6: TBusy busy)

  /**
   * Publish messages of one topic with sequence numbers of their publisher, each exactly once: however
   * often the call is repeated, whatever the outcome of earlier calls, and at whichever hub. Otherwise
   * like publishMessages.
   *   publisher  the owner of the sequence numbers. Only one process at a time may publish under a
   *              name, and it makes its next call to a topic when it knows the outcome of the one
   *              before.
   *   number     the first message's sequence number, 0 or more; the others have the numbers that
   *              follow. They must grow with every message of a topic, and may have gaps: a message
   *              whose number is not above the topic's last one of this publisher is a duplicate, and
   *              is left out.
   *   since      an ID in the topic before which none of these messages was ever tried. A new owner of
   *              the topic reads the topic from there on. Left out, or 0 and 0: all that is kept of the
   *              topic. The newest of the last answer is such an ID.
   * A message carries both in its headers: hqueue.publisher, and hqueue.number in decimal digits.
   * Topics and headers that begin with "hqueue." are the system's own: a call with them is refused. A
   * message that has expired by the queue's time to live is not recognized as a duplicate any more.
   */
  TPublishedOnce publishOnce(1: string queue, 2: string publisher, 3: string topic,
                             4: list<subscriber.TMessage> messages, 5: i64 number,
                             6: subscriber.TMessageID since, 7: bool redirected)
    throws (1: TRedirect redirect, 2: TIllegalArgument illegalArgument, 3: TNoSuchQueue noSuchQueue,
            4: TNotAllowed notAllowed, 5: TUnavailable unavailable, 6: TBusy busy)

  /**
   * The last sequence number of a publisher in a topic, after which it continues when it restarts. A
   * message with an unknown outcome may still be written after this call; publishOnce takes that into
   * account.
   *   since      as for publishOnce: messages before it are not searched. Left out: all are searched.
   */
  TNewestNumber newestNumber(1: string queue, 2: string publisher, 3: string topic,
                             4: subscriber.TMessageID since, 5: bool redirected)
    throws (1: TRedirect redirect, 2: TIllegalArgument illegalArgument, 3: TNoSuchQueue noSuchQueue,
            4: TNotAllowed notAllowed, 5: TUnavailable unavailable, 6: TBusy busy)

  /**
   * Move a topic to another hub. Its owner appends the messages that wait, releases the topic, and
   * redirects the caller to that hub, which takes the topic over and answers. A call for the topic
   * between the two may bring it to a third hub; then the move begins again. Afterwards hubs with too
   * much load may release the topic, as any other.
   *   host, port  the hub's address, as it is registered. The hub must be available.
   */
  void moveTopic(1: string queue, 2: string caller, 3: string topic, 4: string host, 5: i32 port,
                 6: bool redirected)
    throws (1: TRedirect redirect, 2: TIllegalArgument illegalArgument, 3: TNoSuchQueue noSuchQueue,
            4: TNotAllowed notAllowed, 5: TUnavailable unavailable, 6: TBusy busy)

  /**
   * Delete a topic: its subscriptions end, and no hub appends to it any more. Its messages stay in the
   * queue until they expire. A topic that is created later under this name is another one, and has none
   * of them. Returns whether the topic existed. If the call fails half-way, call it again.
   */
  bool deleteTopic(1: string queue, 2: string caller, 3: string topic, 4: bool redirected)
    throws (1: TRedirect redirect, 2: TIllegalArgument illegalArgument, 3: TNoSuchQueue noSuchQueue,
            4: TNotAllowed notAllowed, 5: TUnavailable unavailable, 6: TBusy busy)

  /**
   * Change a topic's ACL: the given lists replace the present ones. Returns the whole new ACL. When the
   * call returns, the ACL is in force for every call at every hub; a subscriber that may not subscribe
   * any more is detached. Without a list, the call only returns the ACL. If a list is given, a topic
   * that does not exist is created, so it can have an ACL before anybody publishes to it.
   */
  TTopicAccess changeAccess(1: string queue, 2: string caller, 3: string topic,
                            4: TTopicAccess rules, 5: bool redirected)
    throws (1: TRedirect redirect, 2: TIllegalArgument illegalArgument, 3: TNoSuchQueue noSuchQueue,
            4: TNotAllowed notAllowed, 5: TUnavailable unavailable, 6: TBusy busy)

  /**
   * Subscribe to a topic, whose messages are delivered from the cursor on. A new subscription begins at
   * the topic's end: it gets messages that are published after this call returns. If another session is
   * attached, it is detached first. When the same session calls again, the given arguments change the
   * subscription, and no message is lost.
   *   subscriber   the subscription's name within the topic.
   *   delivery     where messages go. Left out, the subscription is created (or changed) and not
   *                attached.
   *   preferences  the preferences to store. Left out, or without any field, the stored ones stay.
   */
  TSubscribed subscribe(1: string queue, 2: string subscriber, 3: string topic,
                        4: TSubscribeMode mode, 5: TDelivery delivery, 6: TPreferences preferences,
                        7: bool redirected)
    throws (1: TRedirect redirect, 2: TIllegalArgument illegalArgument, 3: TNoSuchQueue noSuchQueue,
            4: TNotAllowed notAllowed, 5: TUnavailable unavailable, 6: TBusy busy,
            7: TSubscriptionExists exists, 8: TNoSuchSubscription noSuchSubscription)

  /**
   * Delete a subscription with its cursor and preferences. Nothing more is delivered.
   */
  void unsubscribe(1: string queue, 2: string subscriber, 3: string topic, 4: bool redirected)
    throws (1: TRedirect redirect, 2: TIllegalArgument illegalArgument, 3: TNoSuchQueue noSuchQueue,
            4: TNotAllowed notAllowed, 5: TUnavailable unavailable, 6: TBusy busy,
            7: TNoSuchSubscription noSuchSubscription)

  /**
   * Stop delivering to a subscriber of this session, which with TLS is a session of the caller's
   * principal. The subscription stays, and the call needs no right. The hub waits for the
   * delivery under way; when this call returns, the cursor is stored.
   */
  void closeSubscription(1: string queue, 2: string subscriber, 3: string topic, 4: string session)
    throws (1: TIllegalArgument illegalArgument, 2: TNoSuchQueue noSuchQueue,
            3: TUnavailable unavailable, 4: TBusy busy, 5: TNoSuchSubscription noSuchSubscription)

  /**
   * Acknowledge this message and all before it: the cursor moves there, if it lies before. This makes
   * room in the delivery window. The cursor is stored within the consume interval, and when the
   * subscription session ends at this hub.
   */
  void consume(1: string queue, 2: string subscriber, 3: string topic,
               4: subscriber.TMessageID messageID, 5: bool redirected)
    throws (1: TRedirect redirect, 2: TIllegalArgument illegalArgument, 3: TNoSuchQueue noSuchQueue,
            4: TNotAllowed notAllowed, 5: TUnavailable unavailable, 6: TBusy busy,
            7: TNoSuchSubscription noSuchSubscription)

  /**
   * Wait until a subscription of this session is detached at this hub, for at most waitMs (up to
   * 30000). Returns those that were detached, each once. With TLS a session belongs to its principal:
   * another's counts as unknown. Keep one such call under way at each hub where
   * the session has attached a subscription. When the call fails, or there is no answer for long,
   * subscribe again.
   */
  list<TDetached> detached(1: string queue, 2: string session, 3: i32 waitMs)
    throws (1: TIllegalArgument illegalArgument, 2: TNoSuchQueue noSuchQueue, 3: TBusy busy)

  /**
   * The address, host:port, at which this process serves HQueue's Thrift API (hqueue.thrift), for puts
   * to and scans of whole queues. Empty if it does not serve it.
   */
  string apiAddress()
}

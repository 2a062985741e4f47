/*
 * HQueue's API for every language, with the calls of Alibaba's HQueue, and `put`. A worker or a hub
 * serves it if its setting `api_port` is set: docs/thrift-api.md. It uses a plain socket and Thrift's
 * binary protocol without frames (TSocket, TBufferedTransport, TBinaryProtocol, strict). A client needs
 * this file and the one that it includes, but no other part of HQueue, and no access to HBase and
 * ZooKeeper.
 *
 * A connection answers one call at a time, in their order. Every process serves the same queues; only
 * scanners belong to the process that opened them. Bytes that are no call of the protocol, or a call
 * that is too large, end their connection and have no other effect.
 *
 * Every error of a call is declared, and says whether something was done.
 */
include "subscriber.thrift"

namespace java com.etao.hadoop.hbase.queue.thrift.generated
namespace py hqueue_thrift.api
namespace go hqueue
namespace cpp hqueue.api
namespace netstd HQueue.Api
namespace php HQueue.Api
namespace rb HQueue.Api
namespace rs hqueue_api
namespace js hqueue.api
namespace swift HQueueApi

/**
 * A text, in UTF-8. The name of a queue has 1 to 200 characters: the letters a to z and A to Z, digits,
 * '_', '-' and '.', the first one neither '-' nor '.'. It may begin with a namespace and a colon; a
 * namespace has letters, digits and '_', and "default:" is never written.
 */
typedef string Text

/**
 * A scanner's ID: 32 hexadecimal digits that can't be guessed. Any client with the ID may read with the
 * scanner, over any connection to the process that opened it, until the scanner is closed or expires;
 * with TLS, any client of the principal that opened it.
 */
typedef string ScannerID

/** The messages to read of a partition. Without any field, as a nil arrives: all of them. */
struct TMessageScan {
  /** The ID of the first message, or the position where it would lie. The oldest message if not set. */
  1: optional subscriber.TMessageID startMessageID,
  /**
   * The first position that is not read any more. If not set, the scanner has no end of its own: at the
   * log's end it does not wait, but a later call returns messages that were put since.
   */
  2: optional subscriber.TMessageID stopMessageID,
  /** The topics to read, each 1 to 255 bytes of UTF-8. All if not set, or empty. */
  3: optional list<binary> topics
}

/** Messages to put as one batch, and the options of the put. */
struct TPut {
  1: optional Text queueName,
  /** At least one message, as for putMessages. */
  2: optional list<subscriber.TMessage> messages,
  /** The partition. If not set, `key` or else the messages' own keys choose it; without keys any. */
  3: optional i16 partitionID,
  /** Chooses the partition, as a message's own key does. It is not stored. */
  4: optional binary key,
  /**
   * Identifies the batch in its partition, so `partition` or `key` must be set. A later put with the
   * same idempotency key, at any process, finds the batch of the first put and returns its IDs: so a
   * put whose answer was lost can be repeated, and is written once. Always use the same one for the
   * same messages.
   */
  5: optional binary idempotencyKey,
  /**
   * An ID before the first put with that idempotency key, such as currentPosition's. The log is searched
   * from there on; all if not set.
   */
  6: optional subscriber.TMessageID since
}

/** The IDs of the messages that were put: from firstID on, without a gap, in their order. */
struct TPutAnswer {
  1: optional subscriber.TMessageID firstID,
  2: optional i32 count
}

/** The region server of a partition. */
struct TQueueLocation {
  1: i16 partitionID,
  /** The region server's host and port, as HBase names them. */
  2: Text host,
  3: i32 port
}

/** Whether a call that ended with an error may have been applied. */
enum TOutcome {
  /** Nothing was done, and nothing of the call will show up later. It is safe to repeat. */
  NOT_APPLIED = 0,
  /** The call may have been applied, or may be applied later. Repeating it may apply it twice. */
  UNKNOWN = 1
}

/** Why a queue can't be used. */
enum TQueueCondition {
  NOT_FOUND = 0,
  /** The queue takes no puts and no reads until it is enabled. */
  DISABLED = 1,
  /** There is a table of this name, but it is not a queue. */
  NOT_A_QUEUE = 2
}

/**
 * An argument is missing or out of range, or a topic or header name begins with "hqueue.", which is the
 * system's own. Or the caller may not make the call. Nothing was done, and repeating the call won't
 * help.
 */
exception TIllegalArgument {
  1: Text message,
  /** Set, to true, if the caller may not make the call: `message` says which right is missing. */
  2: optional bool notAllowed
}

/** The queue does not exist, or can't be used. */
exception TQueueStateError {
  1: Text message,
  2: TQueueCondition condition,
  3: TOutcome outcome
}

/**
 * This process has no scanner with this ID: it was closed, was idle for too long, belongs to another
 * process or principal, or never existed. Open another one after the last message that you got.
 */
exception TScannerNotFound {
  1: Text message
}

/**
 * HBase was unavailable, there are too many scanners, another call is reading with this scanner, or the
 * caller has reached its quota. Try again after a while. A scanner keeps its position.
 */
exception TUnavailable {
  1: Text message,
  2: TOutcome outcome,
  /**
   * Set if the caller has reached its quota: call again after that many milliseconds. A connection that
   * calls earlier is answered late.
   */
  3: optional i32 retryAfterMs
}

/**
 * The call was refused, and trying again won't help: the log is corrupt at this position, or was
 * written by a newer release, HBase refuses the request, or the clock of this process is off.
 */
exception TServiceError {
  1: Text message,
  2: TOutcome outcome
}

/** Why a put might not be the only one with its idempotency key. */
enum TIdempotencyCondition {
  /** The batch with this idempotency key has other messages. */
  REUSED = 0,
  /** The log's headers since `since` are not all kept any more. */
  TOO_OLD = 1
}

/** A put with an idempotency key was refused. Trying again won't help. */
exception TIdempotencyKeyError {
  1: Text message,
  2: TIdempotencyCondition condition,
  3: TOutcome outcome,
  /** How many messages the call has, and how many the batch in the log has; set with REUSED. */
  4: optional i32 count,
  5: optional i32 countBefore
}

service HQueueService {
  /**
   * Open a scanner over one partition; partitions are numbered from 0. The call sends no request to
   * HBase. Close the scanner: a process has room for a limited number, and drops a scanner that was
   * idle for some minutes.
   */
  ScannerID messageScannerOpen(1: Text queueName, 2: i16 partitionID, 3: TMessageScan messageScan)
    throws (1: TIllegalArgument illegalArgument, 2: TQueueStateError queueState,
            3: TUnavailable unavailable, 4: TServiceError serviceError),

  /**
   * Return the next message. At the end, return a message whose `id` is NOT SET, with an empty topic
   * and value: Thrift has no null, and the end is not an error. Every message that was read has an
   * `id`, so a client in any language can see the end. (HBase's own service does the same: a TResult
   * without a row.) After the end, if the scan has no stop, a later call may return messages that were
   * put since.
   *
   * A message that was read once counts as read: if the answer is lost, the next call returns the
   * message after it. To miss none, open another scanner after the last message that you got: at its
   * timestamp and sequenceID + 1, or, if that was 32767, at timestamp + 1 and 0.
   */
  subscriber.TMessage messageScannerGet(1: ScannerID id)
    throws (1: TIllegalArgument illegalArgument, 2: TQueueStateError queueState,
            3: TUnavailable unavailable, 4: TServiceError serviceError,
            5: TScannerNotFound scannerNotFound),

  /**
   * Return the next messages that are there at once, at most this many (1 or more). An answer is also
   * limited by its bytes (the process's setting `scanner_bytes_max`, 1 MiB by default; one message
   * always fits) and to a thousand messages, and no call searches for longer than the process's time
   * limit for an operation. So a call may return fewer messages than there are. Only an EMPTY list is
   * the end, as above.
   */
  list<subscriber.TMessage> messageScannerGetList(1: ScannerID id, 2: i32 nbMessages)
    throws (1: TIllegalArgument illegalArgument, 2: TQueueStateError queueState,
            3: TUnavailable unavailable, 4: TServiceError serviceError,
            5: TScannerNotFound scannerNotFound),

  /** Close a scanner. */
  void messageScannerClose(1: ScannerID id)
    throws (1: TIllegalArgument illegalArgument, 2: TScannerNotFound scannerNotFound,
            3: TServiceError serviceError),

  /**
   * Write a message. When the call returns, the message is durable and every reader of the partition
   * finds it. A message with a key goes to the partition of its key (CRC-32 of the key, modulo the
   * number of partitions), one without a key to any.
   *
   * A put uses a message's topic (1 to 255 bytes of UTF-8), value, key and headers. It ignores `id` and
   * `partitionID`, so a message that was read can be put as it is. A value may be empty, and an empty
   * key is a key: leave out the field for a message without one. Topics and header names that begin
   * with "hqueue." are the system's own, and are refused.
   */
  void putMessage(1: Text queueName, 2: subscriber.TMessage tMessage)
    throws (1: TIllegalArgument illegalArgument, 2: TQueueStateError queueState,
            3: TUnavailable unavailable, 4: TServiceError serviceError),

  /**
   * Write messages as one batch into one partition, in their order: all or none of them. At least one
   * message, at most 65,536 messages, 8 MiB and 262,144 headers; more are refused, and a call that is
   * far larger ends its connection. If messages have keys, these must belong to one partition.
   */
  void putMessages(1: Text queueName, 2: list<subscriber.TMessage> tMessages)
    throws (1: TIllegalArgument illegalArgument, 2: TQueueStateError queueState,
            3: TUnavailable unavailable, 4: TServiceError serviceError),

  /** As putMessage, into this partition, whatever key the message has. */
  void putMessageWithPid(1: Text queueName, 2: i16 partitionID, 3: subscriber.TMessage tMessage)
    throws (1: TIllegalArgument illegalArgument, 2: TQueueStateError queueState,
            3: TUnavailable unavailable, 4: TServiceError serviceError),

  /** As putMessages, into this partition, whatever keys the messages have. */
  void putMessagesWithPid(1: Text queueName, 2: i16 partitionID,
                          3: list<subscriber.TMessage> tMessages)
    throws (1: TIllegalArgument illegalArgument, 2: TQueueStateError queueState,
            3: TUnavailable unavailable, 4: TServiceError serviceError),

  /**
   * As putMessages, with all options of a put, and with an answer. Fields that are added later to
   * either struct are optional.
   */
  TPutAnswer put(1: TPut put)
    throws (1: TIllegalArgument illegalArgument, 2: TQueueStateError queueState,
            3: TUnavailable unavailable, 4: TServiceError serviceError,
            5: TIdempotencyKeyError idempotencyKey),

  /**
   * The position of this moment, in every partition, by this process's clock, which was compared with
   * HBase's: a `since` for puts that are made after this call. So a client needs no clock of its own.
   */
  subscriber.TMessageID currentPosition(1: Text queueName)
    throws (1: TIllegalArgument illegalArgument, 2: TQueueStateError queueState,
            3: TUnavailable unavailable, 4: TServiceError serviceError),

  /**
   * The region server of each partition now, in the order of partitions. While HBase moves a region,
   * the call waits.
   */
  list<TQueueLocation> getQueueLocations(1: Text queueName)
    throws (1: TIllegalArgument illegalArgument, 2: TQueueStateError queueState,
            3: TUnavailable unavailable, 4: TServiceError serviceError)
}

/*
 * HQueue's API for every language, with the calls of Alibaba's HQueue, and `put`. A worker or a hub serves it,
 * if its setting `api_port` is set: docs/thrift-api.md. Over a plain socket, with Thrift's binary
 * protocol and no frames (TSocket, TBufferedTransport, TBinaryProtocol, strict). A client needs this
 * file, the one that it includes, and nothing else of HQueue; no HBase and no ZooKeeper in reach.
 *
 * A connection answers one call at a time, in their order. Whatever process serves a call, the same
 * queues are there: only scanners belong to the process that opened them. What is no call of the
 * protocol, or is too large, ends its connection and nothing else.
 *
 * Every error that a call can end with is declared, and says whether something was done.
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
 * Who has it may read with the scanner: 32 hexadecimal digits that nobody guesses. It counts in the
 * process that gave it, whichever connection it comes from, until the scanner is closed or expires.
 */
typedef string ScannerID

/** What is wanted of a partition. Without any field, which is what a nil arrives as: all of it. */
struct TMessageScan {
  /** The first message that is wanted, or the place where it would lie. The oldest if not set. */
  1: optional subscriber.TMessageID startMessageID,
  /**
   * The first that is not wanted any more. If not set, the scanner has no end of its own: where the
   * log ends it waits for nothing, but a later call gets what was put since.
   */
  2: optional subscriber.TMessageID stopMessageID,
  /** The topics that are wanted, each 1 to 255 bytes of UTF-8. All if not set, or empty. */
  3: optional list<binary> topics
}

/** Messages to put as one batch, and how. */
struct TPut {
  1: optional Text queueName,
  /** At least one; as for putMessages. */
  2: optional list<subscriber.TMessage> messages,
  /** The partition. If not set, the one of `key`, or else of the messages' own keys; any without. */
  3: optional i16 partitionID,
  /** Chooses the partition, as a message's own key does. It is not stored. */
  4: optional binary key,
  /**
   * What the batch is known by in its partition, which must be set, or a key. A put with the same one
   * finds the batch of the first put, by whatever process, and answers with its IDs: so a put whose
   * answer got lost can be made again, and is there once. It stands for the same messages.
   */
  5: optional binary idempotencyKey,
  /** An ID before the first put with that key: where the log is searched from. If not set, all. */
  6: optional subscriber.TMessageID since
}

/** The messages that were put have the IDs from firstID on, without a gap, in their order. */
struct TPutAnswer {
  1: optional subscriber.TMessageID firstID,
  2: optional i32 count
}

/** Where a partition is served. */
struct TQueueLocation {
  1: i16 partitionID,
  /** The region server's host and port, as HBase names them. */
  2: Text host,
  3: i32 port
}

/** What became of a call that ended with an error. */
enum TOutcome {
  /** Nothing was done, and nothing of it will show up later. Safe to do again. */
  NOT_APPLIED = 0,
  /** It may have been done, or may be yet. Doing it again may do it twice. */
  UNKNOWN = 1
}

/** Why a queue can't be used. */
enum TQueueCondition {
  NOT_FOUND = 0,
  /** It takes no puts and no reads until it is enabled. */
  DISABLED = 1,
  /** There is a table of that name, but it is no queue. */
  NOT_A_QUEUE = 2
}

/**
 * An argument is missing or out of range: also a topic or a header's name that begins with "hqueue.",
 * which are the system's own. Nothing was done, and the same call won't ever be.
 */
exception TIllegalArgument {
  1: Text message
}

/** The queue is not there, or can't be used. */
exception TQueueStateError {
  1: Text message,
  2: TQueueCondition condition,
  3: TOutcome outcome
}

/**
 * There is no scanner with this ID here: it was closed, was idle for too long, belongs to another
 * process, or never was. Open one at the message behind the last that came.
 */
exception TScannerNotFound {
  1: Text message
}

/**
 * HBase stayed away, or this process has no room: too many scanners, or another call reads with this
 * one. It may go better in a while. A scanner stays where it was.
 */
exception TUnavailable {
  1: Text message,
  2: TOutcome outcome
}

/**
 * It won't be done, and trying again won't help: the log is broken where it is read, was written by
 * a newer release, HBase refuses the request, or the clock of this process is off.
 */
exception TServiceError {
  1: Text message,
  2: TOutcome outcome
}

/** Why it is not certain that a put would be the only one with its idempotency key. */
enum TIdempotencyCondition {
  /** The batch with this idempotency key has other messages. */
  REUSED = 0,
  /** The log is not kept back to `since`. */
  TOO_OLD = 1
}

/** A put with an idempotency key is not done. Trying again won't help. */
exception TIdempotencyKeyError {
  1: Text message,
  2: TIdempotencyCondition condition,
  3: TOutcome outcome,
  /** How many messages the call has, and the batch that is there; set with REUSED. */
  4: optional i32 count,
  5: optional i32 countBefore
}

service HQueueService {
  /**
   * Open a scanner over one partition: from 0 to one less than the queue has. It asks for nothing
   * yet. Close it: a process has room for so many, and forgets one that was idle for some minutes.
   */
  ScannerID messageScannerOpen(1: Text queueName, 2: i16 partitionID, 3: TMessageScan messageScan)
    throws (1: TIllegalArgument illegalArgument, 2: TQueueStateError queueState,
            3: TUnavailable unavailable, 4: TServiceError serviceError),

  /**
   * The next message. At the end one whose `id` is NOT SET, with an empty topic and value: Thrift
   * has no null, and an end is no error. Every message that was read has an `id`, so a client in any
   * language can tell. (HBase's own service answers so as well: a TResult without a row.) After the
   * end a call may get messages again, if the scan has no stop: those that were put since.
   *
   * What is read once counts as read: if the answer gets lost, the next call gets the message after.
   * To be sure open another scanner behind the last that came: at its timestamp and sequenceID + 1,
   * or, if that was 32767, at timestamp + 1 and 0.
   */
  subscriber.TMessage messageScannerGet(1: ScannerID id)
    throws (1: TIllegalArgument illegalArgument, 2: TQueueStateError queueState,
            3: TUnavailable unavailable, 4: TServiceError serviceError,
            5: TScannerNotFound scannerNotFound),

  /**
   * The next messages, as many as there are at once, at most so many (1 or more). An answer is also
   * bounded by its bytes (the process's setting `scanner_bytes_max`, 1 MiB if not set otherwise; one
   * message always fits) and by their number, a thousand, and no call searches for longer than the
   * process's bound on an operation. So fewer may come than there are. Only an EMPTY list is the end,
   * as above.
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
   * Write a message. When this returns it is durable, and every reader of the partition finds it. One
   * with a key goes to the partition of its key (CRC-32 of the key, modulo the number of
   * partitions), one without to any.
   *
   * Of a message that is put its topic (1 to 255 bytes of UTF-8), value, key and headers count. Its
   * `id` and `partitionID` don't: so what was read can be put as it is. A value may be empty, and an
   * empty key is a key: leave out the field for a message without one. Topics, and names of headers,
   * that begin with "hqueue." are the system's own, and refused.
   */
  void putMessage(1: Text queueName, 2: subscriber.TMessage tMessage)
    throws (1: TIllegalArgument illegalArgument, 2: TQueueStateError queueState,
            3: TUnavailable unavailable, 4: TServiceError serviceError),

  /**
   * Write messages as one batch into one partition, in their order: all or none. At least one, at
   * most 65,536 and 8 MiB, with 262,144 headers together; more are refused, and a call that is far
   * larger ends its connection. If they have keys, these must belong to one partition.
   */
  void putMessages(1: Text queueName, 2: list<subscriber.TMessage> tMessages)
    throws (1: TIllegalArgument illegalArgument, 2: TQueueStateError queueState,
            3: TUnavailable unavailable, 4: TServiceError serviceError),

  /** As putMessage, into this partition, whatever key it has. */
  void putMessageWithPid(1: Text queueName, 2: i16 partitionID, 3: subscriber.TMessage tMessage)
    throws (1: TIllegalArgument illegalArgument, 2: TQueueStateError queueState,
            3: TUnavailable unavailable, 4: TServiceError serviceError),

  /** As putMessages, into this partition, whatever keys they have. */
  void putMessagesWithPid(1: Text queueName, 2: i16 partitionID,
                          3: list<subscriber.TMessage> tMessages)
    throws (1: TIllegalArgument illegalArgument, 2: TQueueStateError queueState,
            3: TUnavailable unavailable, 4: TServiceError serviceError),

  /**
   * As putMessages, but with all that can be said of a put, and with an answer. What is added later to
   * either struct is optional.
   */
  TPutAnswer put(1: TPut put)
    throws (1: TIllegalArgument illegalArgument, 2: TQueueStateError queueState,
            3: TUnavailable unavailable, 4: TServiceError serviceError,
            5: TIdempotencyKeyError idempotencyKey),

  /**
   * Where each partition is served now, by its number: as many as the queue has partitions. While
   * HBase moves one, the call waits for that.
   */
  list<TQueueLocation> getQueueLocations(1: Text queueName)
    throws (1: TIllegalArgument illegalArgument, 2: TQueueStateError queueState,
            3: TUnavailable unavailable, 4: TServiceError serviceError)
}

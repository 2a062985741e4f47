"""A queue: puts messages, and opens scanners."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, overload

from hqueue.consume.scan import Scan
from hqueue.consume.scanners import (
    BYTES_MAX,
    CombinedPartitionScanner,
    PartitionScanner,
    QueueScanner,
    Scanner,
    ScannerOptions,
    open_scanner,
)
from hqueue.consume.skipped_batches import SkippedBatches
from hqueue.consume.topic_scanner import TopicScanner
from hqueue.consume.topic_scans import moved_since, topic_scans
from hqueue.dead_letters.dead_letters import DeadLetters
from hqueue.errors import InvalidInputError
from hqueue.format.header import Header
from hqueue.handle import QueueLog
from hqueue.log import Batch, PartitionReader
from hqueue.log.expiry import PartitionExpiry
from hqueue.log.lag import PartitionLag
from hqueue.log.offsets import PartitionOffsets
from hqueue.log.topic_lag import TopicLag
from hqueue.log.verify import PartitionVerification
from hqueue.message import Message
from hqueue.message_id import MessageID
from hqueue.metadata import Coordinate
from hqueue.metadata.managers import LogRange, RangesOf
from hqueue.position import Position
from hqueue.produce.producer import Producer
from hqueue.produce.producer_options import ProducerOptions
from hqueue.push.listener import Listener
from hqueue.push.subscriber import Subscriber, SubscriberOptions
from hqueue.push.subscription import Subscription
from hqueue.runtime.clock import Deadline
from hqueue.settings.attributes import QueueDescription
from hqueue.settings.keyword_options import Unpack, check_options

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Queue"]


class Queue:
    """A queue to put messages into and to read from. Thread-safe, and usable in a forked child.
    Made by `Client.queue`.

    The messages of one partition have a total order, that of their IDs. There is no order between
    partitions. A put is durable when it returns.
    """

    def __init__(
        self,
        log: QueueLog,
        coordinate: Coordinate,
        ranges_of: RangesOf,
    ) -> None:
        self._log = log
        self._coordinate = coordinate
        self._ranges_of = ranges_of

    def __enter__(self) -> Queue:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Queue({self.name!r}, partitions={self.partitions})"

    @property
    def name(self) -> str:
        """The queue's name."""
        return self._log.name

    @property
    def partitions(self) -> int:
        """The number of partitions. They are numbered from 0."""
        return self._log.partitions

    def close(self) -> None:
        """Refuse further puts and scans through this object. The client's connections stay."""
        self._log.close()

    def describe(self) -> QueueDescription:
        """The attributes of the queue, as HBase has them now."""
        return self._log.describe()

    def deadline(self) -> Deadline:
        """The deadline of one operation that begins now."""
        return self._log.deadline()

    @overload
    def put(
        self,
        messages: Message,
        *,
        partition: int | None = None,
        key: str | bytes | None = None,
        idempotency_key: str | bytes | None = None,
        since: Position | None = None,
    ) -> MessageID: ...
    @overload
    def put(
        self,
        messages: Sequence[Message] | Iterator[Message] | pa.RecordBatch | pa.Table,
        *,
        partition: int | None = None,
        key: str | bytes | None = None,
        idempotency_key: str | bytes | None = None,
        since: Position | None = None,
    ) -> Sequence[MessageID]: ...
    def put(
        self,
        messages: Message | Sequence[Message] | Iterator[Message] | pa.RecordBatch | pa.Table,
        *,
        partition: int | None = None,
        key: str | bytes | None = None,
        idempotency_key: str | bytes | None = None,
        since: Position | None = None,
    ) -> MessageID | Sequence[MessageID]:
        """Write one message, or several as one batch: all or none of them, in their order.

        The batch is written exactly once as long as this process lives: a put whose answer was lost
        is looked up in the log, and repeated only if it is not there. With an idempotency key it is
        written exactly once for good: a put with the same idempotency key, in any process, finds
        the batch of the first one and returns its IDs.

        Args:
            messages: at most 65,536 messages and 8 MiB, also from a generator; for more use a
                `Producer`. `Messages`, and a `pyarrow.RecordBatch` or `pyarrow.Table` with the
                columns ``topic`` and ``value`` and optionally ``key`` and ``headers``, are written
                as a whole, without a Python object for each message.
            partition: the partition. If None, the messages' own keys choose it; without keys any
                partition is taken.
            key: chooses the partition: CRC-32 of its UTF-8 modulo the number of partitions. Puts
                with the same key go to the same partition. This key is not stored; `Message.key` is
                stored, and chooses the partition in the same way.
            idempotency_key: identifies this batch in its partition, so `partition` or `key` must be
                given. Always use the same idempotency key for the same messages.
            since: a position before the first put with this idempotency key: a MessageID of the
                partition, an aware datetime, milliseconds, or the result of `claim_epoch`. The
                headers of the log are searched from there on, once in this process. If None, all
                headers are searched; they are kept for an hour longer than the messages.

        Returns:
            The ID of the one message, or the IDs in the order of the messages.

        Raises:
            InvalidInputError: an argument is out of range, or no partition was chosen and the
                messages' keys belong to several. Nothing was sent.
            MessageTooLargeError: the batch is too large. Nothing was sent.
            StoreUnavailableError: HBase was unavailable for ``operation_timeout_ms``. The error's
                outcome says whether the put is not applied or unknown.
            QueueStateError: the queue is disabled or was deleted.
            ClockSkewError: this machine's clock is off by more than the limit. Nothing was sent.
            IdempotencyKeyReusedError: the batch with this idempotency key has other messages.
            IdempotencyKeyTooOldError: some of the log's headers since `since` were deleted already.
        """
        return self._log.appender.put(
            messages, partition=partition, key=key, idempotency_key=idempotency_key, since=since
        )

    def choose_partition(self, partition: int | None, key: str | bytes | None) -> int | None:
        """The partition that `put` would choose for these arguments; None if it may take any.

        Raises:
            InvalidInputError: both arguments are given, or there is no such partition.
        """
        return self._log.appender.choose_partition(partition, key)

    def claim_epoch(self, producer: str, epoch: int = 0) -> MessageID:
        """Claim an epoch of a producer, and return the position at which that epoch was claimed
        first.

        Give that position as `since` to all puts of the epoch. It is kept with the queue, so a
        program that repeats its puts after a crash needs no memory of its own: every process that
        claims the same epoch gets the same position. A later epoch fences the earlier ones: a late
        process that claims an earlier epoch is refused.

        Args:
            producer: the producer's name, 1 to 200 characters.
            epoch: the epoch. A producer that works in steps increases it with each step.

        Raises:
            InvalidInputError: an argument is out of range.
            FencedError: a later epoch was claimed.
            ClockSkewError: this machine's clock is off by more than the limit.
            StoreUnavailableError: HBase was unavailable for ``operation_timeout_ms``.
        """
        return self._log.appender.claim_epoch(producer, epoch)

    def current_epoch(self, producer: str) -> tuple[int, MessageID] | None:
        """The latest epoch of a producer, and the position at which it was claimed; None if it has
        none.
        """
        return self._log.appender.current_epoch(producer)

    def producer(self, **options: Unpack[ProducerOptions]) -> Producer:
        """Open a `Producer` for this queue.

        Args:
            options: see `ProducerOptions`.

        Raises:
            InvalidInputError: an option is unknown or out of range.
        """
        check_options("Producer", options, ProducerOptions.__annotations__)
        return Producer(self._log.appender, **options)

    def subscriber(
        self,
        subscription: Subscription,
        listeners: Sequence[Listener] | Listener,
        **options: Unpack[SubscriberOptions],
    ) -> Subscriber:
        """Make a `Subscriber` of this queue, which the caller starts.

        Args:
            subscription: the subscriber's name, partitions and options of delivery.
            listeners: the listeners that get the messages. They are called in turn, one for each
                delivery.
            options: see `SubscriberOptions`.

        Raises:
            InvalidInputError: an option is unknown, or an argument is out of range.
        """
        check_options("Subscriber", options, SubscriberOptions.__annotations__)
        return Subscriber(
            self._log, subscription, listeners, coordinate=self._coordinate, **options
        )

    @property
    def dead_letters(self) -> DeadLetters:
        """The messages that subscribers of this queue failed to process."""
        return DeadLetters(self._log)

    @property
    def skipped_batches(self) -> SkippedBatches:
        """The unreadable batches that readers skip: none unless an operator added them."""
        return SkippedBatches(self._log.reader.skipping)

    def scan(
        self,
        *,
        partition: int | None = None,
        partitions: Iterable[int] | None = None,
        start: Position | None = None,
        stop: Position | None = None,
        topics: Iterable[str] = (),
        **options: Unpack[ScannerOptions],
    ) -> Scanner:
        """Open a scanner over one partition, several, or all. Iterate over it, and close it.

        Args:
            partition: the partition; or
            partitions: several partitions; all if both are None.
            start: where to begin: a `Position`. The oldest message if None.
            stop: where to end: the first position that is not read any more. If None, the end of
                the log.
            topics: the topics to read; all if empty.
            options: see `ScannerOptions`.

        Raises:
            InvalidInputError: an option is unknown, or an argument is out of range.
        """
        check_options("Scanner", options, ScannerOptions.__annotations__)
        wanted, reader = Scan(start, stop, topics), self._log.reader
        if partitions is not None:
            if partition is not None:
                raise InvalidInputError("give partition or partitions, not both")
            chosen = reader.chosen(partitions)
            return Scanner(reader, dict.fromkeys(chosen, wanted), **options)
        return open_scanner(reader, partition, wanted, **options)

    def scan_topic(
        self,
        topic: str,
        *,
        start: Position | None = None,
        stop: Position | None = None,
        bytes_max: int = BYTES_MAX,
        whole: bool = False,
    ) -> TopicScanner:
        """Open a scanner over a topic that hubs own: it reads all ranges of the topic, in the order
        of IDs. Iterate over it, and close it.

        The topic's ranges are read once, in this call. With metadata in ZooKeeper, a change that
        another process has just made may be missing. Messages that were put into the queue under
        the topic's name, and not through its hubs, do not belong to the topic.

        Args:
            topic: the topic.
            start: as `scan` takes it.
            stop: as `scan` takes it.
            bytes_max: as in `ScannerOptions`.
            whole: says that all messages of the topic below `stop` were published before this call.
                If the log seems to end earlier, it is read again, for at most
                ``operation_timeout_ms``.

        Raises:
            InvalidInputError: an argument is out of range.
            NoTopicPersistenceInfoError: no hub ever owned this topic. Read it with `scan`.
            StoreUnavailableError: the metadata was unavailable for ``operation_timeout_ms``.
        """
        reader = self._log.reader
        scans = reader.do_long(topic_scans(topic, self._ranges_of, start, stop, whole=whole))
        return TopicScanner(reader, scans, bytes_max=bytes_max, whole=whole)

    def queue_scanner(
        self, scan: Scan | None = None, **options: Unpack[ScannerOptions]
    ) -> QueueScanner:
        """Open a scanner over all partitions. Its options are those of `scan`."""
        check_options("QueueScanner", options, ScannerOptions.__annotations__)
        return QueueScanner(self._log.reader, scan or Scan(), **options)

    def partition_scanner(
        self, partition: int, scan: Scan | None = None, **options: Unpack[ScannerOptions]
    ) -> PartitionScanner:
        """Open a scanner over one partition. Its options are those of `scan`."""
        check_options("PartitionScanner", options, ScannerOptions.__annotations__)
        return PartitionScanner(self._log.reader, partition, scan or Scan(), **options)

    def combined_partition_scanner(
        self, scans: Mapping[int, Scan], **options: Unpack[ScannerOptions]
    ) -> CombinedPartitionScanner:
        """Open a scanner over some partitions, each with a `Scan` of its own. Its options are those
        of `scan`.
        """
        check_options("CombinedPartitionScanner", options, ScannerOptions.__annotations__)
        return CombinedPartitionScanner(self._log.reader, scans, **options)

    def reader(self, partition: int, scan: Scan, bytes_max: int) -> PartitionReader:
        """Open a reader of one partition. Scanners are built on it.

        Args:
            partition: the partition.
            scan: the part of it to read.
            bytes_max: about how many bytes of bodies one request fetches; at least one batch.
        """
        return self._log.reader.open(partition, scan, bytes_max)

    def poll(
        self,
        readers: Sequence[PartitionReader],
        bytes_max: int,
        *,
        rows_max: int = 1,
        deadline: Callable[[], Deadline] | None = None,
    ) -> Iterator[list[Batch]]:
        """Fetch new batches, once, for readers that are at the ends of their partitions.

        Args:
            readers: readers of different partitions, each made by `reader` of this queue.
            bytes_max: about how many bytes of bodies one request fetches; at least one batch.
            rows_max: how many batches to fetch for each reader. With 1, up to 256 readers share one
                request if nothing new came; with more, each reader takes two requests. A reader
                that has more to read afterwards is not `at_tail`.
            deadline: makes the deadline of each request with its retries; that of an operation if
                None.

        Raises:
            As `Scanner.next`. Batches that were returned before the error stay valid.
        """
        return self._log.reader.poll(readers, bytes_max, rows_max=rows_max, deadline=deadline)

    def offsets(self, partitions: Sequence[int] | None = None) -> list[PartitionOffsets]:
        """The beginning and the end of each partition now. Sends two small requests for each
        partition.

        The difference of two ordinals is a number of messages. `lag` says how far a reader
        between the two is behind the end.

        Args:
            partitions: the partitions; all if None.
        """
        return self._log.reader.offsets(partitions)

    def appended_since(self, offsets: Sequence[PartitionOffsets]) -> list[int]:
        """The partitions that got a batch since these offsets were taken.

        Sends one small request for up to 256 of them, so it can be called often. It does not notice
        batches that came after a truncation: take the offsets again from time to time.
        """
        return self._log.reader.appended_since(offsets)

    def lag(self, positions: Mapping[int, MessageID]) -> dict[int, PartitionLag]:
        """The lag of a reader that continues at these IDs, by partition.

        Sends two or three small requests for each partition, and reads no message. Expired messages
        count as long as their headers are kept.

        Args:
            positions: for each partition, the first ID that was not read yet.

        Raises:
            InvalidInputError: there is no such partition.
            StoreUnavailableError: HBase was unavailable for ``operation_timeout_ms``.
            CorruptLogError: a header can't be read.
        """
        return self._log.reader.lag(positions)

    def topic_lags(self, topic: str, positions: Mapping[str, MessageID]) -> dict[str, TopicLag]:
        """The lag of readers of a topic that continue at these IDs, by name: for example of the
        topic's subscriptions, each at the ID after its last consumed message.

        No message is read, and the work is bounded however far behind they are. Up to some
        thousands of headers are read, from the topic's end backwards. Messages before those are
        counted by two small requests for each range of the topic and each position; that count
        includes messages of other topics, and the lag is not `exact` then.

        Args:
            topic: a topic that hubs own.
            positions: for each reader, under any name, the first ID that it has not read yet.

        Raises:
            InvalidInputError: an argument is out of range.
            NoTopicPersistenceInfoError: no hub ever owned this topic.
            StoreUnavailableError: HBase or the metadata was unavailable for
                ``operation_timeout_ms``.
            CorruptLogError: a header can't be read.
        """
        return self._log.reader.topic_lags(topic, self._ranges_of, positions)

    def count_before(self, partition: int, message_id: MessageID) -> int:
        """The number of messages that a partition ever had before an ID, expired ones included.

        Sends one or two small requests.
        """
        return self._log.reader.count_before(partition, message_id)

    def id_at(self, partition: int, ordinal: int) -> MessageID:
        """An ID before which a partition ever had `ordinal` messages: the inverse of
        `count_before`.

        Use it to cut a part of the log into pieces with equal numbers of messages. If the
        headers of that part were deleted, the result is the ID of the oldest message that is
        known; if the partition never had this many messages, the end of the log. Sends some tens
        of small requests at most.
        """
        return self._log.reader.id_at(partition, ordinal)

    def expiry(
        self, partition: int, guess: MessageID, *, exact_ms: int = 60_000
    ) -> PartitionExpiry:
        """The ID up to which a partition's messages have expired, judged by the messages that are
        there and not by a clock.

        Sends a few small requests; a few tens at most if `guess` is far off. It reads the
        smallest topic of each batch that it examines.

        Args:
            partition: the partition.
            guess: an ID near the oldest message that is there, for example this machine's time less
                the TTL. It saves requests, and does not change the result.
            exact_ms: how far apart the timestamps of the two IDs in the result may be.
        """
        return self._log.reader.expiry(partition, guess, exact_ms)

    def headers(
        self, partition: int, start: Position = 0, stop: Position | None = None
    ) -> Iterator[Header]:
        """The headers of the batches that have messages in ``[start, stop)``, ascending.

        They say when each batch was written, how many messages of each topic it has, and their
        sizes. No message is read: HBase keeps headers apart, and one request fetches 1,000.
        """
        return self._log.reader.headers(partition, start, stop)

    def topics(self, start: Position = 0, *, topics_max: int = 1_000) -> list[str]:
        """The topics of the messages that were written since a time, sorted, without the system's
        own.

        It reads the headers of the log, 1,000 with each request, and no message. On a long log,
        begin at a recent moment.

        Args:
            start: where to begin.
            topics_max: stop when this many topics are found, 1 to 1,000,000.

        Raises:
            InvalidInputError: an argument is out of range.
        """
        return self._log.reader.topics(start, topics_max)

    def verify(
        self,
        partitions: Sequence[int] | None = None,
        *,
        ranges: Mapping[str, Sequence[LogRange]] | None = None,
    ) -> Iterator[PartitionVerification]:
        """Verify the log from its first batch to its last: links, ordinals, control records and
        every checksum.

        A fault in one place does not stop the verification of the rest. The result of each
        partition is yielded several times while it grows; the last one of a partition is complete.

        The region server's clock decides whether bodies may have expired. It is measured by writing
        a small row; for a user who may not write, this machine's clock decides.

        Args:
            partitions: the partitions; all if None.
            ranges: topics that hubs own, and their ranges as `TopicMetadata` gives them, to compare
                with the log. Each closed range must end at its control record, IDs and epochs must
                grow from range to range, and no message may lie after the record that ended its
                owner's range. The ranges of a topic are read again before a fault of that topic is
                reported.

        Raises:
            StoreUnavailableError: HBase or the metadata was unavailable for
                ``operation_timeout_ms``.
        """
        return self._log.reader.verify(
            partitions,
            now_ms=self._log.appender.store_clock().now_ms,
            ranges=ranges,
            moved=moved_since(self._ranges_of, ranges),
        )

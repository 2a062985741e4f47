"""A queue: putting messages in, and opening scanners."""

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
from hqueue.consume.topic_lags import topic_lags
from hqueue.consume.topic_ranges import scans_of
from hqueue.consume.topic_scanner import TopicScanner
from hqueue.errors import InvalidInputError, NoTopicPersistenceInfoError
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
from hqueue.metadata import Coordination
from hqueue.metadata.managers import LogRange
from hqueue.position import Position
from hqueue.produce.producer import Producer
from hqueue.produce.producer_options import ProducerOptions
from hqueue.push.dead_letters import DeadLetters
from hqueue.push.listener import Listener
from hqueue.push.subscriber import Subscriber, SubscriberOptions
from hqueue.push.subscription import Subscription
from hqueue.runtime.clock import Deadline
from hqueue.settings.attributes import QueueDescription
from hqueue.settings.kinds import check_flag
from hqueue.settings.numbers import check_whole
from hqueue.settings.options import Unpack, check_options
from hqueue.settings.reserved import is_reserved

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Queue"]


class Queue:
    """A queue. Thread-safe, and usable in a forked child. Made by `Client.queue`.

    Messages of one partition have a total order, that of their IDs; between partitions there is
    none. A put is durable when it returns.
    """

    def __init__(
        self,
        log: QueueLog,
        coordinate: Callable[[], Coordination],
        ranges_of: Callable[[str], Sequence[LogRange]],
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
        """How many partitions it has: they are 0 to one less."""
        return self._log.partitions

    def close(self) -> None:
        """Refuse further puts and scans through this object. The client's connections stay."""
        self._log.close()

    def describe(self) -> QueueDescription:
        """What HBase says of the queue now."""
        return self._log.describe()

    def deadline(self) -> Deadline:
        """The bound on one operation, from now."""
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
        """Write one message, or a sequence of them as one batch: all or none, in their order.

        Exactly once for as long as this process lives: a put whose answer was lost is looked up
        in the log and repeated only if it is not there. With an idempotency key exactly once for
        good: a put with the same idempotency key finds the batch of the first one, in whatever
        process, and returns its IDs.

        Args:
            messages: at most 65,536, and 8 MiB, also from a generator; for more use a `Producer`.
                `Messages`, and a `pyarrow.RecordBatch` or `pyarrow.Table` with the columns
                ``topic`` and ``value``, and if it has them ``key`` and ``headers``, are written
                without touching their messages one by one.
            partition: the partition. If None, the one of the messages' own keys; any if they have
                none.
            key: puts with the same key go to the same partition, CRC-32 of its UTF-8 modulo the
                number of partitions. It is not stored: that is `Message.key`, which chooses alike.
            idempotency_key: what this batch is known by in its partition, which must be given, or a
                key. The same one stands for the same messages.
            since: a moment before the first put with it: a MessageID of the partition, an
                aware datetime, milliseconds, or what `claim_epoch` returned. The headers of the log
                are searched from there on, in this process only once. All that are kept if None,
                which is as long as the messages are, and an hour.

        Returns:
            The ID of the one message, or the IDs in the order of the messages.

        Raises:
            InvalidInputError: an argument is out of range, or no partition was chosen and the
                messages' keys belong to several. Nothing was sent.
            MessageTooLargeError: the batch is too large. Nothing was sent.
            StoreUnavailableError: HBase stayed away for ``operation_timeout_ms``. Its outcome
                says whether the put is not applied or unknown.
            QueueStateError: the queue is disabled or is gone.
            ClockSkewError: this machine's clock is off. Nothing was sent.
            IdempotencyKeyReusedError: the batch with this idempotency key has other messages.
            IdempotencyKeyTooOldError: the log is not kept back to `since`.
        """
        return self._log.appender.put(
            messages, partition=partition, key=key, idempotency_key=idempotency_key, since=since
        )

    def choose_partition(self, partition: int | None, key: str | bytes | None) -> int | None:
        """The partition that these arguments of `put` mean; None for any.

        Raises:
            InvalidInputError: both are given, or there is no such partition.
        """
        return self._log.appender.choose_partition(partition, key)

    def claim_epoch(self, producer: str, epoch: int = 0) -> MessageID:
        """Claim an epoch of a producer; returns when that epoch was claimed first.

        That moment is the `since` of all puts of the epoch. It is kept with the queue, so a
        program that puts again what it put before its crash needs no memory of its own: whichever
        process claims the same epoch gets the same moment. A later epoch fences the ones before:
        a late process that claims one of those is refused.

        Args:
            producer: the producer's name, 1 to 200 characters.
            epoch: the epoch, which a producer that works in turns counts up.

        Raises:
            InvalidInputError: an argument is out of range.
            FencedError: a later epoch was claimed.
            ClockSkewError: this machine's clock is off.
            StoreUnavailableError: HBase stayed away for ``operation_timeout_ms``.
        """
        return self._log.appender.claim_epoch(producer, epoch)

    def current_epoch(self, producer: str) -> tuple[int, MessageID] | None:
        """The latest epoch of a producer, and when it was claimed; None if there is none."""
        return self._log.appender.current_epoch(producer)

    def producer(self, **options: Unpack[ProducerOptions]) -> Producer:
        """A `Producer` for this queue.

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
        """A `Subscriber` of this queue, to be started.

        Args:
            subscription: what is wanted.
            listeners: they get the messages: called in turn for each delivery.
            options: see `SubscriberOptions`.

        Raises:
            InvalidInputError: an option is unknown, or an argument out of range.
        """
        check_options("Subscriber", options, SubscriberOptions.__annotations__)
        return Subscriber(
            self._log, subscription, listeners, coordinate=self._coordinate, **options
        )

    @property
    def dead_letters(self) -> DeadLetters:
        """What subscribers of this queue did not take."""
        return DeadLetters(self._log)

    @property
    def skipped_batches(self) -> SkippedBatches:
        """Batches that readers pass by where they can't read them: none, unless it was decided."""
        return self._log.reader.skipped

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
        """Read a partition, some, or all of them: a scanner, to be iterated over and closed.

        Args:
            partition: the partition; or
            partitions: several; all if both are None.
            start: where to begin: a `Position`. The oldest message if None.
            stop: the first that is not wanted any more. If None, the end of the log.
            topics: the topics wanted; all if empty.
            options: see `ScannerOptions`.

        Raises:
            InvalidInputError: an option is unknown, or an argument out of range.
        """
        check_options("Scanner", options, ScannerOptions.__annotations__)
        wanted, reader = Scan(start, stop, topics), self._log.reader
        if partitions is not None:
            if partition is not None:
                raise InvalidInputError("give a partition or several, not both")
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
        """Read a topic that hubs own over all its ranges, in the order of IDs: a scanner, to be
        iterated over and closed. `start` and `stop` are as `scan` says, `bytes_max` as
        `ScannerOptions`. Where the topic lies is read once, now; on ZooKeeper what another process
        did a moment before may not be seen yet. What was put into the queue under the topic's name,
        past its hubs, is nothing of the topic. `whole` says that all of the topic that lies below
        `stop` was published before: then a log that seems to end earlier is read again, for
        ``operation_timeout_ms``.

        Raises:
            InvalidInputError: an argument is out of range.
            NoTopicPersistenceInfoError: no hub ever owned this topic: `scan` reads it.
            StoreUnavailableError: the metadata stayed away for ``operation_timeout_ms``.
        """
        check_flag(whole, "whole")
        if whole and stop is None:
            raise InvalidInputError("a topic that is read whole needs a stop", topic=topic)
        scans_of(topic, (), start, stop)  # Refuses bad input before anything is asked.
        scans = scans_of(topic, self._ranges_of(topic), start, stop)
        return TopicScanner(self._log.reader, scans, bytes_max=bytes_max, whole=whole)

    def queue_scanner(
        self, scan: Scan | None = None, **options: Unpack[ScannerOptions]
    ) -> QueueScanner:
        """A scanner over all partitions; its options are those of `scan`."""
        check_options("QueueScanner", options, ScannerOptions.__annotations__)
        return QueueScanner(self._log.reader, scan or Scan(), **options)

    def partition_scanner(
        self, partition: int, scan: Scan | None = None, **options: Unpack[ScannerOptions]
    ) -> PartitionScanner:
        """A scanner over one partition; its options are those of `scan`."""
        check_options("PartitionScanner", options, ScannerOptions.__annotations__)
        return PartitionScanner(self._log.reader, partition, scan or Scan(), **options)

    def combined_partition_scanner(
        self, scans: Mapping[int, Scan], **options: Unpack[ScannerOptions]
    ) -> CombinedPartitionScanner:
        """A scanner over some partitions, each with a `Scan` of its own; its options are those of
        `scan`.
        """
        check_options("CombinedPartitionScanner", options, ScannerOptions.__annotations__)
        return CombinedPartitionScanner(self._log.reader, scans, **options)

    def reader(self, partition: int, scan: Scan, bytes_max: int) -> PartitionReader:
        """The cursor that scanners read one partition with.

        Args:
            partition: the partition.
            scan: what is wanted of it.
            bytes_max: the bodies asked for in one request, about; at least one batch.
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
        """Ask once for what comes next for readers that stand at their partitions' ends.

        Args:
            readers: of different partitions; each made by `reader` of this queue.
            bytes_max: the bodies asked for in one request, about; at least one batch.
            rows_max: batches of each. One each is one request for up to 256 readers, if nothing
                came; more of them are two requests a reader. A reader that has more to read
                afterwards is not `at_tail`.
            deadline: the bound on each request with its repetitions; an operation's if None.

        Raises:
            As `Scanner.next`. What was given before stays given.
        """
        return self._log.reader.poll(readers, bytes_max, rows_max=rows_max, deadline=deadline)

    def offsets(self, partitions: Sequence[int] | None = None) -> list[PartitionOffsets]:
        """Where each partition begins and ends now. Two small requests a partition.

        The difference of two ordinals is a number of messages. How far a reader is behind that is
        somewhere between the two: `lag`.

        Args:
            partitions: which; all if None.
        """
        return self._log.reader.offsets(partitions)

    def appended_since(self, offsets: Sequence[PartitionOffsets]) -> list[int]:
        """The partitions that got a batch since these offsets were taken.

        One small request for up to 256 of them, so it can be asked often. What came after a
        truncation it does not find: for that the offsets have to be taken again now and then.
        """
        return self._log.reader.appended_since(offsets)

    def lag(self, positions: Mapping[int, MessageID]) -> dict[int, PartitionLag]:
        """How far behind a reader is that goes on from these IDs, by partition.

        Two or three small requests a partition, and no message is read. Messages that have
        expired count as long as their headers are kept.

        Args:
            positions: for each partition the first ID that was not read yet.

        Raises:
            InvalidInputError: there is no such partition.
            StoreUnavailableError: HBase stayed away for ``operation_timeout_ms``.
            CorruptLogError: a header can't be read.
        """
        return self._log.reader.lag(positions)

    def topic_lags(self, topic: str, positions: Mapping[str, MessageID]) -> dict[str, TopicLag]:
        """How far behind readers of a topic are that go on from these IDs, by name: as the topic's
        subscriptions from behind what they have consumed.

        No message is read, and the work is bounded however far they are behind: up to some
        thousands of headers are looked at, from the topic's end back; what lies before those is
        counted by two small requests for each of the topic's ranges and each position, with the
        messages of other topics, and is not `exact` then.

        Args:
            topic: a topic that hubs own.
            positions: by any name the first ID that was not read yet.

        Raises:
            InvalidInputError: an argument is out of range.
            NoTopicPersistenceInfoError: no hub ever owned this topic.
            StoreUnavailableError: HBase or the metadata stayed away for ``operation_timeout_ms``.
            CorruptLogError: a header can't be read.
        """
        return topic_lags(self._log.reader, topic, self._ranges_of, positions)

    def count_before(self, partition: int, message_id: MessageID) -> int:
        """How many messages a partition ever had before an ID, expired ones too.

        One small request, or two.
        """
        return self._log.reader.count_before(partition, message_id)

    def id_at(self, partition: int, ordinal: int) -> MessageID:
        """An ID that a partition ever had so many messages before: `count_before`, the other way.

        So a part of the log is cut into pieces of equal numbers of messages. Where those
        messages were collected it is the ID of the oldest that is known, and where there were
        never so many, the end of the log. Some tens of small requests at most.
        """
        return self._log.reader.id_at(partition, ordinal)

    def expiry(
        self, partition: int, guess: MessageID, *, exact_ms: int = 60_000
    ) -> PartitionExpiry:
        """Up to where a partition's messages have expired: by what is there, and no clock.

        Some small requests; with a guess that is wrong some tens at most. The smallest topic of the
        batches that are looked at is read.

        Args:
            partition: the partition.
            guess: an ID near the oldest message that is there, as what is older than the TTL by
                this machine's clock. It saves requests, and decides nothing.
            exact_ms: how far apart the two IDs that are returned may be, in the time of IDs.
        """
        return self._log.reader.expiry(partition, guess, exact_ms)

    def headers(
        self, partition: int, start: Position = 0, stop: Position | None = None
    ) -> Iterator[Header]:
        """The headers of the batches that have messages in ``[start, stop)``, ascending.

        They say when how many messages of each topic were written, and their sizes. No message is
        read for it: HBase keeps headers apart, and 1,000 come with a request.
        """
        return self._log.reader.headers(partition, start, stop)

    def topics(self, start: Position = 0, *, topics_max: int = 1_000) -> list[str]:
        """The topics that messages were written under from a moment on, sorted; those that are the
        system's own are left out.

        It reads the headers of the log, 1,000 with a request, and no message: on a long log begin
        with a moment not long ago.

        Args:
            start: where to begin.
            topics_max: end when so many are found, 1 to 1,000,000.

        Raises:
            InvalidInputError: an argument is out of range.
        """
        check_whole(topics_max, 1, 1_000_000, option="topics_max")
        found: set[str] = set()
        for partition in range(self.partitions):
            for header in self.headers(partition, start):
                found.update(each.topic for each in header.topics if not is_reserved(each.topic))
                if len(found) >= topics_max:
                    return sorted(found)[:topics_max]
        return sorted(found)

    def verify(
        self,
        partitions: Sequence[int] | None = None,
        *,
        ranges: Mapping[str, Sequence[LogRange]] | None = None,
    ) -> Iterator[PartitionVerification]:
        """Walk the log from its first batch to its last: links, ordinals, control records and every
        checksum.

        A fault in one place does not stop the verification of the rest. Yields the result of each
        partition, several times while it grows; the last one of a partition is whole.

        Whether bodies may have expired is judged by the region server's clock, which is measured by
        a small row; by this machine's clock for a user who may not write.

        Args:
            partitions: which; all if None.
            ranges: topics that hubs own, and their ranges as `TopicMetadata` gives them: they are
                compared with the log. Each closed one ends at its control record, IDs and epochs
                grow over them, and no message lies behind the record that ended its owner's range.
                Of a topic that something is said of, they are read again before it is said.

        Raises:
            StoreUnavailableError: HBase or the metadata stayed away for ``operation_timeout_ms``.
        """
        known = ranges or {}
        return self._log.reader.verify(
            partitions,
            now_ms=self._log.appender.store_clock().now_ms,
            ranges=ranges,
            moved=lambda topic: self._moved(topic, known[topic]),
        )

    def _moved(self, topic: str, ranges: Sequence[LogRange]) -> bool:
        """Whether a topic lies elsewhere by now."""
        try:
            return list(self._ranges_of(topic)) != list(ranges)
        except NoTopicPersistenceInfoError:
            return True

"""A queue: putting messages in, and opening scanners."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast, overload

from hqueue.consume.polling import poll
from hqueue.consume.queue_log import QueueLog
from hqueue.consume.scanners import CombinedPartitionScanner, PartitionScanner, QueueScanner, Scan
from hqueue.errors import InvalidInputError
from hqueue.format import CODECS, Bodies, compressed, encode_bodies, encode_values
from hqueue.log import Appended, Batch, PartitionReader, PartitionWriter
from hqueue.log.lag import PartitionLag
from hqueue.log.offsets import PartitionOffsets
from hqueue.log.ports import ReadPort, WritePort
from hqueue.log.skew import SkewGuard
from hqueue.message import Message, MessageID, MessageIDs, Moment, partition_of_key
from hqueue.metadata import Coordination
from hqueue.produce.header_reaper import HeaderReaper
from hqueue.produce.idempotency import ProducerEpochs, Search, search_for
from hqueue.produce.producer import Producer
from hqueue.produce.writer_pool import WriterPool
from hqueue.push import Listener, Subscriber, Subscription
from hqueue.runtime.clock import SYSTEM_CLOCK, Clock, Deadline
from hqueue.runtime.fork import register
from hqueue.settings.attributes import QueueDescription
from hqueue.settings.connection import Settings

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["PartitionLag", "PartitionOffsets", "Queue"]


class Queue(QueueLog):
    """A queue. Thread-safe, and usable in a forked child. Made by `Client.queue`.

    Messages of one partition have a total order, that of their IDs; between partitions there is
    none. A put is durable when it returns.
    """

    def __init__(
        self,
        description: QueueDescription,
        describe: Callable[[], QueueDescription],
        *,
        appends: WritePort,
        reads: ReadPort,
        coordinate: Callable[[], Coordination],
        on_append: Callable[[int, Appended, Bodies], None],
        settings: Settings,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        super().__init__(description, describe, reads=reads, settings=settings, clock=clock)
        self._appends = appends
        self._coordinate = coordinate
        self._on_append = on_append
        self._skew = SkewGuard(appends, settings.clock_skew_ms_max, clock)
        self._epochs = ProducerEpochs(appends, clock)
        self.after_fork_in_child()
        register(self)

    def after_fork_in_child(self) -> None:
        self._writers = WriterPool(self.partitions, self._open_writer)
        self._reaper = HeaderReaper(lambda: self._describe().ttl_seconds, self._clock)
        self._skew.after_fork_in_child()

    def __enter__(self) -> Queue:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Queue({self.name!r}, partitions={self.partitions})"

    @overload
    def put(
        self,
        messages: Message,
        *,
        partition: int | None = None,
        key: str | bytes | None = None,
        idempotency_key: str | bytes | None = None,
        since: Moment | None = None,
    ) -> MessageID: ...
    @overload
    def put(
        self,
        messages: Sequence[Message] | pa.RecordBatch,
        *,
        partition: int | None = None,
        key: str | bytes | None = None,
        idempotency_key: str | bytes | None = None,
        since: Moment | None = None,
    ) -> Sequence[MessageID]: ...
    def put(
        self,
        messages: Message | Sequence[Message] | pa.RecordBatch,
        *,
        partition: int | None = None,
        key: str | bytes | None = None,
        idempotency_key: str | bytes | None = None,
        since: Moment | None = None,
    ) -> MessageID | Sequence[MessageID]:
        """Write one message, or a sequence of them as one batch: all or none, in their order.

        Exactly once for as long as this process lives: a put whose answer was lost is looked up
        in the log and repeated only if it is not there. With an idempotency key exactly once for
        good: a put with the same idempotency key finds the batch of the first one, in whatever
            process, and returns its
        IDs.

        Args:
            messages: at most 65,536, and 8 MiB; for more use a `Producer`. `Messages`, and a
                `pyarrow.RecordBatch` with the columns ``topic`` and ``value``, are written without
                touching their messages one by one.
            partition: the partition; any if None.
            key: puts with the same key go to the same partition, CRC-32 of its UTF-8 modulo the
                number of partitions.
            idempotency_key: what this batch is known by in its partition, which must be given, or a
                key. The same one stands for the same messages.
            since: a moment before the first put with it: a MessageID of the partition, an
                aware datetime, milliseconds, or what `claim_epoch` returned. The headers of the log
                are searched from there on, in this process only once. All that are kept if None,
                which is as long as the messages are, and an hour.

        Returns:
            The ID of the one message, or the IDs in the order of the messages.

        Raises:
            InvalidInputError: an argument is out of range. Nothing was sent.
            MessageTooLargeError: the batch is too large. Nothing was sent.
            StoreUnavailableError: HBase stayed away for ``operation_timeout_ms``. Its outcome
                says whether the put is not applied or unknown.
            QueueStateError: the queue is disabled or is gone.
            ClockSkewError: this machine's clock is off. Nothing was sent.
            IdempotencyKeyReusedError: the batch with this idempotency key has other messages.
            IdempotencyKeyTooOldError: the log is not kept back to `since`.
        """
        partition = self.choose_partition(partition, key)
        search = None
        if idempotency_key is not None or since is not None:
            skew_ms_max = self._settings.clock_skew_ms_max
            search = search_for(idempotency_key, since, skew_ms_max, anywhere=partition is None)
        if isinstance(messages, Message):
            bodies = encode_values(messages[0], (messages[1],))
            appended = self.append(bodies, partition, search)
            return int.__new__(MessageID, appended.base)
        appended = self.append(self.encode(messages), partition, search)
        return MessageIDs(appended.base, appended.count)

    def encode(self, messages: Sequence[Message] | pa.RecordBatch) -> Bodies:
        """A batch of these messages, as `append` takes it.

        Raises:
            InvalidInputError, MessageTooLargeError: as `put`.
        """
        if isinstance(messages, Sequence) and not isinstance(messages, (str, bytes)):
            return encode_bodies(cast("Sequence[Message]", messages))
        if _is_record_batch(messages):
            return _encode_record_batch(messages)
        raise InvalidInputError(
            "what is put is a Message, a sequence of them, or a pyarrow.RecordBatch"
        )

    def choose_partition(self, partition: int | None, key: str | bytes | None) -> int | None:
        """The partition that these arguments of `put` mean; None for any."""
        if key is not None:
            if partition is not None:
                raise InvalidInputError("give a partition or a key, not both")
            if isinstance(key, str):
                key = key.encode()
            if not isinstance(key, bytes):
                raise InvalidInputError("a key is str or bytes", type=type(key).__name__)
            return partition_of_key(key, self.partitions)
        if partition is not None:
            self._check_partition(partition)
        return partition

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
        self._check_open()
        deadline = self.deadline()
        self._skew.check(deadline)
        return self._epochs.claim(producer, epoch, deadline)

    def current_epoch(self, producer: str) -> tuple[int, MessageID] | None:
        """The latest epoch of a producer, and when it was claimed; None if there is none."""
        self._check_open()
        return self._epochs.current(producer, self.deadline())

    def append(
        self, bodies: Bodies, partition: int | None, search: Search | None = None
    ) -> Appended:
        """Append an encoded batch; `put` and `Producer` come down to this.

        Without a partition it goes to one that no other thread of this process is writing to,
        and to another as soon as some other writer is met there. So writers spread over the
        partitions by themselves.
        """
        self._check_open()
        bodies = compressed(bodies, CODECS[self._settings.codec])
        deadline = self.deadline()
        self._skew.check(deadline)
        pooled = self._writers.acquire(partition, deadline)
        try:
            if search is None:
                appended = pooled.writer.append(bodies, deadline)
            else:
                appended = pooled.writer.append_once(bodies, deadline, search.nonce, search.since)
            self._on_append(pooled.writer.partition, appended, bodies)
        finally:
            pooled.lock.release()
        self._reaper.collect_if_due(pooled.writer)
        if partition is None and appended.contended:
            self._writers.move_on()
        return appended

    def _open_writer(self, partition: int) -> PartitionWriter:
        return PartitionWriter(
            partition, self._appends, self._clock, self._settings.clock_skew_ms_max
        )

    def producer(self, **options: Any) -> Producer:
        """A `Producer` for this queue; its options are that class's."""
        return Producer(self, **options)

    def subscriber(
        self,
        subscription: Subscription,
        listeners: Sequence[Listener] | Listener,
        **options: Any,
    ) -> Subscriber:
        """A `Subscriber` of this queue, to be started; its options are that class's."""
        return Subscriber(
            self,
            subscription,
            listeners,
            coordinate=self._coordinate,
            zookeeper=self._settings.zookeeper,
            **options,
        )

    def scan(
        self,
        *,
        partition: int | None = None,
        start: Any = None,
        stop: Any = None,
        topics: Sequence[str] = (),
        **options: Any,
    ) -> PartitionScanner | QueueScanner:
        """Read a partition, or all of them: a scanner, to be iterated over and closed.

        Args:
            partition: the partition; all if None.
            start: where to begin: a `MessageID`, an aware datetime, or milliseconds since the
                epoch. The oldest message if None.
            stop: the first that is not wanted any more. If None, the end of the log.
            topics: the topics wanted; all if empty.
            options: ``follow``, ``by_id``, ``bytes_max``, ``idle_ms_max``, as
                `CombinedPartitionScanner` has them.
        """
        scan = Scan(start, stop)
        if isinstance(topics, (str, bytes)):
            raise InvalidInputError("topics is a sequence of texts, not one", topics=topics)
        for topic in topics:
            scan.add_topic(topic)
        if partition is None:
            return self.queue_scanner(scan, **options)
        return self.partition_scanner(partition, scan, **options)

    def queue_scanner(self, scan: Scan | None = None, **options: Any) -> QueueScanner:
        """A scanner over all partitions."""
        return QueueScanner(self, scan or Scan(), **options)

    def partition_scanner(
        self, partition: int, scan: Scan | None = None, **options: Any
    ) -> PartitionScanner:
        """A scanner over one partition."""
        return PartitionScanner(self, partition, scan or Scan(), **options)

    def combined_partition_scanner(
        self, scans: Mapping[int, Scan], **options: Any
    ) -> CombinedPartitionScanner:
        """A scanner over some partitions, each with a `Scan` of its own."""
        return CombinedPartitionScanner(self, scans, **options)

    def reader(self, partition: int, scan: Scan, bytes_max: int) -> PartitionReader:
        """The cursor that scanners read one partition with."""
        self._check_open()
        self._check_partition(partition)
        return PartitionReader(
            partition,
            self._reads,
            start=scan.start,
            stop=scan.stop,
            topics=frozenset(scan.topics) if scan.topics else None,
            clock=self._clock,
            bytes_max=bytes_max,
        )

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
            As `CombinedPartitionScanner.next`. What was given before stays given.
        """
        return poll(readers, self._reads, deadline or self.deadline, bytes_max, rows_max)

    @property
    def reads(self) -> ReadPort:
        """The table's read port, for scanners that ask for many partitions at once."""
        return self._reads


def _is_record_batch(value: object) -> bool:
    # A caller with one has imported pyarrow; others don't pay for that.
    pyarrow = sys.modules.get("pyarrow")
    return pyarrow is not None and isinstance(value, pyarrow.RecordBatch)


def _encode_record_batch(batch: pa.RecordBatch) -> Bodies:
    from hqueue.format.arrow import encode_record_batch  # noqa: PLC0415  (pyarrow is an extra)

    return encode_record_batch(batch)

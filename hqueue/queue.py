"""A queue: putting messages in, and opening scanners."""

from __future__ import annotations

import dataclasses
import logging
import random
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast, overload

from hqueue.attributes import QueueDescription
from hqueue.batch import Bodies, decode_header, encode_bodies
from hqueue.clock import SYSTEM_CLOCK, Clock, Deadline
from hqueue.config import Settings
from hqueue.errors import (
    ClosedError,
    HQueueError,
    InvalidInputError,
    Outcome,
    StoreUnavailableError,
)
from hqueue.fork import register
from hqueue.hbase import TableAppends, TableReads
from hqueue.limits import MESSAGE_ID_MAX
from hqueue.log import Appended, PartitionReader, PartitionWriter
from hqueue.log.check import PartitionCheck, PartitionChecker
from hqueue.log.skew import SkewGuard
from hqueue.message import Message, MessageID, MessageIDs
from hqueue.producer import Producer
from hqueue.scan import CombinedPartitionScanner, PartitionScanner, QueueScanner, Scan

__all__ = ["PartitionEnds", "Queue"]

logger = logging.getLogger(__name__)

STAY_APPENDS = 64
COLLECT_EVERY_MS = 60_000


@dataclasses.dataclass(frozen=True, slots=True)
class PartitionEnds:
    """The two ends of a partition's log.

    Args:
        partition: the partition.
        first: the ID of the oldest batch whose header is kept; None if there is none.
        first_ordinal: messages that the partition had before that.
        next: the ID from which on nothing is written yet.
        next_ordinal: messages that the partition ever had, expired ones too.
    """

    partition: int
    first: MessageID | None
    first_ordinal: int
    next: MessageID
    next_ordinal: int

    @property
    def messages(self) -> int:
        """Messages that the partition ever had, expired ones too."""
        return self.next_ordinal


class _Lane:
    """One partition's writer with its lock: this process appends one batch at a time there."""

    __slots__ = ("collect_after_ms", "lock", "writer")

    def __init__(self, writer: PartitionWriter, collect_after_ms: float) -> None:
        self.lock = threading.Lock()
        self.writer = writer
        self.collect_after_ms = collect_after_ms


class Queue:
    """A queue. Thread-safe, and usable in a forked child. Made by `Client.queue`.

    Messages of one partition have a total order, that of their IDs; between partitions there is
    none. A put is durable when it returns.
    """

    def __init__(
        self,
        description: QueueDescription,
        describe: Callable[[], QueueDescription],
        *,
        appends: TableAppends,
        reads: TableReads,
        settings: Settings,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.name = description.name
        self.partitions = description.partitions
        self._describe = describe
        self._appends = appends
        self._reads = reads
        self._settings = settings
        self._clock = clock
        self._skew = SkewGuard(appends, settings.clock_skew_ms_max, clock)
        self._closed = False
        self.after_fork_in_child()
        register(self)

    def after_fork_in_child(self) -> None:
        self._lanes: dict[int, _Lane] = {}
        self._lanes_lock = threading.Lock()
        self._collecting = threading.Lock()
        self._any = random.randrange(self.partitions)
        self._any_left = STAY_APPENDS
        self._skew.after_fork_in_child()

    def __enter__(self) -> Queue:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Queue({self.name!r}, partitions={self.partitions})"

    def close(self) -> None:
        """Refuse further puts and scans through this object. The client's connections stay."""
        self._closed = True

    def describe(self) -> QueueDescription:
        """What HBase says of the queue now."""
        return self._describe()

    @overload
    def put(
        self, messages: Message, *, partition: int | None = None, key: str | bytes | None = None
    ) -> MessageID: ...
    @overload
    def put(
        self,
        messages: Sequence[Message],
        *,
        partition: int | None = None,
        key: str | bytes | None = None,
    ) -> Sequence[MessageID]: ...
    def put(
        self,
        messages: Message | Sequence[Message],
        *,
        partition: int | None = None,
        key: str | bytes | None = None,
    ) -> MessageID | Sequence[MessageID]:
        """Write one message, or a sequence of them as one batch: all or none, in their order.

        Exactly once for as long as this process lives: a put whose answer was lost is looked up
        in the log and repeated only if it is not there.

        Args:
            messages: at most 65,536, and 8 MiB; for more use a `Producer`.
            partition: the partition; any if None.
            key: puts with the same key go to the same partition, CRC-32 of its UTF-8 modulo the
                number of partitions.

        Returns:
            The ID of the one message, or the IDs in the order of the messages.

        Raises:
            InvalidInputError: an argument is out of range. Nothing was sent.
            MessageTooLargeError: the batch is too large. Nothing was sent.
            StoreUnavailableError: HBase stayed away for ``operation_timeout_ms``. Its outcome
                says whether the put is not applied or unknown.
            QueueStateError: the queue is disabled or is gone.
            ClockSkewError: this machine's clock is off. Nothing was sent.
        """
        partition = self.choose_partition(partition, key)
        if isinstance(messages, Message):
            appended = self.append(encode_bodies((messages,)), partition)
            return int.__new__(MessageID, appended.base)
        if not isinstance(messages, Sequence) or isinstance(messages, (str, bytes)):
            raise InvalidInputError("put takes a Message or a sequence of them")
        appended = self.append(encode_bodies(cast("Sequence[Message]", messages)), partition)
        return MessageIDs(appended.base, appended.count)

    def choose_partition(self, partition: int | None, key: str | bytes | None) -> int | None:
        """The partition that these arguments of `put` mean; None for any."""
        if key is not None:
            if partition is not None:
                raise InvalidInputError("give a partition or a key, not both")
            if isinstance(key, str):
                key = key.encode()
            if not isinstance(key, bytes):
                raise InvalidInputError("a key is str or bytes", type=type(key).__name__)
            return zlib.crc32(key) % self.partitions
        if partition is not None:
            self._check_partition(partition)
        return partition

    def append(self, bodies: Bodies, partition: int | None) -> Appended:
        """Append an encoded batch; `put` and `Producer` come down to this.

        Without a partition it goes to one that no other thread of this process is writing to,
        the same for a while, and another as soon as some other writer is met there. So writers
        spread over the partitions by themselves.
        """
        if self._closed:
            raise ClosedError("the queue was closed", queue=self.name)
        deadline = Deadline(self._clock, self._settings.operation_timeout_ms)
        try:
            self._skew.check(deadline)
        except StoreUnavailableError as exc:
            exc.outcome = Outcome.NOT_APPLIED  # That of a measurement is none of the batch's.
            raise
        if partition is None:
            lane = self._any_lane(deadline)
        else:
            lane = self._locked(self._lane(partition), deadline)
        try:
            appended = lane.writer.append(bodies, deadline)
            self._collect(lane)
        finally:
            lane.lock.release()
        if partition is None and appended.contended:
            self._any_left = 0
        return appended

    def _locked(self, lane: _Lane, deadline: Deadline) -> _Lane:
        if not lane.lock.acquire(timeout=deadline.remaining_ms / 1e3):
            raise StoreUnavailableError(
                "this process's other appends to the partition took too long",
                partition=lane.writer.partition,
            )
        return lane

    def _any_lane(self, deadline: Deadline) -> _Lane:
        self._any_left -= 1
        if self._any_left <= 0:
            self._any = (self._any + 1) % self.partitions
            self._any_left = STAY_APPENDS
        for step in range(self.partitions):
            lane = self._lane((self._any + step) % self.partitions)
            if lane.lock.acquire(blocking=False):
                return lane
        return self._locked(self._lane(random.randrange(self.partitions)), deadline)

    def _lane(self, partition: int) -> _Lane:
        lane = self._lanes.get(partition)
        if lane is None:
            with self._lanes_lock:
                lane = self._lanes.get(partition)
                if lane is None:
                    writer = PartitionWriter(
                        partition, self._appends, self._clock, self._settings.clock_skew_ms_max
                    )
                    first_ms = self._clock.monotonic_ms() + random.random() * COLLECT_EVERY_MS
                    lane = self._lanes[partition] = _Lane(writer, first_ms)
        return lane

    def _collect(self, lane: _Lane) -> None:
        """Delete old headers of a partition in passing, now and then.

        In a thread of its own, one at a time: HBase's master has to be asked for the TTL, and
        puts must not wait for that.
        """
        now_ms = self._clock.monotonic_ms()
        if now_ms < lane.collect_after_ms or not self._collecting.acquire(blocking=False):
            return
        lane.collect_after_ms = now_ms + COLLECT_EVERY_MS
        collecting = self._collecting

        def collect() -> None:
            try:
                ttl_seconds = self._describe().ttl_seconds
                if ttl_seconds is not None:
                    lane.writer.collect(ttl_seconds * 1_000)
            except HQueueError:
                logger.debug("headers were not collected", exc_info=True)
            finally:
                collecting.release()

        try:
            threading.Thread(target=collect, name="hqueue-collect", daemon=True).start()
        except RuntimeError:  # The interpreter is ending.
            collecting.release()

    def producer(self, **options: Any) -> Producer:
        """A `Producer` for this queue; its options are that class's."""
        return Producer(self, **options)

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

    def ends(self) -> list[PartitionEnds]:
        """Where each partition begins and ends now. Two small requests a partition.

        The difference of two ordinals is a number of messages: so the lag of a reader is exact
        without reading.
        """
        return [self._ends(partition) for partition in range(self.partitions)]

    def _ends(self, partition: int) -> PartitionEnds:
        for attempt in self.deadline().retrying():
            with attempt:
                newest = self._reads.newest(partition, MESSAGE_ID_MAX)
                oldest = self._reads.headers(partition, 0, 1)
        if newest is None or not oldest:
            return PartitionEnds(partition, None, 0, MessageID(0), 0)
        first = decode_header(oldest[0].key, oldest[0].header or b"")
        last = decode_header(newest.key, newest.header or b"")
        return PartitionEnds(
            partition,
            MessageID.from_int(first.base),
            first.ordinal,
            MessageID.from_int(last.end),
            last.next_ordinal,
        )

    def check(self, partitions: Sequence[int] | None = None) -> Iterator[PartitionCheck]:
        """Walk the log from its first batch to its last: links, ordinals and every checksum.

        What is wrong in one place does not stop the check of the rest. Yields the result of each
        partition, several times while it grows; the last one of a partition is whole.

        Args:
            partitions: which; all if None.

        Raises:
            StoreUnavailableError: HBase stayed away for ``operation_timeout_ms``.
        """
        ttl_seconds = self.describe().ttl_seconds
        for partition in range(self.partitions) if partitions is None else partitions:
            self._check_partition(partition)
            yield from PartitionChecker(
                partition,
                self._reads,
                self.deadline,
                ttl_ms=None if ttl_seconds is None else ttl_seconds * 1_000,
                clock=self._clock,
            ).run()

    def reader(self, partition: int, scan: Scan, bytes_max: int) -> PartitionReader:
        """The cursor that scanners read one partition with."""
        if self._closed:
            raise ClosedError("the queue was closed", queue=self.name)
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

    @property
    def reads(self) -> TableReads:
        """The table's read port, for scanners that ask for many partitions at once."""
        return self._reads

    def deadline(self) -> Deadline:
        """The bound on one operation, from now."""
        return Deadline(self._clock, self._settings.operation_timeout_ms)

    def _check_partition(self, partition: object) -> None:
        if (
            not isinstance(partition, int)
            or isinstance(partition, bool)
            or not 0 <= partition < self.partitions
        ):
            raise InvalidInputError(
                "there is no such partition",
                queue=self.name,
                partition=partition,
                partitions=self.partitions,
            )

"""Reading a queue: cursors in its partitions, and what is known without reading a message; for
threads, and for an event loop.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from hqueue.consume.fetcher import Fetch
from hqueue.consume.reading import QueueReading
from hqueue.consume.scan import Scan
from hqueue.consume.skipped_batches import SkipCounts, Skipping, SkipRecord
from hqueue.consume.topic_cursor import TopicCursor
from hqueue.errors import CorruptLogError
from hqueue.format.header import Header
from hqueue.log import Batch, PartitionCursor, PartitionReader
from hqueue.log.context import QueueContext
from hqueue.log.expiry import PartitionExpiry
from hqueue.log.lag import PartitionLag
from hqueue.log.newest import NewestMessages
from hqueue.log.offsets import PartitionOffsets
from hqueue.log.ranges import OwnedRange
from hqueue.log.reader import reader_of
from hqueue.log.skipping import Skips
from hqueue.log.steps import Work
from hqueue.log.table_ports import AsyncLogPort, LogPort
from hqueue.log.topic_lag import TopicLag
from hqueue.log.verify import PartitionVerification, unmoved
from hqueue.message_id import MessageID
from hqueue.metadata.managers import LogRange, RangesOf
from hqueue.position import Position
from hqueue.runtime.clock import Deadline, drive, drive_each, drive_each_in_loop, drive_in_loop
from hqueue.runtime.loop import computed, in_thread, is_much
from hqueue.settings.kinds import listed
from hqueue.settings.reserved import is_unreserved

__all__ = ["LoopReader", "QueueReader"]


Result = TypeVar("Result")


class QueueReader:
    """The part of a queue's log that reads. Thread-safe, and usable in a forked child.

    Args:
        context: the queue.
        port: its rows, and what lies with them.
        loop_port: the same, for event loops.
        counts: learns what readers skip.
    """

    def __init__(
        self, context: QueueContext, port: LogPort, loop_port: AsyncLogPort, counts: SkipCounts
    ) -> None:
        self.partitions = context.partitions
        self.deadline = context.deadline
        self.clock = context.clock
        self._context = context
        self._port = port
        self._decisions = SkipRecord(context, port, counts)
        self.skipping = Skipping(context, self._decisions, port, loop_port)
        """Lists and changes the batches that readers skip where they can't be read."""
        self.reading = QueueReading(context, self._decisions)
        """Decides what to ask for."""
        self.in_loop = LoopReader(context, self.reading, loop_port)
        """The same, for event loops: what it has opened it reads and frees itself."""

    def open(
        self, partition: int, scan: Scan, bytes_max: int, ordinal: int | None = None
    ) -> PartitionReader:
        """Like `Queue.reader`; `ordinal` as `PartitionReader` takes it."""
        cursor = self.reading.cursor(partition, scan, bytes_max, ordinal)
        return reader_of(cursor, self._port, self.clock)

    def poll(
        self,
        readers: Sequence[PartitionReader],
        bytes_max: int,
        *,
        rows_max: int = 1,
        deadline: Callable[[], Deadline] | None = None,
    ) -> Iterator[list[Batch]]:
        """Like `Queue.poll`."""
        cursors = [reader.steps for reader in readers]
        return self._each(self.reading.poll(cursors, bytes_max, rows_max, deadline))

    def follow(
        self,
        readers: Sequence[PartitionReader],
        bytes_max: int,
        *,
        idle_ms_max: int | None,
        closed: Callable[[], bool],
    ) -> Iterator[list[Batch]]:
        """Give batches as they come. The arguments are those of `QueueReading.follow`; the readers
        are made by `open` of this object.
        """
        cursors = [reader.steps for reader in readers]
        work = self.reading.follow(cursors, bytes_max, idle_ms_max=idle_ms_max, closed=closed)
        return self._each(work)

    def chosen(self, partitions: Iterable[int]) -> Sequence[int]:
        """These partitions, which the queue has.

        Raises:
            InvalidInputError: it has one of them not.
        """
        return self._context.chosen(listed(partitions, "partitions"))

    def offsets(self, partitions: Sequence[int] | None = None) -> list[PartitionOffsets]:
        """Like `Queue.offsets`."""
        return self.do_long(self.reading.offsets(partitions))

    def lag(self, positions: Mapping[int, MessageID]) -> dict[int, PartitionLag]:
        """Like `Queue.lag`."""
        return self.do_long(self.reading.lag(positions))

    def count_before(self, partition: int, message_id: MessageID) -> int:
        """Like `Queue.count_before`."""
        return self.do_long(self.reading.count_before(partition, message_id))

    def id_at(self, partition: int, ordinal: int) -> MessageID:
        """Like `Queue.id_at`."""
        return self.do_long(self.reading.id_at(partition, ordinal))

    def expiry(self, partition: int, guess: MessageID, exact_ms: int) -> PartitionExpiry:
        """Like `Queue.expiry`."""
        return self.do_long(self.reading.expiry(partition, guess, exact_ms))

    def appended_since(self, offsets: Sequence[PartitionOffsets]) -> list[int]:
        """Like `Queue.appended_since`."""
        return self.do_long(self.reading.appended_since(offsets))

    def headers(self, partition: int, start: Position, stop: Position | None) -> Iterator[Header]:
        """Like `Queue.headers`."""
        return self._each(self.reading.headers(partition, start, stop))

    def newest_messages(self, partition: int) -> NewestMessages:
        """Up to where each topic has messages in a partition. Asks nothing yet."""
        partition = self._context.check_partition(partition)
        return NewestMessages(partition)

    def do(
        self, decide: Callable[[Deadline], Work[Result]], deadline: Deadline | None = None
    ) -> Result:
        """Carry out decisions about this log within a deadline, by default that of one operation.
        Returns their result.
        """
        deadline = deadline or self.deadline()
        return drive(decide(deadline), self._port, deadline)

    def do_long(self, work: Work[Result]) -> Result:
        """The result of decisions that bound each operation of many themselves."""
        return drive(work, self._port, Deadline(self.clock, math.inf))

    def _each(self, work: Work[None]) -> Iterator[Any]:
        return drive_each(work, self._port, self.clock)

    def topics(
        self, start: Position, topics_max: int, is_wanted: Callable[[str], bool] = is_unreserved
    ) -> list[str]:
        """Like `QueueReading.topics`."""
        return self.do_long(self.reading.topics(start, topics_max, is_wanted))

    def topic_lags(
        self,
        topic: str,
        ranges_of: RangesOf,
        positions: Mapping[str, MessageID],
    ) -> dict[str, TopicLag]:
        """Like `QueueReading.topic_lags`."""
        return self.do_long(self.reading.topic_lags(topic, ranges_of, positions))

    def verify(
        self,
        partitions: Sequence[int] | None = None,
        *,
        now_ms: Callable[[Deadline], Work[int]],
        ranges: Mapping[str, Sequence[OwnedRange]] | None = None,
        moved: Callable[[str], Work[bool]] = unmoved,
    ) -> Iterator[PartitionVerification]:
        """Like `QueueReading.verify`."""
        return self._each(self.reading.verify(partitions, now_ms, ranges, moved))


class LoopReader:
    """Reads a queue's log, for coroutines of any event loop. Made by `OpenLog.in_loop`.

    It works like `QueueReader`, with the same decisions. A caller that is cancelled loses nothing:
    the cursor returns the same batches to the next call. Only one coroutine at a time may use a
    cursor.

    Args:
        context: the queue.
        reading: decides which requests to make.
        port: the queue's rows, and the records beside them.
    """

    def __init__(self, context: QueueContext, reading: QueueReading, port: AsyncLogPort) -> None:
        self.partitions = context.partitions
        self.deadline = context.deadline
        self.clock = context.clock
        self._reading = reading
        self._port = port

    def cursor(
        self, partition: int, scan: Scan, bytes_max: int, ordinal: int | None = None
    ) -> PartitionCursor:
        """Open a cursor in a partition. Sends no request.

        Args:
            partition: the partition.
            scan: the part of it to read.
            bytes_max: about how many bytes of bodies one request fetches; at least one batch.
            ordinal: how many messages the partition had before the scan's start, if known.

        Raises:
            InvalidInputError: there is no such partition.
            ClosedError: the queue was closed.
        """
        return self._reading.cursor(partition, scan, bytes_max, ordinal)

    def topic_cursor(
        self,
        topic: str,
        ranges_of: RangesOf,
        *,
        start: int,
        stop: Callable[[], int],
        bytes_max: int,
    ) -> TopicCursor:
        """Open a cursor over a topic that has an owner. The arguments are those of
        `TopicReader`.
        """
        return TopicCursor(
            self._reading, topic, ranges_of, start=start, stop=stop, bytes_max=bytes_max
        )

    async def read(
        self, cursor: PartitionCursor | TopicCursor, deadline: Deadline | None = None
    ) -> list[Batch]:
        """Read the next batches, some megabytes at most; none at the end of the log or at the stop.

        Args:
            cursor: the cursor.
            deadline: the deadline; that of one operation if None.

        Raises:
            StoreUnavailableError: the store was unavailable until the deadline.
            QueueStateError, RequestRefusedError: the store refuses the read.
            CorruptLogError: the log is corrupt at this position. The cursor stays there.
        """
        return await self.do(cursor.read, deadline)

    async def read_once(
        self, cursor: PartitionCursor, deadline: Deadline | None = None
    ) -> list[Batch]:
        """Read as `read`, with one request. The result may be empty although the log continues, if
        the request found none of the topics to read; `cursor.at_tail` is False then.
        """
        return await self.do(cursor.read_once, deadline)

    async def check_tail(self, cursor: PartitionCursor, deadline: Deadline | None = None) -> None:
        """Like `PartitionReader.check_tail`."""
        await self.do(cursor.check_tail, deadline)

    async def release(self, cursor: PartitionCursor | TopicCursor) -> None:
        """Free what a cursor holds in the store. Reading can continue afterwards."""
        await self.do(lambda _: cursor.release())

    def poll(
        self,
        cursors: Sequence[PartitionCursor],
        bytes_max: int,
        *,
        rows_max: int = 1,
        deadline: Callable[[], Deadline] | None = None,
    ) -> AsyncIterator[list[Batch]]:
        """Like `Queue.poll`."""
        return self._each(self._reading.poll(cursors, bytes_max, rows_max, deadline))

    def fetch(
        self,
        fetches: Sequence[Fetch[PartitionCursor]],
        bytes_max: int,
        *,
        deadline: Callable[[], Deadline] | None = None,
    ) -> AsyncIterator[list[Batch]]:
        """Like `hqueue.engine.fetch_once`."""
        return self._each(self._reading.fetch(fetches, bytes_max, deadline))

    def follow(
        self,
        cursors: Sequence[PartitionCursor],
        bytes_max: int,
        *,
        idle_ms_max: int | None = None,
        closed: Callable[[], bool] = lambda: False,
    ) -> AsyncIterator[list[Batch]]:
        """Iterate over batches as they arrive. The arguments are those of `QueueReading.follow`."""
        work = self._reading.follow(cursors, bytes_max, idle_ms_max=idle_ms_max, closed=closed)
        return self._each(work)

    async def decoded(self, batch: Batch, decode: Callable[[Batch], Result]) -> Result:
        """Decode a batch that was read, and return the result. A thread decodes a large batch, one
        at a time. If it can't be decoded, a thread checks whether an operator chose to skip it.

        Raises:
            As `decode`, which may be called twice.
        """
        return await self.decoded_together([batch], lambda batches: decode(batches[0]))

    async def decoded_together(
        self, batches: Sequence[Batch], decode: Callable[[Sequence[Batch]], Result]
    ) -> Result:
        """Like `decoded`, for several batches."""
        unskipped = [dataclasses.replace(batch, skips=Skips()) for batch in batches]
        with contextlib.suppress(CorruptLogError):
            if is_much(sum(each.header.count for each in batches), lambda: _size_of(batches)):
                return await computed(decode, unskipped)
            return decode(unskipped)
        return await in_thread(decode, batches)

    async def offsets(self, partitions: Sequence[int] | None = None) -> list[PartitionOffsets]:
        """Like `Queue.offsets`."""
        return await self.do_long(self._reading.offsets(partitions))

    async def lag(self, positions: Mapping[int, MessageID]) -> dict[int, PartitionLag]:
        """Like `Queue.lag`."""
        return await self.do_long(self._reading.lag(positions))

    async def count_before(self, partition: int, message_id: MessageID) -> int:
        """Like `Queue.count_before`."""
        return await self.do_long(self._reading.count_before(partition, message_id))

    async def id_at(self, partition: int, ordinal: int) -> MessageID:
        """Like `Queue.id_at`."""
        return await self.do_long(self._reading.id_at(partition, ordinal))

    async def appended_since(self, offsets: Sequence[PartitionOffsets]) -> list[int]:
        """Like `Queue.appended_since`."""
        return await self.do_long(self._reading.appended_since(offsets))

    async def expiry(self, partition: int, guess: MessageID, exact_ms: int) -> PartitionExpiry:
        """Like `Queue.expiry`."""
        return await self.do_long(self._reading.expiry(partition, guess, exact_ms))

    def headers(
        self, partition: int, start: Position, stop: Position | None
    ) -> AsyncIterator[Header]:
        """Like `Queue.headers`."""
        return self._each(self._reading.headers(partition, start, stop))

    async def topics(
        self, start: Position, topics_max: int, is_wanted: Callable[[str], bool] = is_unreserved
    ) -> list[str]:
        """Like `QueueReading.topics`."""
        return await self.do_long(self._reading.topics(start, topics_max, is_wanted))

    async def topic_lags(
        self,
        topic: str,
        ranges_of: RangesOf,
        positions: Mapping[str, MessageID],
    ) -> dict[str, TopicLag]:
        """Like `Queue.topic_lags`; `ranges_of` asks where the topic lies."""
        return await self.do_long(self._reading.topic_lags(topic, ranges_of, positions))

    def verify(
        self,
        partitions: Sequence[int] | None = None,
        *,
        now_ms: Callable[[Deadline], Work[int]],
        ranges: Mapping[str, Sequence[LogRange]] | None = None,
        moved: Callable[[str], Work[bool]] = unmoved,
    ) -> AsyncIterator[PartitionVerification]:
        """Like `Queue.verify`; `moved` says whether a topic lies elsewhere by now, and `now_ms`
        gives the time by the store's clock.
        """
        return self._each(self._reading.verify(partitions, now_ms, ranges, moved))

    async def do(
        self, decide: Callable[[Deadline], Work[Result]], deadline: Deadline | None = None
    ) -> Result:
        """Carry out decisions about this log in the event loop, within a deadline; by default that
        of one operation. Returns their result.
        """
        deadline = deadline or self.deadline()
        return await drive_in_loop(decide(deadline), self._port, deadline)

    async def do_long(self, work: Work[Result]) -> Result:
        """Like `QueueReader.do_long`."""
        return await drive_in_loop(work, self._port, Deadline(self.clock, math.inf))

    def _each(self, work: Work[None]) -> AsyncIterator[Any]:
        return drive_each_in_loop(work, self._port, self.clock)


def _size_of(batches: Sequence[Batch]) -> int:
    return sum(len(cell) for batch in batches for _, cell in batch.cells)

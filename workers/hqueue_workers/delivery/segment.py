"""What was read of a partition, and the encoded slices that a subscriber is sent of it."""

from __future__ import annotations

import array
import asyncio
import bisect
import contextlib
import dataclasses
import itertools
from collections.abc import Collection, Iterable, Sequence
from operator import attrgetter
from typing import NamedTuple

from hqueue import HQueueError, Queue, ReceivedMessage
from hqueue.dead_letters.topics import is_delivered_unasked, redrive_topic
from hqueue.engine import Batch, Skips, may_be_delayed, messages_of
from hqueue.metadata.delays import Delayed
from hqueue.settings.limits import CALL_HEADERS_MAX
from hqueue_workers.delivery.wire import encode_message
from hqueue_workers.node.runtime import Runtime

__all__ = [
    "OVERHEAD_BYTES",
    "BatchSegment",
    "EncodedSlice",
    "Segment",
    "SubscriptionFilter",
    "Window",
    "cut_all",
    "cut_for",
    "segments_of",
]

OVERHEAD_BYTES = 1_000
"""What a segment takes in memory beside its bodies, about."""
HERE_MESSAGES, HERE_BYTES = 100, 64 * 1024
"""What is cut in the loop, at most: in a millisecond."""


class SubscriptionFilter(NamedTuple):
    """What a subscriber takes from a partition: topics (None for all), and how much in a call."""

    subscriber: str
    topics: frozenset[str] | None
    messages_max: int
    bytes_max: int

    @property
    def read_topics(self) -> frozenset[str] | None:
        """The topics to be read for it: its own, and what is put back to it."""
        return None if self.topics is None else self.topics | {redrive_topic(self.subscriber)}

    def matches(self, topic: str) -> bool:
        """Whether it is sent what lies under this topic."""
        if topic == redrive_topic(self.subscriber):
            return True
        return is_delivered_unasked(topic) if self.topics is None else topic in self.topics


@dataclasses.dataclass(frozen=True, slots=True)
class EncodedSlice:
    """Messages that may be sent together, encoded. IDs as integers.

    It covers the IDs ``[start, end)``: a cursor that has its messages goes on from `end`. One
    without messages only says that nothing wanted lies there.
    """

    start: int
    end: int
    data: bytes = b""
    ids: Sequence[int] = ()
    """Of its messages."""
    ends: Sequence[int] = ()
    """Where each of them ends in `data`."""
    headers: int = 0
    """How many headers its messages have, at most."""
    dues: Sequence[tuple[int, int]] = ()
    """The ID of each delayed message, and when it is due, in milliseconds since the epoch."""

    def delayed(self, start: int, stop: int, now_ms: float) -> Delayed | None:
        """The first message with an ID in ``[start, stop)`` that is not due."""
        for index in range(bisect.bisect_left(self.dues, (start, 0)), len(self.dues)):
            message_id, due_ms = self.dues[index]
            if message_id >= stop:
                break
            if due_ms > now_ms:
                return Delayed(due_ms, message_id, 0)
        return None

    def first(self, start: int) -> int:
        """The ID of its first message from an ID on; `end` if there is none."""
        index = bisect.bisect_left(self.ids, start)
        return self.ids[index] if index < len(self.ids) else self.end

    def part(self, start: int, stop: int, messages_max: int) -> EncodedSlice:
        """What it has with IDs in ``[start, stop)``, this many messages at most."""
        low, high = bisect.bisect_left(self.ids, start), bisect.bisect_left(self.ids, stop)
        high = min(high, low + messages_max)
        if high - low == len(self.ids):
            return self
        at = self.ends[low - 1] if low else 0
        end = min(stop, self.ids[high] if high < len(self.ids) else self.end)
        return EncodedSlice(
            start,
            end,
            self.data[at : self.ends[high - 1] if high > low else at],
            self.ids[low:high],
            [each - at for each in self.ends[low:high]],
            self.headers,
            self.dues,
        )


class Segment:
    """A part of a log without a gap. It covers the IDs ``[start, end)``. Nothing is wanted of this
    one; those that have messages are kinds of it.
    """

    __slots__ = ("end", "messages", "offset", "size", "start")

    def __init__(self, start: int, end: int) -> None:
        self.start = start
        self.end = end
        self.offset = 0
        """Bytes of the window that came before it."""
        self.size = OVERHEAD_BYTES
        self.messages = 0
        """How many it has."""

    @property
    def is_small(self) -> bool:
        """Whether it may be cut in the loop."""
        return self.messages <= HERE_MESSAGES and self.size <= HERE_BYTES

    def slices(self, filter_: SubscriptionFilter) -> tuple[EncodedSlice, ...] | None:
        """What was cut of it already; also what takes no time to be cut. None if it must be."""
        return (EncodedSlice(self.start, self.end),)

    def reads(self, filter_: SubscriptionFilter) -> bool:
        """Whether cutting it may read from the queue."""
        return False

    def cut(
        self, queue: Queue, filter_: SubscriptionFilter, *, may_read: bool = True
    ) -> tuple[EncodedSlice, ...]:
        """Cut it into encoded slices. May read from the queue; for threads that may wait.

        Args:
            queue: the queue.
            filter_: for whom.
            may_read: else it reads nothing, unless it `reads` for this filter anyway.

        Raises:
            HQueueError: the original of a message that is put back can't be read; or the batch
                can't, and must not be skipped, or may not be asked for that.
        """
        return self.slices(filter_) or self._cut(queue, filter_, may_read=may_read)

    def _cut(
        self, queue: Queue, filter_: SubscriptionFilter, *, may_read: bool
    ) -> tuple[EncodedSlice, ...]:
        raise NotImplementedError

    def _slices(
        self,
        messages: Iterable[ReceivedMessage | None],
        filter_: SubscriptionFilter,
        dues: Sequence[tuple[int, int]] = (),
    ) -> tuple[EncodedSlice, ...]:
        """These messages of it, encoded, with the times of delayed ones."""
        wanted = [message for message in messages if message is not None]
        parts = [encode_message(message) for message in wanted]
        ids = array.array("Q", [message.id for message in wanted])
        slices: list[EncodedSlice] = []
        start, low, size, headers = self.start, 0, 0, 0

        def close(high: int, end: int) -> None:
            some = parts[low:high]
            ends = array.array("I", itertools.accumulate(map(len, some)))
            own = dues[bisect.bisect_left(dues, (start, 0)) : bisect.bisect_left(dues, (end, 0))]
            data = b"".join(some)
            slices.append(EncodedSlice(start, end, data, ids[low:high], ends, headers, own))

        for number, (part, message) in enumerate(zip(parts, wanted, strict=True)):
            length, more = len(part), len(message.headers)
            if number > low and (
                number - low >= filter_.messages_max
                or size + length > filter_.bytes_max
                or headers + more > CALL_HEADERS_MAX
            ):
                message_id = ids[number]
                close(number, message_id)
                start, low, size, headers = message_id, number, 0, 0
            size += length
            headers += more
        close(len(parts), self.end)
        return tuple(slices)


class BatchSegment(Segment):
    """One batch that was read. What is cut of it for one subscriber is there for all that want the
    same.
    """

    __slots__ = ("_batch", "_cuts")

    def __init__(self, start: int, end: int, batch: Batch) -> None:
        super().__init__(start, end)
        # The bodies are held twice: as they were read, and encoded.
        self.size += 2 * sum(len(cell) for _, cell in batch.cells)
        self.messages = batch.header.count
        self._batch = batch
        self._cuts: dict[tuple[object, ...], tuple[EncodedSlice, ...]] = {}

    def slices(self, filter_: SubscriptionFilter) -> tuple[EncodedSlice, ...] | None:
        """Like `Segment`."""
        key = self._key(filter_)
        return self._cuts.get(key) if key else super().slices(filter_)

    def reads(self, filter_: SubscriptionFilter) -> bool:
        """Like `Segment`."""
        redriven = redrive_topic(filter_.subscriber)
        return any(entry.topic == redriven for entry, _ in self._batch.cells)

    def _cut(
        self, queue: Queue, filter_: SubscriptionFilter, *, may_read: bool
    ) -> tuple[EncodedSlice, ...]:
        cells = tuple(c for c in self._batch.cells if filter_.matches(c[0].topic))
        skips = self._batch.skips if may_read else Skips()
        messages: Iterable[ReceivedMessage | None] = messages_of(
            dataclasses.replace(self._batch, cells=cells, skips=skips)
        )
        redriven = redrive_topic(filter_.subscriber)
        dues: list[tuple[int, int]] = []
        if may_be_delayed(self._batch):
            messages = list(messages)
            dues = [
                (int(m.id), due_ms)
                for m in messages  # What is put back is due.
                if m and m.topic != redriven and (due_ms := m.deliver_at_ms) is not None
            ]
        if self.reads(filter_):
            redrive = queue.dead_letters.redriven
            messages = [redrive(m) if m and m.topic == redriven else m for m in messages]
        cut = self._cuts[self._key(filter_)] = self._slices(messages, filter_, dues)
        return cut

    def _key(self, filter_: SubscriptionFilter) -> tuple[object, ...]:
        """Those with the same key get the same bytes; empty where nothing is wanted."""
        cells = self._batch.cells
        topics = tuple(entry.topic for entry, _ in cells if filter_.matches(entry.topic))
        return (topics, filter_.messages_max, filter_.bytes_max) if topics else ()


def segments_of(start: int, batches: Iterable[Batch], end: int) -> list[Segment]:
    """What a reader has passed that gave these batches, from where it stood to where it stands."""
    segments: list[Segment] = []
    for batch in batches:
        if batch.stop > start:  # After a truncation the log may go on below.
            segments.append(BatchSegment(start, batch.stop, batch))
            start = batch.stop
    if end > start:
        segments.append(Segment(start, end))
    return segments


async def cut_for(
    filters: Collection[SubscriptionFilter],
    segments: Sequence[Segment],
    queue: Queue,
    runtime: Runtime,
) -> None:
    """Cut what was read for those that wait for it: in the loop what takes no more than a moment,
    and by a thread what takes more. What can't be cut is left to the cursor that needs it, which
    learns why.
    """
    messages, size = sum(each.messages for each in segments), sum(each.size for each in segments)
    if messages <= HERE_MESSAGES and size <= HERE_BYTES:
        cut_all(filters, segments, queue, may_read=False)
    else:
        with contextlib.suppress(HQueueError):  # No thread does it. What was read is not lost.
            await runtime.read(lambda: cut_all(filters, segments, queue, may_read=True))


def cut_all(
    filters: Collection[SubscriptionFilter],
    segments: Iterable[Segment],
    queue: Queue,
    *,
    may_read: bool,
) -> None:
    """Like `cut_for`, at once; what has to be read from the queue for that, only where it `may`."""
    for segment in segments:
        for filter_ in filters:
            if may_read or not segment.reads(filter_):
                with contextlib.suppress(HQueueError):
                    segment.cut(queue, filter_, may_read=may_read)


class Window:
    """Segments one after another, without a gap: a part of a log that is in memory. What comes next
    is added by others.
    """

    __slots__ = ("_bytes", "_segments", "end")

    def __init__(self, start: int) -> None:
        self.end = start
        """The ID from which on nothing was read yet."""
        self._segments: list[Segment] = []
        self._bytes = 0

    @property
    def start(self) -> int:
        """The ID from which on it is in memory."""
        return self._segments[0].start if self._segments else self.end

    @property
    def size(self) -> int:
        """Bytes in memory, about."""
        return self._bytes - self._segments[0].offset if self._segments else 0

    def add(self, segments: Iterable[Segment]) -> None:
        """Add what comes next."""
        for segment in segments:
            assert segment.start == self.end, "what lies between would never be delivered"
            segment.offset = self._bytes
            self._bytes += segment.size
            self._segments.append(segment)
            self.end = segment.end

    def at(self, message_id: int) -> Segment | None:
        """The segment that covers an ID."""
        index = bisect.bisect_right(self._segments, message_id, key=attrgetter("start")) - 1
        if index < 0 or message_id >= self._segments[index].end:
            return None
        return self._segments[index]

    def reaches(self, message_id: int) -> bool:
        """Whether what lies at an ID is in memory, or is what comes next."""
        return self.start <= message_id <= self.end

    async def more(self, message_id: int) -> None:
        """One waits for what comes from this ID on: others get their turn."""
        await asyncio.sleep(0)

    def passed(self, message_id: int) -> None:
        """One goes on from this ID."""

    def unread(self, message_id: int) -> int:
        """Bytes in memory from an ID on, about."""
        segment = self.at(message_id)
        return 0 if segment is None else self._bytes - segment.offset

    def drop(self, below: int) -> None:
        """Forget what lies below an ID."""
        del self._segments[: bisect.bisect_right(self._segments, below, key=attrgetter("end"))]

    def trim(self, bytes_max: int, needed_from: int, kept_from: int) -> None:
        """Forget what lies before `needed_from`; and more, the oldest first, until it fits.

        What lies from `kept_from` on stays: the cursor that reads there is ahead of all others.
        """
        floor = self._bytes - bytes_max
        drop = 0
        for segment in self._segments:
            fits = segment.offset >= floor or segment.end > kept_from
            if fits and segment.end > needed_from:
                break
            drop += 1
        # The newest stays whatever it weighs, if it is needed: somebody waits for it.
        if drop == len(self._segments) and self.end > needed_from:
            drop -= 1
        del self._segments[:drop]

    def clear(self, start: int) -> None:
        """Forget everything, and begin elsewhere."""
        self._segments.clear()
        self.end = start

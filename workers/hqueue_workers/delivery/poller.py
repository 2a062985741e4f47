"""Polls HBase for the next batches of a queue's partitions, many partitions with few requests."""

from __future__ import annotations

import asyncio
import dataclasses
import math
from collections import OrderedDict, defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Protocol

from hqueue import CorruptLogError, HQueueError, Queue
from hqueue.engine import Batch, Fetch, Fetcher, Pace, PartitionCursor, Row
from hqueue.runtime.backoff import Backoff
from hqueue.runtime.clock import Deadline
from hqueue.runtime.logs import Log
from hqueue_workers.delivery.segment import (
    OVERHEAD_BYTES,
    Segment,
    SubscriptionFilter,
    cut_all,
    cut_for,
    segments_of,
)
from hqueue_workers.node.runtime import RETRIES, Runtime

__all__ = ["Poller", "TailWaiter"]

logger = Log(__name__)

PAUSE_MS_MIN = 5.0
PAUSE_MS_NOTIFIED = 100.0
"""The first pause in a partition whose producers notify of what they append."""
NOTIFIED_TRUST_MS = 10_000.0
GATHER_SHARE = 0.5
CHECK_EVERY_MS = 60_000.0
NOTIFIED_TO_SEVERAL = 4
FRUITLESS_MAX = 16
"""After this many notifications in a row that announced nothing, a partition's further ones
count only every `PAUSE_MS_NOTIFIED`: anyone can send them."""
BYTES_MAX = 1024 * 1024


class TailWaiter(Protocol):
    """An object that waits for the next batch of a partition."""

    partition: int
    cursor: PartitionCursor
    region_host: str | None
    filters: frozenset[SubscriptionFilter]

    @property
    def end(self) -> int:
        """The ID up to which it has received the partition's batches."""

    def came(self, segments: list[Segment]) -> None:
        """Take what came: nothing, if only the cursor's place changed."""


class Tails(Protocol):
    """Reads new batches at the tails of partitions, as `hqueue.engine.LoopReader` does."""

    def fetch(
        self,
        fetches: Sequence[Fetch[PartitionCursor]],
        bytes_max: int,
        *,
        deadline: Callable[[], Deadline],
    ) -> AsyncIterator[list[Batch]]: ...


class _Waiting(Fetch[PartitionCursor]):
    """The poller's state for one waiter."""

    __slots__ = (
        "broken",
        "deaf_until_ms",
        "filters",
        "fruitless",
        "notified",
        "notified_before",
        "notified_ms",
        "segments",
        "start",
        "tail",
    )

    def __init__(self, tail: TailWaiter, pace: Pace, now_ms: float) -> None:
        super().__init__(tail.cursor, pace, now_ms)
        self.tail = tail
        self.notified = 0
        """Appends that it was notified of, and whose batches did not come yet, about."""
        self.broken = False
        """Whether it was asked for when something was corrupt: then it is asked for alone."""
        self.fruitless = 0
        """Requests in a row that were made because of a notification and brought nothing."""
        self.deaf_until_ms = -math.inf
        self.notified_ms = -NOTIFIED_TRUST_MS

    def begin(self, now_ms: float) -> None:
        """Begin a poll of this partition: keep the state of its wait."""
        super().begin(now_ms)
        self.several = self.several or self.notified >= NOTIFIED_TO_SEVERAL
        self.notified_before = self.notified
        self.start = self.tail.end
        self.filters = self.tail.filters
        self.segments: list[Segment] = []

    def keep(self, batches: Iterable[Batch]) -> None:
        """Make segments of what came."""
        self.segments = segments_of(self.start, batches, self.reader.cursor)


class _PushedRows:
    """Rows that producers pushed, by their slots. The oldest are dropped if there are too many."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._rows: OrderedDict[tuple[int, int], Row] = OrderedDict()
        self._bytes = 0

    def put(self, row: Row) -> None:
        """Add a row."""
        self.pop(row.partition, row.slot)
        self._rows[row.partition, row.slot] = row
        self._bytes += _size(row)
        while self._bytes > self._bytes_max:
            self._bytes -= _size(self._rows.popitem(last=False)[1])

    @property
    def size(self) -> int:
        """About how many bytes of memory the rows take."""
        return self._bytes

    def __contains__(self, slot: tuple[int, int]) -> bool:
        return slot in self._rows

    def pop(self, partition: int, slot: int) -> Row | None:
        """Remove and return the row of a slot."""
        row = self._rows.pop((partition, slot), None)
        self._bytes -= 0 if row is None else _size(row)
        return row


def _size(row: Row) -> int:
    return OVERHEAD_BYTES + sum(map(len, row.cells.values()))


class Poller:
    """Polls partitions for their next batch if a reader waits for it.

    A row that a producer pushed with its notification is not read again if it is the next one.
    Otherwise a partition is polled at once after a notification, or after an answer with a batch if
    no producer notifies. As a safety net it is also polled after a pause that doubles from a few
    milliseconds to `poll_ms_max`. So an idle queue of 1,000 partitions costs some requests a
    second. When batches come in quick succession, one poll asks for several.

    One for each queue. Used by the event loop.

    Args:
        queue: the queue.
        tails: reads new batches.
        runtime: the worker's runtime.
        poll_ms_max: the longest pause between two polls of a partition.
        pushed_bytes_max: the most bytes of pushed rows that may wait.
    """

    def __init__(
        self,
        queue: Queue,
        tails: Tails,
        runtime: Runtime,
        poll_ms_max: float,
        pushed_bytes_max: int,
    ) -> None:
        self._queue = queue
        self._tails = tails
        self._runtime = runtime
        self._clock = runtime.clock
        self._pace = Pace(
            idle=Backoff(PAUSE_MS_MIN, poll_ms_max),
            failed=RETRIES,
            check_every_ms=CHECK_EVERY_MS,
            gather_share=GATHER_SHARE,
        )
        self._notified_pace = dataclasses.replace(
            self._pace,
            idle=Backoff(PAUSE_MS_NOTIFIED, poll_ms_max),
            after_batch_ms=PAUSE_MS_MIN,
        )
        self._fetcher: Fetcher[_Waiting] = Fetcher()
        self._known: dict[int, _Waiting] = {}
        self._notified: dict[int, _Waiting] = {}
        self._pushed = _PushedRows(pushed_bytes_max)
        self._changed = asyncio.Event()

    @property
    def pushed_bytes(self) -> int:
        """About how many bytes of memory the waiting pushed rows take."""
        return self._pushed.size

    def add(self, tail: TailWaiter) -> None:
        """Add a partition."""
        self._known[tail.partition] = _Waiting(tail, self._pace, self._clock.monotonic_ms())

    def remove(self, tail: TailWaiter) -> None:
        """Remove a partition."""
        known = self._known.get(tail.partition)
        if known is not None and known.tail is tail:
            self._fetcher.drop(known)
            del self._known[tail.partition]

    def demand(self, tail: TailWaiter) -> None:
        """Poll this partition, when it is time, until its next batch has come.

        Until then no other caller may use the tail's reader.
        """
        self._expect(self._known[tail.partition])

    def push(self, row: Row) -> None:
        """Add a row that was appended, which then need not be read. Call `notify` after it.

        The caller vouches that the row is as good as one that was read.
        """
        if row.partition in self._known:
            self._pushed.put(row)

    def notify(self, partition: int) -> None:
        """Note that something was appended to this partition."""
        waiting = self._known.get(partition)
        if waiting is not None:
            waiting.notified += 1
            waiting.notified_ms = self._clock.monotonic_ms()
            if waiting in self._fetcher:
                self._expect(waiting)

    async def run(self) -> None:
        """Poll, until cancelled."""
        while True:
            self._changed.clear()
            now_ms = self._clock.monotonic_ms()
            self._ask_due(now_ms)
            await self._runtime.wait(self._changed, self._fetcher.next_due_ms - now_ms)

    def _expect(self, waiting: _Waiting) -> None:
        """Schedule a poll of this partition: now if something is there, or when it is due."""
        pushed = waiting.reader.next_slot in self._pushed
        if pushed or (waiting.notified and waiting.deaf_until_ms <= self._clock.monotonic_ms()):
            self._notified[waiting.tail.partition] = waiting
            self._changed.set()
        elif waiting.notified:
            waiting.due_ms = min(waiting.due_ms, waiting.deaf_until_ms)
        if waiting.due_ms < self._fetcher.next_due_ms:
            self._changed.set()
        self._fetcher.request(waiting)

    def _take_pushed(self, waiting: _Waiting) -> bool:
        """Give a tail the pushed rows that come next for it. Returns whether there were any."""
        tail, reader, batches, taken = waiting.tail, waiting.reader, [], 0
        while (row := self._pushed.pop(*reader.next_slot)) is not None:
            try:
                came = reader.take(row)
            except CorruptLogError as exc:
                logger.debug(
                    "ignored a batch from a notification, because it does not continue "
                    "its partition: %s",
                    exc,
                )
                break
            if came is None:
                break
            batches += came
            taken += 1
        if not taken:
            return False
        waiting.keep(batches)
        cut_all(waiting.filters, waiting.segments, self._queue, may_read=False)
        waiting.notified = max(0, waiting.notified - taken)
        waiting.pause_ms = PAUSE_MS_NOTIFIED
        waiting.due_ms = self._clock.monotonic_ms() + waiting.pause_ms
        tail.came(waiting.segments)
        return True

    def _ask_due(self, now_ms: float) -> None:
        """Poll the partitions that were notified, and now and then those whose pause is over.

        A partition whose next row was pushed need not be polled.
        """
        notified, self._notified = self._notified, {}
        due = [each for each in notified.values() if each in self._fetcher]
        for each in due:
            self._fetcher.take(each, now_ms)
        due += self._fetcher.take_due(now_ms)
        groups: dict[object, list[_Waiting]] = defaultdict(list)
        for each in due:
            if not self._take_pushed(each):
                groups[each if each.broken else each.tail.region_host].append(each)
        for group in groups.values():
            self._runtime.start(self._ask(group))

    async def _ask(self, group: list[_Waiting]) -> None:
        # If the partition was removed meanwhile, its tail may have another reader by now.
        group = [each for each in group if self._known.get(each.tail.partition) is each]
        error = await self._ask_once(group)
        now_ms = self._clock.monotonic_ms()
        for waiting in group:
            # Where less came than was notified of before it was asked for, no more is there.
            came, before = len(waiting.segments), waiting.notified_before
            waiting.notified -= came if 0 < came < before else before
            waiting.notified = max(0, waiting.notified)
            if self._known.get(waiting.tail.partition) is not waiting:
                continue  # It was removed meanwhile.
            notified = now_ms - waiting.notified_ms < NOTIFIED_TRUST_MS
            waiting.pace = self._notified_pace if notified else self._pace
            moved = waiting.answered(now_ms, error)
            waiting.fruitless = 0 if moved or not before else waiting.fruitless + 1
            if waiting.fruitless >= FRUITLESS_MAX:
                waiting.deaf_until_ms = now_ms + PAUSE_MS_NOTIFIED
            waiting.broken = isinstance(error, CorruptLogError)
            if moved:
                waiting.tail.came(waiting.segments)
            else:
                self._expect(waiting)
        self._runtime.note_read(self._queue.name, error)

    async def _ask_once(self, group: list[_Waiting]) -> HQueueError | None:
        """Poll once. Batches that came before an error count: the cursors have passed them."""
        batches: defaultdict[int, list[Batch]] = defaultdict(list)
        error: HQueueError | None = None
        try:
            async with self._runtime.requests:
                came = self._tails.fetch(group, BYTES_MAX, deadline=self._one_try)
                async for some in came:
                    for batch in some:
                        batches[batch.partition].append(batch)
        except HQueueError as exc:
            error = exc
        for each in group:
            each.keep(batches[each.reader.partition])
            await cut_for(each.filters, each.segments, self._queue, self._runtime)
        return error

    def _one_try(self) -> Deadline:
        return Deadline(self._clock, 0)

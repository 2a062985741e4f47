"""Asking HBase for the next batches of a queue's partitions: of all that wait, in few requests."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections import OrderedDict, defaultdict
from typing import Protocol

from hqueue import CorruptLogError, HQueueError, PartitionReader, Queue, QueueStateError, Row
from hqueue.runtime.clock import Deadline
from hqueue_workers.delivery.segment import OVERHEAD_BYTES, Segment, SubscriptionFilter, segments_of
from hqueue_workers.node.runtime import Runtime

__all__ = ["Poller", "TailWaiter"]

logger = logging.getLogger(__name__)

PAUSE_MS_MIN = 5.0
PAUSE_MS_NOTIFIED = 100.0
"""The first pause in a partition whose producers notify of what they append."""
PAUSE_MS_FAILED = 1_000.0
PAUSE_MS_FAILED_MAX = 30_000.0
NOTIFIED_TRUST_MS = 10_000.0
TOGETHER_SHARE = 0.5
"""A partition that is due within this share of its pause is asked for with those that are due."""
CHECK_EVERY_MS = 60_000.0
HITS_TO_PREFETCH = 4
"""After so many answers with a batch, one after another, several are asked for at a time: that
takes two requests, and is worth it where several come."""
HITS_UNTIL_NEXT_TRY = 16
NOTIFIED_TO_PREFETCH = 4
FRUITLESS_MAX = 16
"""After so many notifications in a row behind which there was nothing, a partition's further ones
count only every `PAUSE_MS_NOTIFIED`: anyone can send them."""
PREFETCH_ROWS = 100
BYTES_MAX = 1024 * 1024


class TailWaiter(Protocol):
    """What waits for the next batch of a partition."""

    partition: int
    reader: PartitionReader
    region_host: str | None
    filters: frozenset[SubscriptionFilter]

    @property
    def end(self) -> int:
        """The ID up to which it was given what came."""

    def came(self, segments: list[Segment]) -> None:
        """Take what came: nothing, if only the reader's place changed."""


class _Waiting:
    """What the poller knows of one waiter."""

    __slots__ = (
        "broken",
        "busy",
        "checked_ms",
        "deaf_until_ms",
        "demanded",
        "due_ms",
        "fruitless",
        "hits",
        "notified",
        "notified_ms",
        "pause_ms",
        "tail",
    )  # fmt: skip

    def __init__(self, tail: TailWaiter, now_ms: float, checked_ms: float) -> None:
        self.tail = tail
        self.demanded = self.busy = False
        self.notified = 0
        """Appends that it was notified of, and whose batches did not come yet, about."""
        self.broken = False
        """Whether it was asked for when something was corrupt: then it is asked for alone."""
        self.fruitless = 0
        """Requests in a row that were made because of a notification and brought nothing."""
        self.deaf_until_ms = -math.inf
        self.hits = 0
        self.due_ms = now_ms
        self.pause_ms = PAUSE_MS_MIN
        self.notified_ms = -NOTIFIED_TRUST_MS
        self.checked_ms = checked_ms


class _Asked:
    """A waiter as it was when it was asked for, and what came."""

    __slots__ = ("check", "filters", "prefetch", "reader", "segments", "start")

    def __init__(self, tail: TailWaiter, *, check: bool, prefetch: bool) -> None:
        self.reader = tail.reader
        self.start = tail.end
        self.filters = tail.filters
        self.check = check
        """Whether to look at the end of the log itself, too."""
        self.prefetch = prefetch
        """Whether to ask for more than one batch: they come in quick succession."""
        self.segments: list[Segment] = []


class _PushedRows:
    """Rows that producers pushed, by their slots; the oldest are dropped when they are too many."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._rows: OrderedDict[tuple[int, int], Row] = OrderedDict()
        self._bytes = 0

    def put(self, row: Row) -> None:
        """Have one more."""
        self.pop(row.partition, row.slot)
        self._rows[row.partition, row.slot] = row
        self._bytes += _size(row)
        while self._bytes > self._bytes_max:
            self._bytes -= _size(self._rows.popitem(last=False)[1])

    def __contains__(self, slot: tuple[int, int]) -> bool:
        return slot in self._rows

    def pop(self, partition: int, slot: int) -> Row | None:
        """The row of this slot, which is forgotten."""
        row = self._rows.pop((partition, slot), None)
        self._bytes -= 0 if row is None else _size(row)
        return row


def _size(row: Row) -> int:
    return OVERHEAD_BYTES + sum(map(len, row.cells.values()))


class Poller:
    """Asks for the next batch of each partition for which somebody waits.

    A row that a producer pushes with its notification is not asked for, if it is the next one. Else
    a partition is asked for at once when a producer notifies of an append; where none does, after
    each answer that had something; else after a pause that doubles from a few milliseconds to
    `poll_ms_max`, as a safety net. So an idle queue of 1,000 partitions costs some requests a
    second. Where batches come in quick succession it asks for several at a time.

    One for each queue, used by the event loop's thread; the requests are made by other threads.

    Args:
        queue: the queue.
        runtime: what the worker runs on.
        poll_ms_max: how long a partition's end is not looked at, at most.
        pushed_bytes_max: what may wait of the rows that were pushed.
    """

    def __init__(
        self, queue: Queue, runtime: Runtime, poll_ms_max: float, pushed_bytes_max: int
    ) -> None:
        self._queue = queue
        self._runtime = runtime
        self._clock = runtime.clock
        self._poll_ms_max = poll_ms_max
        self._waiting: dict[int, _Waiting] = {}
        self._notified: dict[int, _Waiting] = {}
        self._pushed = _PushedRows(pushed_bytes_max)
        self._next_due_ms = math.inf
        self._changed = asyncio.Event()

    def add(self, tail: TailWaiter) -> None:
        """Take in a partition."""
        now_ms = self._clock.monotonic_ms()
        # Their checks spread over the time between two of them.
        spread_ms = CHECK_EVERY_MS * ((tail.partition * 0.618) % 1)
        self._waiting[tail.partition] = _Waiting(tail, now_ms, now_ms - spread_ms)

    def remove(self, tail: TailWaiter) -> None:
        """Forget a partition."""
        known = self._waiting.get(tail.partition)
        if known is not None and known.tail is tail:
            del self._waiting[tail.partition]

    def demand(self, tail: TailWaiter) -> None:
        """Ask for this partition's next batch, when it is time, until something came.

        Until then the tail's reader is used by nobody else.
        """
        waiting = self._waiting[tail.partition]
        if not waiting.demanded:
            waiting.demanded = True
            self._expect(waiting)

    def push(self, row: Row) -> None:
        """Have a row that was appended, which need not be asked for. `notify` comes after it.

        The row is as good as one that was read: the caller saw to that.
        """
        if row.partition in self._waiting:
            self._pushed.put(row)

    def notify(self, partition: int) -> None:
        """Something was appended to this partition."""
        waiting = self._waiting.get(partition)
        if waiting is not None:
            waiting.notified += 1
            waiting.notified_ms = self._clock.monotonic_ms()
            self._expect(waiting)

    async def run(self) -> None:
        """Ask, until cancelled."""
        while True:
            self._changed.clear()
            now_ms = self._clock.monotonic_ms()
            self._ask_due(now_ms)
            await self._runtime.wait(self._changed, self._next_due_ms - now_ms)

    def _expect(self, waiting: _Waiting) -> None:
        """Look again whether this one is due."""
        if not waiting.demanded or waiting.busy:
            return
        pushed = waiting.tail.reader.next_slot in self._pushed
        if pushed or (waiting.notified and waiting.deaf_until_ms <= self._clock.monotonic_ms()):
            self._notified[waiting.tail.partition] = waiting
            self._changed.set()
        elif waiting.notified:
            waiting.due_ms = min(waiting.due_ms, waiting.deaf_until_ms)
        if waiting.due_ms < self._next_due_ms:
            self._next_due_ms = waiting.due_ms
            self._changed.set()

    def _take_pushed(self, waiting: _Waiting) -> bool:
        """Give a tail the rows that it stands before; whether there were any."""
        tail, batches, taken = waiting.tail, [], 0
        if self._waiting.get(tail.partition) is not waiting:
            return False  # It was removed meanwhile.
        reader, start = tail.reader, tail.end
        while (row := self._pushed.pop(*reader.next_slot)) is not None:
            try:
                came = reader.take(row)
            except CorruptLogError as exc:
                logger.debug("what came with a notification does not belong there: %s", exc)
                break
            if came is None:
                break
            batches += came
            taken += 1
        if not taken:
            return False
        segments = segments_of(reader, start, batches)
        for segment in segments:
            for filter_ in tail.filters:
                if not segment.reads(filter_):
                    with contextlib.suppress(HQueueError):  # The cursor that needs it meets it.
                        segment.cut(self._queue, filter_)
        waiting.notified = max(0, waiting.notified - taken)
        waiting.pause_ms = PAUSE_MS_NOTIFIED
        waiting.due_ms = self._clock.monotonic_ms() + waiting.pause_ms
        waiting.demanded = False
        tail.came(segments)
        return True

    def _ask_due(self, now_ms: float) -> None:
        """Ask for those that were notified, and now and then for those whose pause is over.

        What was pushed for one need not be asked for.
        """
        due, self._notified = [*self._notified.values()], {}
        if now_ms >= self._next_due_ms:
            idle = [w for w in self._waiting.values() if w.demanded and not w.busy]
            due += [w for w in idle if w.due_ms <= now_ms]
            if due:
                # Those at the end of their back-off gather, to be asked for in few requests.
                late = [w for w in idle if w.pause_ms >= self._poll_ms_max]
                due += [w for w in late if w.due_ms <= now_ms + TOGETHER_SHARE * w.pause_ms]
            left = [w.due_ms for w in idle if w.due_ms > now_ms]
            self._next_due_ms = min(left, default=math.inf)
        groups: dict[object, list[_Waiting]] = defaultdict(list)
        for waiting in due:
            if waiting.demanded and not waiting.busy and not self._take_pushed(waiting):
                waiting.busy = True
                groups[waiting if waiting.broken else waiting.tail.region_host].append(waiting)
        for group in groups.values():
            self._runtime.start(self._ask(group))

    async def _ask(self, group: list[_Waiting]) -> None:
        now_ms = self._clock.monotonic_ms()
        # Of one that was removed meanwhile the tail may have another reader by now.
        group = [w for w in group if self._waiting.get(w.tail.partition) is w]
        asked = [
            _Asked(
                w.tail,
                check=now_ms - w.checked_ms >= CHECK_EVERY_MS,
                prefetch=w.hits >= HITS_TO_PREFETCH or w.notified >= NOTIFIED_TO_PREFETCH,
            )
            for w in group
        ]
        notified = [waiting.notified for waiting in group]
        error = await self._runtime.read(lambda: self._ask_once(asked))
        now_ms = self._clock.monotonic_ms()
        for waiting, answer, notified_before in zip(group, asked, notified, strict=True):
            waiting.busy = False
            # Where less came than was notified of before it was asked for, no more is there.
            came = len(answer.segments)
            waiting.notified -= came if 0 < came < notified_before else notified_before
            waiting.notified = max(0, waiting.notified)
            if self._waiting.get(answer.reader.partition) is not waiting:
                continue  # It was removed meanwhile.
            moved = bool(answer.segments) or not answer.reader.at_tail
            waiting.fruitless = 0 if moved or not notified_before else waiting.fruitless + 1
            if waiting.fruitless >= FRUITLESS_MAX:
                waiting.deaf_until_ms = now_ms + PAUSE_MS_NOTIFIED
            waiting.pause_ms = self._pause_ms(waiting, moved, error, now_ms)
            waiting.due_ms = now_ms + waiting.pause_ms
            waiting.hits = _hits(waiting.hits, answer)
            waiting.broken = isinstance(error, CorruptLogError)
            if isinstance(error, QueueStateError):
                waiting.checked_ms = -CHECK_EVERY_MS  # It may be a truncation.
            elif answer.check and error is None:
                waiting.checked_ms = now_ms
            if moved:
                waiting.demanded = False
                waiting.tail.came(answer.segments)
            self._expect(waiting)
        if error is not None:
            logger.warning("queue %s can't be read now: %s", self._queue.name, error)

    def _ask_once(self, asked: list[_Asked]) -> HQueueError | None:
        """Ask, in a thread. What came before an error counts: the readers have passed it."""
        batches = defaultdict(list)
        error: HQueueError | None = None
        try:
            for each in asked:
                if each.check:
                    each.reader.check_tail(self._one_try())
            for rows_max in (1, PREFETCH_ROWS):
                readers = [
                    each.reader
                    for each in asked
                    if each.reader.at_tail and each.prefetch == (rows_max > 1)
                ]
                for came in self._queue.poll(
                    readers, BYTES_MAX, rows_max=rows_max, deadline=self._one_try
                ):
                    for batch in came:
                        batches[batch.partition].append(batch)
        except HQueueError as exc:
            error = exc
        for each in asked:
            each.segments = segments_of(each.reader, each.start, batches[each.reader.partition])
            for segment in each.segments:
                for filter_ in each.filters:
                    with contextlib.suppress(HQueueError):  # The cursor that needs it meets it.
                        segment.cut(self._queue, filter_)
        return error

    def _one_try(self) -> Deadline:
        return Deadline(self._clock, 0)

    def _pause_ms(
        self, waiting: _Waiting, moved: bool, error: HQueueError | None, now_ms: float
    ) -> float:
        if error is not None:
            return min(max(PAUSE_MS_FAILED, waiting.pause_ms * 2), PAUSE_MS_FAILED_MAX)
        notified = now_ms - waiting.notified_ms < NOTIFIED_TRUST_MS
        if moved:
            return PAUSE_MS_MIN if notified else 0.0
        pause_ms_min = PAUSE_MS_NOTIFIED if notified else PAUSE_MS_MIN
        return min(max(pause_ms_min, waiting.pause_ms * 2), self._poll_ms_max)


def _hits(before: int, answer: _Asked) -> int:
    """Answers with a batch, one after another; less than none where reading ahead brought one."""
    if not answer.segments:
        return min(before, 0)
    if answer.prefetch and len(answer.segments) == 1:
        return HITS_TO_PREFETCH - HITS_UNTIL_NEXT_TRY
    return min(before + 1, HITS_TO_PREFETCH)

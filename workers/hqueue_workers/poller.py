"""Asking HBase for the next batches of a queue's partitions: of all that wait, in few requests."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections import OrderedDict, defaultdict
from typing import TYPE_CHECKING, Protocol

from hqueue import CorruptLogError, HQueueError, PartitionReader, Queue, QueueStateError
from hqueue.clock import Deadline
from hqueue_workers.runtime import Runtime
from hqueue_workers.stretch import OVERHEAD_BYTES, Stretch, Wanted, stretches_of

if TYPE_CHECKING:
    from hqueue.ports import Row

__all__ = ["Poller", "Tail"]

logger = logging.getLogger(__name__)

PAUSE_MS_MIN = 5.0
PAUSE_MS_WOKEN = 100.0
"""The first pause in a partition whose producers tell of what they append."""
PAUSE_MS_FAILED = 1_000.0
PAUSE_MS_FAILED_MAX = 30_000.0
WOKEN_TRUST_MS = 10_000.0
TOGETHER_SHARE = 0.5
"""Who is due within this share of its pause is asked for together with those that are due."""
CHECK_EVERY_MS = 60_000.0
HITS_TO_READ_AHEAD = 4
"""After so many answers with a batch, one after another, several are asked for at a time: that
takes two requests, and is worth it where several come."""
HITS_UNTIL_NEXT_TRY = 16
TOLD_TO_READ_AHEAD = 4
ROWS_AHEAD = 100
BYTES_MAX = 1024 * 1024


class Tail(Protocol):
    """One who waits for the next batch of a partition."""

    partition: int
    reader: PartitionReader
    region_host: str | None
    wanted: frozenset[Wanted]

    @property
    def end(self) -> int:
        """The ID up to which it was given what came."""

    def came(self, stretches: list[Stretch]) -> None:
        """Take what came: nothing, if only the reader's place changed."""


class _Waiting:
    """What the poller knows of one tail."""

    __slots__ = ("broken", "busy", "checked_ms", "demanded", "due_ms", "hits", "pause_ms", "tail",
                 "told", "told_ms")  # fmt: skip

    def __init__(self, tail: Tail, now_ms: float, checked_ms: float) -> None:
        self.tail = tail
        self.demanded = self.busy = False
        self.told = 0
        """Appends that were told of, and whose batches did not come yet, about."""
        self.broken = False
        """Whether it was asked for when something was corrupt: then it is asked for alone."""
        self.hits = 0
        self.due_ms = now_ms
        self.pause_ms = PAUSE_MS_MIN
        self.told_ms = -WOKEN_TRUST_MS
        self.checked_ms = checked_ms


class _Asked:
    """A tail as it was when it was asked for, and what came."""

    __slots__ = ("ahead", "check", "reader", "start", "stretches", "wanted")

    def __init__(self, tail: Tail, *, check: bool, ahead: bool) -> None:
        self.reader = tail.reader
        self.start = tail.end
        self.wanted = tail.wanted
        self.check = check
        """Whether to look at the end of the log itself, too."""
        self.ahead = ahead
        """Whether to ask for more than one batch: they come in quick succession."""
        self.stretches: list[Stretch] = []


class _Handed:
    """Rows that were handed in, by their places; the oldest are dropped when they are too many."""

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

    def __contains__(self, place: tuple[int, int]) -> bool:
        return place in self._rows

    def pop(self, partition: int, slot: int) -> Row | None:
        """The row of this place, which is forgotten."""
        row = self._rows.pop((partition, slot), None)
        self._bytes -= 0 if row is None else _size(row)
        return row


def _size(row: Row) -> int:
    return OVERHEAD_BYTES + sum(map(len, row.cells.values()))


class Poller:
    """Asks for the next batch of each partition for which somebody waits.

    A row that a producer hands in with its wake-up is not asked for, if it is the next one. Else a
    partition is asked for at once when a producer told of an append; where none tells, after
    each answer that had something; else after a pause that doubles from a few milliseconds to
    `poll_ms_max`, as a safety net. So an idle queue of 1,000 partitions costs some requests a
    second. Where batches come in quick succession it asks for several at a time.

    One for each queue, used by the event loop's thread; the requests are made by other threads.

    Args:
        queue: the queue.
        runtime: what the worker runs on.
        poll_ms_max: how long a partition's end is not looked at, at most.
        handed_bytes_max: what may wait of the rows that were handed in.
    """

    def __init__(
        self, queue: Queue, runtime: Runtime, poll_ms_max: float, handed_bytes_max: int
    ) -> None:
        self._queue = queue
        self._runtime = runtime
        self._clock = runtime.clock
        self._poll_ms_max = poll_ms_max
        self._waiting: dict[int, _Waiting] = {}
        self._woken: list[_Waiting] = []
        self._handed = _Handed(handed_bytes_max)
        self._next_due_ms = math.inf
        self._changed = asyncio.Event()

    def add(self, tail: Tail) -> None:
        """Know a partition."""
        now_ms = self._clock.monotonic_ms()
        # Their checks spread over the time between two of them.
        spread_ms = CHECK_EVERY_MS * ((tail.partition * 0.618) % 1)
        self._waiting[tail.partition] = _Waiting(tail, now_ms, now_ms - spread_ms)

    def remove(self, tail: Tail) -> None:
        """Forget a partition."""
        known = self._waiting.get(tail.partition)
        if known is not None and known.tail is tail:
            del self._waiting[tail.partition]

    def demand(self, tail: Tail) -> None:
        """Ask for this partition's next batch, when it is time, until something came.

        Until then the tail's reader is used by nobody else.
        """
        waiting = self._waiting[tail.partition]
        if not waiting.demanded:
            waiting.demanded = True
            self._expect(waiting)

    def hand(self, row: Row) -> None:
        """Have a row that was appended, which need not be asked for. `wake` comes after it."""
        if row.partition in self._waiting:
            self._handed.put(row)

    def wake(self, partition: int) -> None:
        """Something was appended to this partition."""
        waiting = self._waiting.get(partition)
        if waiting is not None:
            waiting.told += 1
            waiting.told_ms = self._clock.monotonic_ms()
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
        if waiting.told or waiting.tail.reader.place in self._handed:
            self._woken.append(waiting)
        self._next_due_ms = min(self._next_due_ms, waiting.due_ms)
        self._changed.set()

    def _take_handed(self, waiting: _Waiting) -> bool:
        """Give a tail the rows that it stands before; whether there were any."""
        tail, batches, taken = waiting.tail, [], 0
        if self._waiting.get(tail.partition) is not waiting:
            return False  # It was removed meanwhile.
        reader, start = tail.reader, tail.end
        while (row := self._handed.pop(*reader.place)) is not None:
            try:
                came = reader.take(row)
            except CorruptLogError as exc:
                logger.debug("what came with a wake-up does not belong there: %s", exc)
                break
            if came is None:
                break
            batches += came
            taken += 1
        if not taken:
            return False
        stretches = stretches_of(reader, start, batches)
        for stretch in stretches:
            for wanted in tail.wanted:
                if not stretch.reads(wanted):
                    with contextlib.suppress(HQueueError):  # Whoever needs it will meet it.
                        stretch.cut(self._queue, wanted)
        waiting.told = max(0, waiting.told - taken)
        waiting.pause_ms = PAUSE_MS_WOKEN
        waiting.due_ms = self._clock.monotonic_ms() + waiting.pause_ms
        waiting.demanded = False
        tail.came(stretches)
        return True

    def _ask_due(self, now_ms: float) -> None:
        """Ask for those that were woken, and now and then for those whose pause is over.

        What was handed in for one need not be asked for.
        """
        due, self._woken = self._woken, []
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
            if waiting.demanded and not waiting.busy and not self._take_handed(waiting):
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
                ahead=w.hits >= HITS_TO_READ_AHEAD or w.told >= TOLD_TO_READ_AHEAD,
            )
            for w in group
        ]
        told = [waiting.told for waiting in group]
        error = await self._runtime.read(lambda: self._ask_once(asked))
        now_ms = self._clock.monotonic_ms()
        for waiting, answer, told_before in zip(group, asked, told, strict=True):
            waiting.busy = False
            # Where less came than was told of before it was asked for, no more is there.
            came = len(answer.stretches)
            waiting.told -= came if 0 < came < told_before else told_before
            waiting.told = max(0, waiting.told)
            if self._waiting.get(answer.reader.partition) is not waiting:
                continue  # It was removed meanwhile.
            moved = bool(answer.stretches) or not answer.reader.at_tail
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
                waiting.tail.came(answer.stretches)
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
            for rows_max in (1, ROWS_AHEAD):
                readers = [
                    each.reader
                    for each in asked
                    if each.reader.at_tail and each.ahead == (rows_max > 1)
                ]
                for came in self._queue.poll(
                    readers, BYTES_MAX, rows_max=rows_max, deadline=self._one_try
                ):
                    for batch in came:
                        batches[batch.partition].append(batch)
        except HQueueError as exc:
            error = exc
        for each in asked:
            each.stretches = stretches_of(each.reader, each.start, batches[each.reader.partition])
            for stretch in each.stretches:
                for wanted in each.wanted:
                    with contextlib.suppress(HQueueError):  # Whoever needs it will meet it.
                        stretch.cut(self._queue, wanted)
        return error

    def _one_try(self) -> Deadline:
        return Deadline(self._clock, 0)

    def _pause_ms(
        self, waiting: _Waiting, moved: bool, error: HQueueError | None, now_ms: float
    ) -> float:
        if error is not None:
            return min(max(PAUSE_MS_FAILED, waiting.pause_ms * 2), PAUSE_MS_FAILED_MAX)
        told = now_ms - waiting.told_ms < WOKEN_TRUST_MS
        if moved:
            return PAUSE_MS_MIN if told else 0.0
        pause_ms_min = PAUSE_MS_WOKEN if told else PAUSE_MS_MIN
        return min(max(pause_ms_min, waiting.pause_ms * 2), self._poll_ms_max)


def _hits(before: int, answer: _Asked) -> int:
    """Answers with a batch, one after another; less than none where reading ahead brought one."""
    if not answer.stretches:
        return min(before, 0)
    if answer.ahead and len(answer.stretches) == 1:
        return HITS_TO_READ_AHEAD - HITS_UNTIL_NEXT_TRY
    return min(before + 1, HITS_TO_READ_AHEAD)

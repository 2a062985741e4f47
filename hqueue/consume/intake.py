"""Reading partitions of several queues that come and go: what is behind is prefetched, and the ends
of what is not are followed together.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import threading
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Generic, TypeVar

from hqueue.consume.fetcher import Fetch, Fetcher, Pace
from hqueue.consume.prefetch import FREE_S, PREFETCH_REQUESTS
from hqueue.consume.queue_reader import QueueReader
from hqueue.consume.scan import Scan
from hqueue.errors import ClosedError, HQueueError, QueueStateError
from hqueue.log import Batch, PartitionCursor
from hqueue.log.steps import Work
from hqueue.runtime.alarm import Alarm
from hqueue.runtime.backoff import Backoff
from hqueue.runtime.clock import SYSTEM_CLOCK, Clock, Deadline, Patience
from hqueue.runtime.loop import background
from hqueue.runtime.program_loop import ProgramLoop
from hqueue.runtime.steps import Pause, taken_in
from hqueue.runtime.waiting import Condition, InterruptibleFuture, wait_for_all

__all__ = ["FetchedBatches", "Intake"]

PACE = Pace(
    idle=Backoff(2.0, 100.0, growth=1.5),
    failed=Backoff(100.0, 2_000.0, growth=1.5),
    check_every_ms=5_000.0,
    gather_share=1.0,  # One request for all costs no more than one for some.
)

ROOM_LOOKS = Backoff(5.0, 50.0, growth=1.5)
"""The pauses between looks whether there is room for what came at the ends: it comes from many
queues at a time, and perhaps nothing is taken for long."""

KeyT = TypeVar("KeyT", bound=Hashable)


@dataclasses.dataclass(frozen=True, slots=True)
class FetchedBatches(Generic[KeyT]):
    """The batches that were read next of a partition; perhaps none that are wanted."""

    key: KeyT
    batches: Sequence[Batch]
    cursor: int
    """The ID from which on a reader would go on after these."""
    ordinal: int | None
    """Messages that the partition had before that; None if that is not known."""
    expired: int
    """Messages that should have come before these, and are gone."""
    short: bool = False
    """Whether the log has stayed shorter, for an operation's bound, than the position at which
    it is read: so it is another log, which began later. Has no batches then, and comes again.
    """


class _Partition(Fetch[PartitionCursor], Generic[KeyT]):
    """A partition that is read."""

    __slots__ = ("_short_until", "busy", "cursor", "expired", "key", "source")

    def __init__(
        self, key: KeyT, source: _Source[KeyT], reader: PartitionCursor, now_ms: float
    ) -> None:
        super().__init__(reader, PACE, now_ms)
        self.key = key
        self.source = source
        self.busy = False
        """Whether a request is under way: nobody else touches the reader."""
        self.cursor = reader.cursor
        """Up to where its batches were handed over."""
        self.expired = 0
        """Messages that were reported as gone."""
        self._short_until: Deadline | None = None

    def stays_short(self) -> bool:
        """Whether the log was too short at every look for an operation's bound."""
        if not self.reader.short:
            self._short_until = None
            return False
        self._short_until = self._short_until or self.source.reader.deadline()
        return self._short_until.expired


class _Source(Generic[KeyT]):
    """A queue with partitions that are read."""

    def __init__(self, reader: QueueReader) -> None:
        self.reader = reader
        self.waiting: Fetcher[_Partition[KeyT]] = Fetcher()
        """Those at their ends, and those that failed and wait."""
        self.polled = False
        """Whether a request for ends is under way."""
        self.patience = Patience(reader.deadline)
        self.partitions = 0


class Intake(Generic[KeyT]):
    """Gives what comes in some partitions, those of one in order, as they come and go.

    Requests are made by tasks of the process's loop, or of the taker's own, at most
    `PREFETCH_REQUESTS` at a time for partitions that are behind and one for the ends of each queue,
    and only this many answers wait to be taken. So nothing goes on by itself when nothing is taken,
    but for what is under way. Where there is no loop the taker makes them.

    One thread or task takes; any thread may add, remove, wake and close.

    Args:
        bytes_max: the bodies held at a time and on their way, about; at least five batches.
        clock: where time comes from.
        loop: the loop of the task that takes, by `take_in_loop`; None if a thread takes.
    """

    def __init__(
        self, bytes_max: int, clock: Clock = SYSTEM_CLOCK, loop: ProgramLoop | None = None
    ) -> None:
        self._request_bytes_max = max(1, bytes_max // (1 + PREFETCH_REQUESTS))
        self._clock = clock
        self._partitions: dict[KeyT, _Partition[KeyT]] = {}
        self._sources: dict[QueueReader, _Source[KeyT]] = {}
        self._behind: collections.deque[_Partition[KeyT]] = collections.deque()
        self._ready: collections.deque[
            tuple[_Partition[KeyT], FetchedBatches[KeyT] | BaseException]
        ] = collections.deque()
        self._asked = 0
        """Requests under way for partitions that are behind."""
        self._lock = threading.RLock()
        self._work = Condition(self._lock, carried=True)
        self._woken = False
        self._closed = False
        self._alarm = None if loop is None else Alarm(loop)
        """Wakes the task that takes."""
        self._loop = background() if loop is None else loop
        self._own: collections.deque[Callable[[], None]] = collections.deque()
        """Requests for `take` to make itself: there is no loop."""
        self._own_under_way = False
        """Whether it makes one: then nobody takes what is ready."""

    def add(
        self, key: KeyT, reader: QueueReader, partition: int, scan: Scan, ordinal: int | None = None
    ) -> None:
        """Read a partition from a scan's start on.

        Args:
            key: identifies it here.
            reader: of its queue.
            partition: its number in the queue.
            scan: what is wanted of it.
            ordinal: how many messages the partition had before the start, if that is known: so
                it is seen how many of them are gone.
        """
        cursor = reader.reading.cursor(partition, scan, self._request_bytes_max, ordinal)
        with self._lock:
            if self._closed:
                raise ClosedError(
                    "the consumer was closed, and reads nothing more: make another one"
                )
            source = self._sources.setdefault(reader, _Source(reader))
            source.partitions += 1
            fetch = _Partition(key, source, cursor, self._clock.monotonic_ms())
            self._partitions[key] = fetch
            self._behind.append(fetch)
            self._notify()

    def remove(self, keys: Iterable[KeyT]) -> None:
        """Read these no more. What was read of them, and not taken, is dropped."""
        with self._lock:
            unused = self._remove(keys)
            self._ready = collections.deque(each for each in self._ready if self._is_read(each[0]))
            self._notify()
        self._free(unused)

    def __contains__(self, key: KeyT) -> bool:
        return key in self._partitions

    @property
    def asks(self) -> bool:
        """Whether a request for partitions that are behind is under way."""
        return self._asked > 0

    def take(self, timeout_ms: float) -> FetchedBatches[KeyT] | None:
        """What came next in one of the partitions; None if nothing did in time, or it was woken.

        Raises:
            HQueueError: as `PartitionReader.read`. What is read of other partitions stays; and this
                one is asked for again.
            ClosedError: it was closed.
        """
        ends_ms = self._clock.monotonic_ms() + timeout_ms
        while True:
            with self._lock:
                came, own = self._await(ends_ms)
                if own is None:
                    return came
                self._own_under_way = True
            try:
                own()
            finally:
                self._own_under_way = False

    async def take_in_loop(self, timeout_ms: float) -> FetchedBatches[KeyT] | None:
        """Like `take`, for the task. If that is cancelled, what came is there for the next call."""
        ends_ms = self._clock.monotonic_ms() + timeout_ms
        assert self._alarm is not None
        while True:
            with self._lock:
                found = self._look(ends_ms)
            if not isinstance(found, float):
                return found
            await self._alarm.wait(found * 1e3)

    def wake(self) -> None:
        """Let `take` return: the one that waits, or else the next one if it would have to."""
        with self._lock:
            self._woken = True
            self._notify()

    def close(self) -> None:
        """Read nothing any more, and free what is held in the store."""
        with self._lock:
            self._closed = True
            unused = self._remove(list(self._partitions))
            self._ready.clear()
            self._notify()
        self._free(unused)

    def _free(self, unused: Sequence[_Partition[KeyT]]) -> None:
        """Free what these hold in the store, which may take a while."""
        freed: list[InterruptibleFuture[None]] = []
        for each in filter(lambda each: each.reader.holds, unused):
            release, reader = each.reader.release(), each.source.reader
            if self._loop is None:
                reader.do_long(release)
            elif isinstance(self._loop, ProgramLoop):
                self._loop.start(reader.in_loop.do_long, release)  # That loop must not wait here.
            else:
                freed.append(self._loop.start(reader.in_loop.do_long, release))
        wait_for_all(freed, FREE_S)

    # The lock is held from here on, but for what makes requests.

    def _await(
        self, ends_ms: float
    ) -> tuple[FetchedBatches[KeyT] | None, Callable[[], None] | None]:
        """What came, or what this thread must do first; nothing if neither came in time,
        or it was woken.
        """
        while not self._own:
            found = self._look(ends_ms)
            if not isinstance(found, float):
                return found, None
            if not self._own:
                self._work.wait(found)
        return None, self._own.popleft()

    def _look(self, ends_ms: float) -> FetchedBatches[KeyT] | float | None:
        """Ask for what is due. What came; nothing if that didn't come in time, or it was woken; or
        for how many seconds there is nothing to do but to wait.
        """
        if self._closed:
            raise ClosedError("the consumer was closed, and reads nothing more: make another one")
        now_ms = self._clock.monotonic_ms()
        self._ask(now_ms)
        if self._ready:
            fetch, came = self._ready.popleft()
            if isinstance(came, BaseException):
                self._want(fetch)
                raise came
            self._ask(now_ms)
            self._notify()
            return came
        if self._woken or now_ms >= ends_ms:
            self._woken = False
            return None
        return self._wait_s(now_ms, ends_ms)

    def _notify(self) -> None:
        """Have the taker look."""
        self._work.notify_all()
        if self._alarm is not None:
            self._alarm.ring()

    def _wait_s(self, now_ms: float, ends_ms: float) -> float:
        """How long there is nothing to ask for."""
        waiting = [each.waiting for each in self._sources.values() if not each.polled]
        due_ms = min((each.next_due_ms for each in waiting), default=ends_ms)
        return max(0.0, min(due_ms, ends_ms) - now_ms) / 1e3

    def _is_read(self, fetch: _Partition[KeyT]) -> bool:
        return self._partitions.get(fetch.key) is fetch

    def _remove(self, keys: Iterable[KeyT]) -> list[_Partition[KeyT]]:
        """Remove these; returns those without a request under way, for the caller to free when it
        no longer holds the lock.
        """
        unused = []
        for key in keys:
            fetch = self._partitions.pop(key, None)
            if fetch is None:
                continue
            if not fetch.busy:
                unused.append(fetch)
            fetch.source.waiting.drop(fetch)
            fetch.source.partitions -= 1
            if not fetch.source.partitions:
                del self._sources[fetch.source.reader]
        return unused

    def _want(self, fetch: _Partition[KeyT]) -> None:
        """Ask for it again: at once if it is behind, else when it is due."""
        if not self._is_read(fetch):
            return
        if fetch.reader.at_tail or fetch.due_ms > self._clock.monotonic_ms():
            fetch.source.waiting.request(fetch)
        else:
            self._behind.append(fetch)

    def _ask(self, now_ms: float) -> None:
        for source in self._sources.values():
            if source.polled or len(self._ready) >= PREFETCH_REQUESTS:
                continue
            due = source.waiting.take_due(now_ms)
            self._behind.extend(fetch for fetch in due if not fetch.reader.at_tail)
            tails = [fetch for fetch in due if fetch.reader.at_tail]
            if tails:
                source.polled = True
                self._start(tails, self._poll)
        while self._behind and self._asked + len(self._ready) < PREFETCH_REQUESTS:
            fetch = self._behind.popleft()
            if self._is_read(fetch):
                self._asked += 1
                fetch.begin(now_ms)
                self._start([fetch], self._read)

    def _start(
        self,
        fetches: list[_Partition[KeyT]],
        work: Callable[[list[_Partition[KeyT]]], Work[None]],
    ) -> None:
        for fetch in fetches:
            fetch.busy = True
        reader = fetches[0].source.reader
        if self._loop is None:
            self._own.append(lambda: reader.do_long(work(fetches)))
        else:
            self._loop.start(reader.in_loop.do_long, work(fetches))

    def _read(self, fetches: list[_Partition[KeyT]]) -> Work[None]:
        """Ask for more of one that is behind."""
        fetch = fetches[0]
        error: BaseException | None = None
        batches: list[Batch] = []
        deadline = fetch.source.reader.deadline()
        try:
            batches = yield from deadline.bound(fetch.reader.read(deadline))
        except BaseException as exc:  # Whatever it is, the taker must learn it.
            error = exc
        with self._lock:
            self._asked -= 1
            if batches:
                self._put(fetch, batches)
            unused = self._end(fetches, error)
        yield from _released(unused)

    def _poll(self, fetches: list[_Partition[KeyT]]) -> Work[None]:
        """Ask once for what comes next at the ends of some partitions of a queue."""
        source = fetches[0].source
        error: BaseException | None = None
        came = source.reader.reading.fetch(fetches, self._request_bytes_max, None)
        by_number = {fetch.reader.partition: fetch for fetch in fetches}
        try:
            yield from taken_in(came, functools.partial(self._take_in, by_number))
        except BaseException as exc:
            error = exc
        with self._lock:
            source.polled = False
            unused = self._end(fetches, error)
        yield from _released(unused)

    def _take_in(
        self, by_number: Mapping[int, _Partition[KeyT]], batches: Iterable[Batch]
    ) -> Work[None]:
        """Put what came of some partitions, when there is room for it."""
        pauses = ROOM_LOOKS.pauses()
        while not self._has_room():
            yield Pause(next(pauses))
        came: dict[int, list[Batch]] = {}
        for batch in batches:
            came.setdefault(batch.partition, []).append(batch)
        with self._lock:
            if self._closed:
                raise ClosedError(
                    "the consumer was closed, and reads nothing more: make another one"
                )
            for number, each in came.items():
                self._put(by_number[number], each)

    def _has_room(self) -> bool:
        return self._closed or self._own_under_way or len(self._ready) < PREFETCH_REQUESTS

    def _put(
        self, fetch: _Partition[KeyT], batches: Sequence[Batch], *, short: bool = False
    ) -> None:
        if not self._is_read(fetch):
            return
        ordinal: int | None
        if batches and batches[-1].header.end != fetch.reader.cursor:
            cursor, ordinal = batches[-1].header.end, batches[-1].header.next_ordinal
        else:
            cursor, ordinal = fetch.reader.cursor, fetch.reader.ordinal
        gone, fetch.expired = fetch.reader.expired - fetch.expired, fetch.reader.expired
        fetch.cursor = cursor
        self._ready.append(
            (fetch, FetchedBatches(fetch.key, batches, cursor, ordinal, gone, short))
        )
        self._notify()

    def _end(
        self, fetches: list[_Partition[KeyT]], error: BaseException | None
    ) -> list[_Partition[KeyT]]:
        """A request is over. Returns what was removed meanwhile, to be freed as by `_remove`."""
        source, now_ms = fetches[0].source, self._clock.monotonic_ms()
        refused = error if isinstance(error, QueueStateError) else None
        if refused is not None:
            # A queue that is truncated is disabled for some seconds, and missing for a moment.
            try:
                source.patience.bear(refused)
                error = None
            except QueueStateError:
                pass
        elif error is None:
            source.patience.renew()
        reported = False
        unused = []
        for fetch in fetches:
            fetch.busy = False
            if not self._is_read(fetch):
                unused.append(fetch)
                continue
            fetch.answered(now_ms, error if isinstance(error, HQueueError) else refused)
            if fetch.reader.cursor > fetch.cursor:
                self._put(fetch, [])  # Of what came nothing was wanted.
            elif error is None and refused is None and fetch.stays_short():
                self._put(fetch, [], short=True)
            if error is not None and not reported:
                reported = True
                self._ready.append((fetch, error))  # It is wanted again when that is taken.
            else:
                self._want(fetch)
        self._notify()
        return unused


def _released(unused: Iterable[_Partition[KeyT]]) -> Work[None]:
    """Free what they hold in the store."""
    for fetch in unused:
        yield from fetch.reader.release()

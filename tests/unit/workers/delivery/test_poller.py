"""When a worker asks for what comes next, and how often."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, cast

import pytest

from hqueue import CorruptLogError, Queue
from hqueue.consume.fetcher import to_check, together
from hqueue.engine import Clock, Fetch, PartitionCursor
from hqueue_workers.delivery.poller import FRUITLESS_MAX, PAUSE_MS_NOTIFIED, Poller
from hqueue_workers.delivery.segment import Segment, SubscriptionFilter
from tests.support.worker_doubles import SteppedRuntime

POLL_MS_MAX = 1_000.0


class TimedRuntime(SteppedRuntime):
    """A runtime in which time passes only where nothing else is left to do."""

    def __init__(self, until_ms: float) -> None:
        super().__init__()
        self.over = asyncio.Event()
        self._until_ms = self.stepped.now_ms + until_ms

    async def wait(self, changed: asyncio.Event, timeout_ms: float) -> None:
        for _ in range(20):
            await asyncio.sleep(0)
        if not changed.is_set():
            if math.isinf(timeout_ms) or self.stepped.now_ms >= self._until_ms:
                self.over.set()
                await changed.wait()
            self.stepped.now_ms += max(timeout_ms, 0.1)


class Reader:
    """A reader at its partition's end."""

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.cursor = 0
        self.at_tail = True
        self.checks = 0

    @property
    def next_slot(self) -> tuple[int, int]:
        return self.partition, self.cursor

    def check_tail(self) -> None:
        self.checks += 1


class Waiter:
    """One that waits for a partition, and goes on waiting when something came."""

    def __init__(self, partition: int, poller: Poller, clock: Clock) -> None:
        self.partition = partition
        self.cursor = cast(PartitionCursor, Reader(partition))
        self.region_host: str | None = None
        self.filters: frozenset[SubscriptionFilter] = frozenset()
        self.end = 0
        self.came_at_ms: list[float] = []
        self._poller = poller
        self._clock = clock
        poller.add(self)
        poller.demand(self)

    def came(self, segments: list[Segment]) -> None:
        self.end = segments[-1].end
        self.came_at_ms.append(self._clock.monotonic_ms())
        self._poller.demand(self)


class Asked:
    """A queue that notes what it is asked, and what it is asked on."""

    def __init__(self, runtime: TimedRuntime) -> None:
        self.runtime = runtime
        self.name = "q"
        self.requests: list[tuple[int, ...]] = []
        self.ready: set[int] = set()
        self.corrupt: set[int] = set()

    async def fetch(
        self, fetches: Sequence[Fetch[Any]], *_: Any, **options: Any
    ) -> AsyncIterator[list[Any]]:
        await asyncio.sleep(0)
        for cursor in to_check(fetches):
            cursor.check_tail()
        for asked in together(fetches):
            self.requests.append(tuple(cursor.partition for cursor in asked.readers))
            for cursor in asked.readers:
                if cursor.partition in self.corrupt:
                    raise CorruptLogError("corrupt")
                if cursor.partition in self.ready:
                    self.ready.discard(cursor.partition)
                    cursor.cursor += 1
            yield []


def play(
    partitions: int, until_ms: float, scene: Callable[[Poller, Asked, list[Waiter]], None]
) -> tuple[Asked, list[Waiter]]:
    async def run() -> tuple[Asked, list[Waiter]]:
        runtime = TimedRuntime(until_ms)
        queue = Asked(runtime)
        poller = Poller(cast(Queue, queue), queue, runtime, POLL_MS_MAX, 0)
        waiters = [Waiter(number, poller, runtime.clock) for number in range(partitions)]
        scene(poller, queue, waiters)
        runtime.start(poller.run())
        await asyncio.wait(
            {asyncio.ensure_future(runtime.over.wait()), runtime.failed},
            return_when=asyncio.FIRST_COMPLETED,
        )
        await runtime.close()
        return queue, waiters

    return asyncio.run(run())


def test_a_thousand_idle_partitions_cost_about_a_request_a_second() -> None:
    queue, waiters = play(1_000, 60_000, lambda *_: None)
    # One request here is one for each 256 partitions at HBase.
    assert len(queue.requests) <= 60 + 15
    assert all(cast(Any, waiter.cursor).checks in (1, 2) for waiter in waiters)
    for number in (0, 999):
        times = sum(number in asked for asked in queue.requests)
        assert 50 <= times <= 75


def test_one_that_was_woken_is_asked_for_at_once_and_alone() -> None:
    def scene(poller: Poller, queue: Asked, waiters: list[Waiter]) -> None:
        async def later() -> None:
            while len(queue.requests) < 20:
                await asyncio.sleep(0)
            queue.ready.add(3)
            poller.notify(3)

        queue.runtime.start(later())

    queue, waiters = play(10, 60_000, scene)
    assert (3,) in queue.requests
    assert len(waiters[3].came_at_ms) == 1
    assert not any(waiter.came_at_ms for waiter in waiters if waiter.partition != 3)


@pytest.mark.parametrize("partitions", [1, 10])
def test_a_notification_that_was_lost_costs_one_pause_at_most(partitions: int) -> None:
    appended_ms: list[float] = []

    def scene(poller: Poller, queue: Asked, waiters: list[Waiter]) -> None:
        async def later() -> None:
            while len(queue.requests) < 20:
                await asyncio.sleep(0)
            queue.ready.add(0)
            appended_ms.append(queue.runtime.clock.monotonic_ms())

        queue.runtime.start(later())

    _, waiters = play(partitions, 60_000, scene)
    (came_ms,) = waiters[0].came_at_ms
    assert came_ms - appended_ms[0] <= POLL_MS_MAX + 1


def test_a_corrupt_partition_does_not_hold_up_the_others() -> None:
    def scene(poller: Poller, queue: Asked, waiters: list[Waiter]) -> None:
        queue.corrupt = {0}
        queue.ready = {1, 2}

    _, waiters = play(3, 60_000, scene)
    assert [len(waiter.came_at_ms) for waiter in waiters] == [0, 1, 1]


def test_notifications_behind_which_there_is_nothing_cost_some_requests_a_second() -> None:
    """Anyone can send them, and as many as he likes."""
    began_ms: list[float] = []

    def scene(poller: Poller, queue: Asked, waiters: list[Waiter]) -> None:
        async def flood() -> None:
            began_ms.append(queue.runtime.clock.monotonic_ms())
            while True:
                poller.notify(0)
                await asyncio.sleep(0)

        async def later() -> None:
            while queue.runtime.clock.monotonic_ms() < began_ms[0] + 5_000:
                await asyncio.sleep(0)
            queue.ready.add(0)

        queue.runtime.start(flood())
        queue.runtime.start(later())

    queue, waiters = play(1, 10_000, scene)
    assert len(queue.requests) <= FRUITLESS_MAX + 10 * 12
    (came_ms,) = waiters[0].came_at_ms
    assert came_ms - began_ms[0] <= 5_000 + 2 * PAUSE_MS_NOTIFIED


def test_one_notification_costs_one_request_and_three_cost_three() -> None:
    asked: list[int] = []

    def scene(poller: Poller, queue: Asked, waiters: list[Waiter]) -> None:
        async def later() -> None:
            while len(queue.requests) < 20:
                await asyncio.sleep(0)
            for notifications in (1, 3):
                before = len(queue.requests)
                for _ in range(notifications):
                    poller.notify(0)
                for _ in range(notifications):
                    queue.ready.add(0)
                    came = len(waiters[0].came_at_ms)
                    while len(waiters[0].came_at_ms) == came:
                        await asyncio.sleep(0)
                asked.append(len(queue.requests) - before)

        queue.runtime.start(later())

    play(1, 60_000, scene)
    assert asked == [1, 3]


def test_one_that_took_the_place_of_another_stays_when_that_is_forgotten() -> None:
    def scene(poller: Poller, queue: Asked, waiters: list[Waiter]) -> None:
        poller.remove(cast("Any", Waiter(1, poller, queue.runtime.clock)))
        poller.remove(cast("Any", waiters[0]))
        poller.remove(cast("Any", waiters[0]))
        newcomer = Waiter(0, poller, queue.runtime.clock)
        poller.remove(cast("Any", waiters[0]))
        waiters[:] = [newcomer]
        queue.ready.add(0)

    _, waiters = play(1, 2_000, scene)
    assert len(waiters[0].came_at_ms) == 1

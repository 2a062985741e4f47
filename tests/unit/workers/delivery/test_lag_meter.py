"""How a worker measures the lag of its subscribers, and how seldom."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from hqueue import Message, Queue, StoreUnavailableError
from hqueue.metadata import SubscriptionKey
from hqueue_workers.delivery.lag_meter import LagMeter
from tests.support.backends import MemoryBackend
from tests.support.worker_doubles import SteppedRuntime, settle

EVERY_MS = 5_000.0


class SlowRuntime(SteppedRuntime):
    """One in which whatever is read takes so long."""

    def __init__(self, took_ms: float = 0.0) -> None:
        super().__init__()
        self.took_ms = took_ms
        self.go_on = asyncio.Event()

    async def read(self, work: Callable[[], Any]) -> Any:
        self.stepped.now_ms += self.took_ms
        return await super().read(work)

    async def sleep_ms(self, duration_ms: float) -> None:
        self.slept_ms.append(duration_ms)
        await self.go_on.wait()
        self.go_on.clear()


def sender(queue: Queue, name: str, position: int, *, at_end: bool = False) -> Any:
    key = SubscriptionKey(queue.name, 0, name)
    return SimpleNamespace(
        checkpoint=SimpleNamespace(key=key),
        cursor=SimpleNamespace(at_end=at_end, position=position),
    )


def measured(senders: Callable[[Queue], list[Any]], took_ms: float = 0.0) -> Any:
    """The lags by subscriber after one measurement, and how long it paused then."""
    backend = MemoryBackend()

    async def run() -> Any:
        with backend.connect() as client:
            queue = client.create_queue("q", partitions=1)
            ids = [queue.put(Message("t", b"x")) for _ in range(5)]
            runtime = SlowRuntime(took_ms)
            served: Any = [SimpleNamespace(queue=queue, senders=senders(queue))]
            for each in served[0].senders:
                each.cursor.position = int(ids[each.cursor.position])
            meter = LagMeter(lambda: served, runtime)
            running = asyncio.ensure_future(meter.run())
            while not runtime.slept_ms:
                await settle()
            running.cancel()
            return {lag.key.subscriber: lag.messages for lag in meter.lags()}, runtime.slept_ms

    return asyncio.run(asyncio.wait_for(run(), 30))


def test_one_that_is_behind_is_measured_and_one_at_the_end_has_none() -> None:
    lags, slept_ms = measured(
        lambda queue: [
            sender(queue, "first", 0),
            sender(queue, "third", 2),
            sender(queue, "done", 4, at_end=True),
        ]
    )
    assert lags == {"first": 5, "third": 3, "done": 0}
    assert slept_ms == [EVERY_MS]


def test_measuring_takes_a_twentieth_of_the_time_at_most() -> None:
    for took_ms, expected_ms in ((100.0, EVERY_MS), (1_000.0, 20_000.0)):
        _, slept_ms = measured(lambda queue: [sender(queue, "s", 0)], took_ms)
        assert slept_ms == [expected_ms]


def test_a_lag_that_can_not_be_measured_is_not_told() -> None:
    def failing(queue: Queue) -> list[Any]:
        given = [sender(queue, "behind", 0), sender(queue, "done", 4, at_end=True)]
        queue.lag = away  # type: ignore[method-assign]
        return given

    def away(positions: object) -> Any:
        raise StoreUnavailableError("away")

    assert measured(failing)[0] == {"done": 0}

"""What the units of a worker are tested with: a runtime on stepped time, a scripted session."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from hqueue import HQueueError, Outcome, StoreUnavailableError
from hqueue.metadata import SessionState
from hqueue.runtime.steps import Work
from hqueue.runtime.stepwise import Stepwise, stepwise
from hqueue_workers.node.runtime import Runtime
from tests.support.doubles import SteppedClock

__all__ = ["LATER", "Service", "Session", "SteppedRuntime", "settle"]

TOLD_AFTER = 5
LATER = object()
"""A step of a `Service`: what came of it is reported later."""


class Service(Stepwise):
    """Does what it is asked for at once, and tells later what came of it."""

    def _do(self, step: object) -> None:
        assert step is LATER

    async def _do_in_loop(self, step: object) -> None:
        assert step is LATER
        for _ in range(TOLD_AFTER):
            await asyncio.sleep(0)


class SteppedRuntime(Runtime):
    """A runtime in which sleeping moves the clock, and what waits for servers is done at once.

    What came of it is reported later, as by a thread.
    """

    def __init__(self) -> None:
        self.stepped = SteppedClock(1_000_000.0)
        self.slept_ms: list[float] = []
        super().__init__(1, self.stepped)

    async def read(
        self, work: Callable[[], Any], release: Callable[[Any], object] | None = None
    ) -> Any:
        await asyncio.sleep(0)
        try:
            return work()
        finally:
            for _ in range(TOLD_AFTER):
                await asyncio.sleep(0)

    coordinate = read

    async def sleep_ms(self, duration_ms: float) -> None:
        self.slept_ms.append(duration_ms)
        self.stepped.now_ms += duration_ms
        await asyncio.sleep(0)

    async def wait(self, changed: asyncio.Event, timeout_ms: float) -> None:
        await changed.wait()


class _Watch:
    def close(self) -> None:
        pass


class Session(Service):
    """A session with a coordination service, scripted by a test."""

    def __init__(self, clock: SteppedClock, timeout_ms: float) -> None:
        self._clock = clock
        self._timeout_ms = timeout_ms
        self.answers = True
        self.confirmed = 0

    def on_state(self, listener: Callable[[SessionState], None]) -> _Watch:
        self.tell = listener
        listener(SessionState.CONNECTED)
        return _Watch()

    @stepwise
    def confirm(self) -> Work[object, float]:
        yield LATER
        if not self.answers:
            error: HQueueError = StoreUnavailableError("no answer", outcome=Outcome.NOT_APPLIED)
            raise error
        self.confirmed += 1
        return self._clock.now_ms + self._timeout_ms


async def settle() -> None:
    """Let everything go on that can."""
    for _ in range(50):
        await asyncio.sleep(0)

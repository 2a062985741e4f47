"""A log's port for event loops on one that blocks: callers that are cancelled, and too few threads.
That it does what every port must is shown by `tests/conformance/test_rows.py`.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import pytest

from hqueue import ClosedError, Outcome, StoreUnavailableError
from hqueue.log.in_threads import LogInThreads
from hqueue.log.steps import Newest, ask
from hqueue.runtime.clock import SYSTEM_CLOCK, Deadline, drive_in_loop
from hqueue.runtime.loop import by_threads
from hqueue.runtime.thread_pool import ThreadPool

SOON_S = 30
bound: contextvars.ContextVar[int] = contextvars.ContextVar("bound", default=0)


class Slow:
    """A port, and a stream of it, that block until a test lets them go on."""

    def __init__(self, wait_ms: float = 60_000) -> None:
        self.begun: list[str] = []
        self.closed = 0
        self.let = threading.Event()
        self.threads = ThreadPool(1, "slow")
        call = partial(by_threads, self.threads, wait_ms)
        self.log = LogInThreads(self, call)  # type: ignore[arg-type]

    def newest(self, partition: int, at_or_below: int) -> int:
        self._block("newest")
        return bound.get()

    def open(self, *args: object) -> Slow:
        self._block("open")
        return self

    def read(self, rows: int) -> list[Any]:
        self._block("read")
        return []

    def close(self) -> None:
        self.closed += 1

    def _block(self, name: str) -> None:
        self.begun.append(name)
        assert self.let.wait(SOON_S)


async def until(condition: Callable[[], object]) -> None:
    for _ in range(SOON_S * 200):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("not in time")


async def cancelled(task: asyncio.Task[Any]) -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def run(test: Callable[[Slow], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """A test that runs in a loop of its own, over a slow port."""

    def test_in_loop() -> None:
        slow = Slow()
        try:
            asyncio.run(asyncio.wait_for(test(slow), SOON_S))
        finally:
            slow.let.set()
            slow.threads.shutdown()

    test_in_loop.__name__ = test.__name__
    return test_in_loop


@run
async def test_the_loop_goes_on_while_a_thread_waits_with_what_its_caller_is_bound_by(
    slow: Slow,
) -> None:
    bound.set(7)
    newest = asyncio.create_task(slow.log.newest(0, 1))
    await until(lambda: slow.begun)
    slow.let.set()
    assert await newest == 7  # type: ignore[comparison-overlap]


@run
async def test_what_no_thread_has_begun_is_not_done_for_one_who_is_cancelled(slow: Slow) -> None:
    first = asyncio.create_task(slow.log.newest(0, 1))
    await until(lambda: slow.begun)
    second = asyncio.create_task(slow.log.newest(0, 2))
    await asyncio.sleep(0.01)
    await cancelled(second)
    await cancelled(first)
    slow.let.set()
    await slow.log.newest(0, 3)
    assert slow.begun == ["newest", "newest"]


def test_a_thread_is_waited_for_no_longer_than_a_bound_and_nothing_is_applied() -> None:
    slow = Slow(wait_ms=50)

    async def one_too_many() -> None:
        first = asyncio.create_task(slow.log.newest(0, 1))
        await until(lambda: slow.begun)
        with pytest.raises(StoreUnavailableError) as caught:
            await slow.log.newest(0, 2)
        assert caught.value.outcome is Outcome.NOT_APPLIED
        slow.let.set()
        await first  # What has begun has its own bound.
        assert slow.begun == ["newest"]

    asyncio.run(one_too_many())
    slow.threads.shutdown()


@run
async def test_a_thread_is_waited_for_no_longer_than_is_left_of_the_operation(slow: Slow) -> None:
    first = asyncio.create_task(slow.log.newest(0, 1))
    await until(lambda: slow.begun)
    began_s = time.monotonic()
    with pytest.raises(StoreUnavailableError) as caught:
        await drive_in_loop(ask(Newest(0, 2)), slow.log, Deadline(SYSTEM_CLOCK, 1_100))
    assert caught.value.outcome is Outcome.NOT_APPLIED
    assert time.monotonic() - began_s < SOON_S / 2
    slow.let.set()
    await first


@run
async def test_a_stream_whose_read_was_cancelled_is_gone_for_its_rows_may_be(slow: Slow) -> None:
    stream = await slow.log.open(0, 0, 9, None)
    assert slow.begun == [], "the first read opens it"
    reading = asyncio.create_task(stream.read(5))
    await until(lambda: slow.begun)
    await cancelled(reading)
    with pytest.raises(StoreUnavailableError):
        await stream.read(5)
    await stream.close()
    assert not slow.closed, "it is not open yet"
    slow.let.set()
    await until(lambda: slow.closed)


@run
async def test_a_port_whose_threads_are_gone_is_closed(slow: Slow) -> None:
    slow.let.set()
    stream = await slow.log.open(0, 0, 9, None)
    assert await stream.read(5) == []
    slow.threads.shutdown()
    with pytest.raises(ClosedError):
        await slow.log.newest(0, 1)
    await stream.close()

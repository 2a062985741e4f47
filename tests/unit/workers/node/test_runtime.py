"""What a role begins is given up when the role is told to end first, and nothing of it is left."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from hqueue.runtime.clock import SYSTEM_CLOCK, Deadline, bounded_ms
from hqueue.runtime.waiting import Event
from hqueue_workers.node.runtime import Runtime


def test_what_was_acquired_too_late_is_released() -> None:
    may_go, released = Event(), Event()
    values: list[str] = []

    def release(value: str) -> None:
        values.append(value)
        released.set()

    async def run() -> None:
        runtime, stopping = Runtime(1), asyncio.Event()

        def acquire() -> str:
            runtime.call(stopping.set)  # What has not begun by then is never done.
            may_go.wait(30)
            return "acquired"

        async def begin() -> None:
            await runtime.coordinate(acquire, release)
            raise AssertionError("it was cancelled")

        assert await runtime.unless(stopping, begin()) is None
        await runtime.close()

    asyncio.run(asyncio.wait_for(run(), 30))
    may_go.set()
    assert released.wait(30)
    assert values == ["acquired"]


def test_what_was_acquired_in_time_is_not_released() -> None:
    async def run() -> str | None:
        runtime = Runtime(1)
        work = runtime.read(lambda: "read", lambda _: pytest.fail("it was released"))
        value = await runtime.unless(asyncio.Event(), work)
        await runtime.close()
        return value

    assert asyncio.run(run()) == "read"


def test_an_error_of_what_begins_is_raised() -> None:
    def fail() -> None:
        raise ValueError("it failed")

    async def run() -> None:
        runtime = Runtime(1)
        try:
            await runtime.unless(asyncio.Event(), runtime.read(fail))
        finally:
            await runtime.close()

    with pytest.raises(ValueError, match="it failed"):
        asyncio.run(run())


def test_a_cancelled_call_that_fails_late_is_heard_of_by_nobody() -> None:
    may_go, ended = Event(), Event()

    def fail(begun: Callable[[], object]) -> None:
        begun()
        may_go.wait(30)
        ended.set()
        raise ValueError("it failed")

    async def run() -> None:
        runtime, stopping = Runtime(1), asyncio.Event()
        work = runtime.read(lambda: fail(lambda: runtime.call(stopping.set)), print)
        assert await runtime.unless(stopping, work) is None
        await runtime.close()

    asyncio.run(run())
    may_go.set()
    assert ended.wait(30)


def test_an_end_that_servers_keep_from_coming_is_not_waited_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    may_go = Event()

    async def run() -> None:
        runtime = Runtime(1)
        await runtime.end(runtime.coordinate(lambda: may_go.wait(30)), 50.0, 50.0)
        await runtime.close()

    asyncio.run(asyncio.wait_for(run(), 20))
    assert not may_go.is_set()
    assert "the remaining registrations end with the session" in caplog.text
    may_go.set()


def test_an_end_that_fails_is_told() -> None:
    def fail() -> None:
        raise ValueError("it failed")

    async def run() -> None:
        runtime = Runtime(1)
        try:
            await runtime.end(runtime.coordinate(fail), 50.0)
        finally:
            await runtime.close()

    with pytest.raises(ValueError, match="it failed"):
        asyncio.run(run())


def test_what_is_let_go_on_is_not_bounded_by_what_its_starter_is_bounded_by() -> None:
    async def bound() -> float:
        return bounded_ms(60_000)

    async def run() -> list[float]:
        runtime = Runtime(1)
        found: list[float] = []

        async def note() -> None:
            found.append(await bound())

        def within() -> list[asyncio.Future[float]]:
            runtime.start_soon(note)
            return [runtime.start(bound()), asyncio.wrap_future(runtime.submit(bound()))]

        begun = Deadline(SYSTEM_CLOCK, 5_000).run(within)
        found += [await each for each in begun]
        await asyncio.to_thread(Deadline(SYSTEM_CLOCK, 5_000).run, lambda: runtime.start_soon(note))
        while len(found) < 4:
            await asyncio.sleep(0)
        await runtime.close()
        return found

    assert asyncio.run(asyncio.wait_for(run(), 10)) == [60_000] * 4

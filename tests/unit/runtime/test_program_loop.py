"""What goes on by itself in a program's event loop."""

from __future__ import annotations

import asyncio
import contextlib
import threading

import pytest

from hqueue.errors import ClosedError
from hqueue.runtime.job import Job
from hqueue.runtime.program_loop import TRIES, ProgramLoop, ended
from hqueue.runtime.steps import Wait
from tests.support.looped import LoopThread

SOON_S = 30.0


async def double(number: int) -> int:
    await asyncio.sleep(0)
    return 2 * number


def test_a_thread_learns_what_came_of_what_it_started_there() -> None:
    with contextlib.closing(LoopThread()) as thread:
        loop = thread.call(ProgramLoop)
        assert loop.start(double, 4).result(SOON_S) == 8
        endless = loop.start(asyncio.sleep, 3_600)
        assert not endless.wait(0.01)
        assert endless.cancel()
        assert thread.run(ended(endless, SOON_S).in_loop())
        thread.run(loop.close())


def test_where_the_loop_was_closed_nothing_is_begun() -> None:
    thread = LoopThread()
    loop = thread.call(ProgramLoop)
    thread.close()
    begun = loop.start(double, 4)
    assert not begun.wait(0.01)
    assert not ended(begun, 0.01).here()
    loop.call(pytest.fail)


def test_a_listener_is_called_by_the_loop_and_its_errors_are_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def notify() -> None:
        called: list[int] = []
        loop = ProgramLoop()
        await loop.notify("a listener", lambda: called.append(threading.get_ident()))
        await loop.notify("a listener", pytest.fail, "of the program")
        assert called == [threading.get_ident()]

    asyncio.run(notify())
    assert "a listener raised Failed" in caplog.text


def test_what_must_come_to_its_end_does_though_its_caller_is_cancelled_and_the_next_one_waits() -> (
    None
):
    done: list[str] = []

    async def change(name: str) -> str:
        await asyncio.sleep(0.01)
        done.append(name)
        return name

    def asked(name: str) -> Wait:
        return Wait(lambda: name, lambda: change(name))

    async def run() -> None:
        loop = ProgramLoop()
        first = asyncio.ensure_future(loop.to_end(asked("first")).in_loop())
        await asyncio.sleep(0)
        first.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await first
        assert await loop.to_end(asked("second")).in_loop() == "second"
        assert done == ["first", "second"]
        cancelled = asyncio.ensure_future(loop.to_end(asked("third")).in_loop())
        await asyncio.sleep(0)
        for task in asyncio.all_tasks() - {asyncio.current_task(), cancelled}:
            task.cancel()
        with pytest.raises(ClosedError, match="while the call was under way"):
            await cancelled

    asyncio.run(run())


def test_work_in_the_background_ends_with_the_loop() -> None:
    done = threading.Event()

    async def work() -> float:
        done.set()
        return float("inf")

    async def run() -> None:
        job = Job(work, loop=ProgramLoop())
        job.ask()
        await asyncio.sleep(0.01)
        assert asyncio.all_tasks() == {asyncio.current_task()}, "it waits without a task"

    asyncio.run(run())  # It waits until all tasks have ended.
    assert done.is_set()


def test_what_must_be_done_is_done_though_its_caller_and_its_own_task_are_cancelled() -> None:
    done: list[str] = []

    async def change(name: str) -> str:
        await asyncio.sleep(0.01)
        done.append(name)
        return name

    async def insist() -> str:
        loop = ProgramLoop()
        with contextlib.suppress(asyncio.CancelledError):
            await loop.to_end(Wait(lambda: None, lambda: change("left"))).in_loop()
        return await loop.insist(lambda: change("insisted"))

    async def run(again: int) -> None:
        insisting = asyncio.create_task(insist())
        for _ in range(again):
            await asyncio.sleep(0)
            insisting.cancel()
        await asyncio.sleep(0.002)
        for each in asyncio.all_tasks() - {asyncio.current_task()}:
            each.cancel()
        with pytest.raises(asyncio.CancelledError):
            await insisting
        assert done[-1] == "insisted"

    for again in range(1, 4):
        asyncio.run(run(again))
    assert done.count("insisted") == 3


def test_what_cancels_itself_is_not_begun_for_ever() -> None:
    begun: list[None] = []

    async def give_up() -> None:
        begun.append(None)
        raise asyncio.CancelledError

    async def run() -> None:
        with pytest.raises(ClosedError):
            await ProgramLoop().insist(give_up)

    asyncio.run(run())
    assert len(begun) == TRIES

"""The loop thread of a process: its one thread, tasks that fail, forks, interruptions, the end."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from hqueue.errors import ClosedError, HQueueError
from hqueue.runtime import loop as loop_module
from hqueue.runtime.alarm import needed_loop
from hqueue.runtime.loop import (
    BLOCKING_MAX,
    LoopThread,
    background,
    by_threads,
    call_later,
    computed,
    in_thread,
)
from hqueue.runtime.thread_pool import ThreadPool
from tests.support.interrupting import each_interruption, each_line
from tests.support.thread_refusal import loop_not_begun, threads_refused
from tests.support.waiting import wait_for

SOON_S = 10.0


@pytest.fixture
def process() -> Iterator[loop_module.ProcessLoop]:
    """A process that has no loop thread yet."""
    with loop_not_begun() as process:
        yield process


@pytest.fixture
def loop() -> LoopThread:
    found = background()
    assert found is not None
    return found


async def double(number: int) -> int:
    await asyncio.sleep(0)
    return 2 * number


async def in_thread_of(loop: LoopThread) -> bool:
    return loop.in_loop


@pytest.mark.usefixtures("process")
def test_one_thread_carries_all_that_a_process_starts_also_at_once() -> None:
    before = set(threading.enumerate())
    together = threading.Barrier(8)
    found: list[LoopThread | None] = []

    def ask() -> None:
        together.wait(SOON_S)
        found.append(background())

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SOON_S)
    assert len(found) == 8
    assert len(set(found)) == 1
    (loop,) = set(found)
    assert loop is not None
    begun = set(threading.enumerate()) - before
    names = {"hqueue-loop", "hqueue-loop-call"}
    assert {each.name for each in begun} <= names, "one, and one that waits for what blocks"
    assert [each.name for each in begun].count("hqueue-loop") == 1
    assert all(each.daemon for each in begun)
    assert not loop.in_loop
    assert loop.start(in_thread_of, loop).result(SOON_S)


def test_a_task_s_result_and_its_error_reach_the_thread_that_waits(loop: LoopThread) -> None:
    async def refuse() -> None:
        raise HQueueError("refused")

    assert loop.start(double, 21).result(SOON_S) == 42
    with pytest.raises(HQueueError, match="refused"):
        loop.start(refuse).result(SOON_S)


@pytest.mark.parametrize("error", [ValueError, SystemExit, KeyboardInterrupt, BaseException])
def test_whatever_a_task_or_a_call_raises_is_logged_and_the_loop_goes_on(
    loop: LoopThread, error: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    async def fail() -> None:
        raise error("it went wrong")

    def fail_at_once() -> None:
        raise error("it went wrong at once")

    async def wait_and_double() -> int:
        await asyncio.sleep(0.05)
        return await double(2)

    with caplog.at_level(logging.ERROR):
        beside = loop.start(wait_and_double)
        raised = loop.start(fail).exception(SOON_S)
        assert isinstance(raised, error)
        loop.call(fail_at_once)
        assert beside.result(SOON_S) == 4
        assert loop.start(double, 1).result(SOON_S) == 2
    assert "a task in the background failed" in caplog.text
    assert "it went wrong at once" in caplog.text


def test_a_task_is_kept_though_nothing_refers_to_it_and_cancelled_by_its_future(
    loop: LoopThread,
) -> None:
    begun, ended = threading.Event(), threading.Event()
    others = loop.tasks

    async def for_ever() -> None:
        begun.set()
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            ended.set()

    future = loop.start(for_ever)
    assert begun.wait(SOON_S)
    gc.collect()
    assert not ended.is_set()
    assert future.cancel()
    assert ended.wait(SOON_S)
    never = loop.start(asyncio.sleep, SOON_S)
    assert never.cancel()
    wait_for(lambda: loop.tasks <= others, "no task is left")


def test_a_task_has_nothing_of_its_starter_s_context(loop: LoopThread) -> None:
    bound: contextvars.ContextVar[int] = contextvars.ContextVar("bound", default=0)
    bound.set(7)

    async def seen() -> int:
        return bound.get()

    assert loop.start(seen).result(SOON_S) == 0


def test_what_blocks_is_called_in_a_few_threads_while_the_loop_goes_on(loop: LoopThread) -> None:
    going_on = threading.Event()

    async def block() -> str:
        await in_thread(going_on.wait, SOON_S)
        return threading.current_thread().name

    def fail() -> None:
        raise SystemExit(4)

    blocked = [loop.start(block) for _ in range(2 * BLOCKING_MAX)]
    assert loop.start(double, 3).result(SOON_S) == 6
    calling = [each for each in threading.enumerate() if each.name == "hqueue-loop-call"]
    assert len(calling) <= BLOCKING_MAX
    going_on.set()
    assert {each.result(SOON_S) for each in blocked} == {"hqueue-loop"}
    assert isinstance(loop.start(in_thread, fail).exception(SOON_S), SystemExit)


def test_of_all_that_is_computed_one_thing_is_at_a_time_while_the_loop_goes_on(
    loop: LoopThread,
) -> None:
    usual_s, under_way, most, turns_s = sys.getswitchinterval(), 0, 0, set()

    def work() -> str:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        turns_s.add(sys.getswitchinterval())
        time.sleep(0.01)  # Others run.
        under_way -= 1
        return threading.current_thread().name

    async def together() -> tuple[list[str], int]:
        begun = asyncio.gather(*(computed(work) for _ in range(10)))
        turns = 0
        while not begun.done():
            turns += 1
            await asyncio.sleep(0.001)
        return await begun, turns

    threads, turns = loop.start(together).result(SOON_S)
    assert len(set(threads)) == most == 1
    assert threads[0] != loop_module.NAME
    assert turns > 10
    assert max(turns_s) < usual_s == sys.getswitchinterval()


def test_a_later_call_comes_in_its_time_in_a_thread_and_not_when_it_is_cancelled() -> None:
    came: list[str] = []
    going_on = threading.Event()
    began_s = time.monotonic()
    cancelled = call_later(100, came.append, "cancelled")
    assert cancelled is not None
    # What blocks does not keep it.
    loop = background()
    assert loop is not None
    blocked = [loop.start(in_thread, going_on.wait, SOON_S) for _ in range(BLOCKING_MAX)]
    later = call_later(50, lambda: came.append(threading.current_thread().name))
    assert later is not None
    assert cancelled.cancel()
    later.result(SOON_S)
    assert time.monotonic() - began_s >= 0.05
    last = call_later(100, came.append, "last")
    assert last is not None
    last.result(SOON_S)
    assert came == ["hqueue-loop-timer", "last"]
    going_on.set()
    assert all(each.result(SOON_S) for each in blocked)


def test_what_is_due_is_called_as_soon_as_there_is_a_thread_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pool, refused = loop_module._timely, list[object]()

    def submit(*called: Any) -> Any:
        if len(refused) < 2:
            refused.append(called)
            raise HQueueError("the system starts no more threads for this process")
        return pool.submit(*called)

    monkeypatch.setattr(loop_module, "_timely", SimpleNamespace(submit=submit))
    came = threading.Event()
    later = call_later(0, came.set)
    assert later is not None
    later.result(SOON_S)
    assert came.is_set()


@pytest.mark.usefixtures("process")
def test_without_a_thread_or_a_descriptor_there_is_no_loop_for_now(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(loop_module, "try_start", lambda *_, **__: None)
        assert background() is None
        assert call_later(1, print) is None
        with pytest.raises(HQueueError, match="try again when others have ended"):
            needed_loop()
    with monkeypatch.context() as patched:

        def refuse() -> None:
            raise OSError(24, "Too many open files")

        patched.setattr(loop_module.asyncio, "new_event_loop", refuse)
        assert background() is None
        assert "Too many open files" in caplog.text
    assert background() is not None


def test_a_forked_child_has_a_loop_of_its_own_and_the_parent_s_goes_on(loop: LoopThread) -> None:
    begun, go_on = threading.Event(), asyncio.Event()

    async def wait() -> str:
        begun.set()
        try:
            await go_on.wait()
        except BaseException:
            os.write(written, b"!")
            raise
        return "went on"

    read, written = os.pipe()
    waiting = loop.start(wait)
    assert begun.wait(SOON_S)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            own = background()
            assert own is not None
            assert own is not loop
            assert not own.tasks
            assert own.start(double, 4).result(SOON_S) == 8
            assert own.start(in_thread, int).result(SOON_S) == 0
            gc.collect()
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert background() is loop
    loop.call(go_on.set)
    assert waiting.result(SOON_S) == "went on"
    os.close(written)
    assert os.read(read, 1) == b"", "the child ended a task of its parent"
    os.close(read)


def test_a_child_that_the_loop_thread_forks_itself_has_another_loop(loop: LoopThread) -> None:
    async def fork() -> int:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                own = background()
                code = 0 if own is not None and own.start(double, 4).result(SOON_S) == 8 else 2
            finally:
                os._exit(code)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    assert loop.start(fork).result(SOON_S) == 0


@pytest.mark.parametrize("each_place", [each_interruption, each_line])
def test_a_start_of_the_loop_that_was_interrupted_anywhere_leaves_one_loop_at_the_next(
    each_place: Any, process: loop_module.ProcessLoop
) -> None:
    def begin() -> None:
        process.loop, process._begun = None, None
        background()

    places = 0
    for place in each_place(begin):
        places += 1
        loop = background()
        assert loop is not None, place
        assert background() is loop, place
        assert loop.start(double, 5).result(SOON_S) == 10, place
    assert places > 10


@pytest.mark.parametrize("each_place", [each_interruption, each_line])
def test_a_task_whose_start_or_wait_was_interrupted_harms_no_other(
    each_place: Any, loop: LoopThread
) -> None:
    places, others = 0, loop.tasks
    for place in each_place(lambda: loop.start(double, 6).result(SOON_S)):
        places += 1
        assert loop.start(double, 5).result(SOON_S) == 10, place
    assert places > 5
    wait_for(lambda: loop.tasks <= others, "no task is left")


ENDING = """
import asyncio, atexit, sys, threading
from hqueue.runtime import ending
from hqueue.runtime.loop import background
loop = background()
async def work():
    await asyncio.sleep(0.05)
    return "finished"
class Item:
    def at_end(self):
        print(where, loop.start(work).result(10), flush=True)
def for_ever():
    async def wait():
        await asyncio.Event().wait()
    loop.start(wait)
"""
ITSELF = (
    ENDING
    + """
where = "by itself"
item = Item()
ending.register(item)
for_ever()
"""
)
CHILDREN = (
    ENDING
    + """
import multiprocessing
def run():
    global loop, where, item
    loop, where = background(), "as a child"
    item = Item()
    ending.register(item)
    for_ever()
if __name__ == "__main__":
    child = multiprocessing.get_context("fork").Process(target=run)
    child.start()
    child.join(30)
    sys.exit(child.exitcode)
"""
)


@pytest.mark.parametrize("program", [ITSELF, CHILDREN], ids=["itself", "child"])
def test_a_process_that_ends_finishes_by_its_loop_what_it_must_and_leaves_the_rest(
    program: str,
) -> None:
    ended = subprocess.run(
        [sys.executable, "-X", "dev", "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.endswith("finished\n")
    assert "destroyed" not in ended.stderr
    assert "Traceback" not in ended.stderr


def test_where_no_thread_can_be_started_the_one_that_is_kept_does_the_work_of_other_pools(
    loop: LoopThread,
) -> None:
    assert loop.start(in_thread, int).result(SOON_S) == 0
    others = ThreadPool(2, "others")
    with threads_refused(at_end=True):
        for _ in range(3):
            name = loop.start(by_threads, others, 1e3 * SOON_S, _name_of_thread).result(SOON_S)
            assert name == "hqueue-loop-call"
        others.shutdown()
        with pytest.raises(ClosedError, match="its owner was closed"):
            loop.start(by_threads, others, 1e3 * SOON_S, _name_of_thread).result(SOON_S)


def _name_of_thread() -> str:
    return threading.current_thread().name

"""Work that is done again and again in the background."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from typing import Any

import pytest

from hqueue.errors import ClosedError, HQueueError
from hqueue.runtime import job as job_module
from hqueue.runtime.job import Job
from tests.support.waiting import wait_for

NEVER = float("inf")


class Work:
    """Counts how often it is done, and how often at a time."""

    def __init__(self) -> None:
        self.done = 0
        self.due_ms = NEVER
        self.error: BaseException | None = None
        self.going_on = threading.Event()
        self.going_on.set()
        self.entered = threading.Event()
        self.together = 0

    def __call__(self) -> float:
        self.together += 1
        assert self.together == 1
        self.entered.set()
        assert self.going_on.wait(30)
        self.done += 1
        self.together -= 1
        if self.error is not None:
            raise self.error
        return self.due_ms


def tasks() -> set[object]:
    """Those of the process's loop: others' too."""
    return {*job_module.needed_loop().tasks}


def test_it_is_done_when_it_is_asked_for_and_once_more_if_that_was_meanwhile() -> None:
    work = Work()
    job = Job(work)
    work.going_on.clear()
    job.ask()
    assert work.entered.wait(30)
    for _ in range(10):
        job.ask()
    assert work.done == 0
    work.going_on.set()
    wait_for(lambda: work.done == 2, "once more")
    job.ask()
    wait_for(lambda: work.done == 3, "it is asked for")
    job.close()


def test_it_is_done_again_when_it_is_due_until_it_is_closed() -> None:
    work = Work()
    work.due_ms = 5.0
    before = tasks()
    job = Job(work)
    job.ask()
    wait_for(lambda: work.done >= 3, "it is due again and again")
    job.close()
    wait_for(lambda: tasks() <= before, "it is over")
    done = work.done
    job.ask()
    threading.Event().wait(0.05)
    assert work.done == done


def test_a_coroutine_is_awaited_in_the_loop() -> None:
    there: list[bool] = []

    async def work() -> float:
        await asyncio.sleep(0)
        there.append(job_module.needed_loop().in_loop)
        return 5.0

    job = Job(work)
    job.ask()
    wait_for(lambda: len(there) >= 3, "it is due again and again")
    job.close()
    assert all(there)


@pytest.mark.parametrize("error", [HQueueError("away"), ValueError("a fault"), SystemExit(3)])
def test_what_fails_is_tried_again(error: BaseException) -> None:
    work = Work()
    work.error = error
    job = Job(work, retry_ms=5.0)
    job.ask()
    wait_for(lambda: work.done >= 2, "it is tried again")
    work.error = None
    wait_for(lambda: work.done >= 4 or not work.error, "it works again")
    job.close()


def test_it_is_over_when_what_it_uses_is_closed() -> None:
    work = Work()
    work.error = ClosedError("the client is closed")
    before = tasks()
    job = Job(work)
    job.ask()
    wait_for(lambda: work.done and tasks() <= before, "it is over")
    assert work.done == 1


def test_one_that_is_collected_with_its_loop_says_nothing_and_is_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def wait() -> float:
        await asyncio.sleep(60)
        return NEVER

    job = Job(wait)

    async def begin() -> Coroutine[Any, Any, None]:
        begun = job._do()
        begun.send(None)
        return begun

    asyncio.run(begin()).close()
    assert job._over
    assert not caplog.records


def test_a_forked_child_does_nothing_of_its_parent_s() -> None:
    work = Work()
    work.due_ms = 1.0
    job = Job(work)
    job.ask()
    wait_for(lambda: work.done >= 1, "it goes on")
    child = os.fork()
    if child == 0:
        done = work.done
        job.ask()
        threading.Event().wait(0.1)
        os._exit(work.done - done)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    job.close()

"""A few threads that work for many callers, also where the system has no thread left."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future
from typing import Any

import pytest

from hqueue import BufferFullError, ClosedError, HQueueError
from hqueue.runtime.thread_pool import ThreadPool
from tests.support.interrupting import each_interruption, each_line
from tests.support.thread_refusal import threads_refused
from tests.support.waiting import wait_for

NAME = "pooled"


@pytest.fixture
def pool() -> Iterator[ThreadPool]:
    wait_for(lambda: running() == 0, "those of other tests have ended")
    pool = ThreadPool(2, NAME)
    yield pool
    pool.shutdown(wait=False, cancel_futures=True)


def running() -> int:
    return sum(each.name == NAME for each in threading.enumerate())


def test_work_that_no_thread_was_there_for_is_refused_and_never_done(pool: ThreadPool) -> None:
    done: list[str] = []
    with threads_refused():
        with pytest.raises(HQueueError, match="starts no more threads") as refused:
            pool.submit(done.append, "refused")
        assert not isinstance(refused.value, ClosedError)
    pool.submit(done.append, "taken").result(30)
    assert done == ["taken"]


def test_refused_work_takes_no_room() -> None:
    pool = ThreadPool(2, NAME, unfinished_max=1, wait_s=0.01)
    with threads_refused():
        for _ in range(3):
            with pytest.raises(HQueueError, match="starts no more threads"):
                pool.submit(int)
    assert pool.submit(int).result(30) == 0
    pool.shutdown()


def test_work_waits_for_a_thread_that_runs_where_no_further_one_can_be_started(
    pool: ThreadPool,
) -> None:
    going_on = threading.Event()
    first = pool.submit(going_on.wait, 30)
    wait_for(first.running, "a thread works")
    with threads_refused():
        second = pool.submit(int)
        going_on.set()
        assert first.result(30)
        assert second.result(30) == 0


def test_no_more_threads_work_than_there_may_be_and_all_end_when_there_is_nothing_to_do() -> None:
    pool = ThreadPool(2, NAME, idle_s=0.02)
    going_on = threading.Event()
    under_way = [pool.submit(going_on.wait, 30) for _ in range(20)]
    wait_for(lambda: sum(each.running() for each in under_way) == 2, "two are under way")
    assert running() == 2, "no further one was started"
    going_on.set()
    assert all(each.result(30) for each in under_way)
    wait_for(lambda: running() == 0, "the threads have ended")
    assert pool.submit(int).result(30) == 0
    pool.shutdown()


def test_two_calls_of_which_one_waits_for_the_other_have_a_thread_each(pool: ThreadPool) -> None:
    for _ in range(50):
        came = threading.Event()
        waits = pool.submit(came.wait, 30)
        pool.submit(came.set)
        assert waits.result(30)


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3), KeyboardInterrupt()])
def test_an_error_of_work_or_of_a_callback_is_its_own_and_the_thread_goes_on(
    pool: ThreadPool, error: BaseException
) -> None:
    def fail(*_: object) -> None:
        raise error

    for _ in range(4):
        with pytest.raises(type(error)):
            pool.submit(fail).result(30)
        future: Future[int] = pool.submit(int)
        future.add_done_callback(fail) if not future.done() else None
        assert future.result(30) == 0
    assert pool.submit(int).result(30) == 0


def test_a_closed_pool_does_what_it_took_and_takes_no_more(pool: ThreadPool) -> None:
    going_on = threading.Event()
    taken = [pool.submit(going_on.wait, 30) for _ in range(6)]
    pool.shutdown(wait=False)
    pool.shutdown(wait=False)
    with pytest.raises(ClosedError):
        pool.submit(int)
    going_on.set()
    assert all(each.result(30) for each in taken)
    wait_for(lambda: running() == 0, "the threads have ended")


def test_what_has_not_begun_can_be_cancelled_with_the_end(pool: ThreadPool) -> None:
    going_on = threading.Event()
    taken = [pool.submit(going_on.wait, 30) for _ in range(6)]
    wait_for(lambda: sum(each.running() for each in taken) == 2, "two are under way")
    pool.shutdown(wait=False, cancel_futures=True)
    going_on.set()
    assert all(each.result(30) for each in taken[:2])
    for each in taken[2:]:
        with pytest.raises(CancelledError):
            each.result(30)


def test_no_more_wait_than_may_and_there_is_room_again_afterwards() -> None:
    pool = ThreadPool(2, NAME, unfinished_max=5, wait_s=0.01)
    going_on = threading.Event()
    taken = [pool.submit(going_on.wait, 30) for _ in range(5)]
    with pytest.raises(BufferFullError) as caught:
        pool.submit(int)
    assert caught.value.waiting == 5
    going_on.set()
    for each in taken:
        each.result(30)
        assert pool.submit(int).result(30) == 0
    pool.shutdown()


def test_threads_that_are_kept_stay_when_there_is_nothing_to_do() -> None:
    pool = ThreadPool(3, "kept", kept=1, idle_s=0.02)
    going_on = threading.Event()
    blocked = [pool.submit(going_on.wait, 30) for _ in range(3)]
    going_on.set()
    assert all(each.result(30) for each in blocked)
    wait_for(lambda: pool.threads == 1, "the others end")
    threading.Event().wait(0.1)

    with threads_refused():
        assert pool.submit(lambda: 7).result(30) == 7
        pool.shutdown()
    wait_for(lambda: pool.threads == 0, "it ends")


def test_a_forked_child_has_an_empty_pool_of_its_own(pool: ThreadPool) -> None:
    going_on = threading.Event()
    held = [pool.submit(going_on.wait, 30) for _ in range(4)]
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if pool.submit(lambda: 7).result(30) == 7 else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    going_on.set()
    assert all(each.result(30) for each in held)


@pytest.mark.parametrize("each_place", [each_interruption, each_line])
def test_a_call_that_was_interrupted_anywhere_leaves_the_pool_as_it_was(each_place: Any) -> None:
    pool = ThreadPool(1, NAME, unfinished_max=2, wait_s=30)
    done: list[str] = []
    for place in each_place(lambda: pool.submit(done.append, "interrupted")):
        assert pool.submit(done.append, "next").exception(30) is None, place
        assert done.count("interrupted") <= 1, place
        done.clear()
    wait_for(lambda: pool.unfinished == 0, "nothing is counted as under way")
    pool.shutdown()

"""Turns that threads and coroutines take with one thing."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar

import pytest

from hqueue.errors import InvalidInputError
from hqueue.runtime.held import NotHeldError
from hqueue.runtime.steps import Wait, Work, carry_out, carry_out_in_loop
from hqueue.runtime.turn import Turn
from tests.support.interrupting import each_interruption, each_line
from tests.support.looped import LoopThread
from tests.support.waiting import wait_for

LONG_S = 30.0
Result = TypeVar("Result")


def once(step: Wait) -> Work[Wait, Any]:
    return (yield step)


def take(
    turn: Turn,
    work: Callable[[], Result],
    wait_s: float,
    error: Callable[[], BaseException] = NotHeldError,
) -> Result:
    """Do something in a turn of this thread."""
    result: Result = carry_out(turn.take(once(Wait(work, awaited)), wait_s, error), print)
    return result


async def take_in_loop(turn: Turn, work: Callable[[], Awaitable[Result]], wait_s: float) -> Result:
    """Do something in a turn of this coroutine."""
    result: Result = await carry_out_in_loop(turn.take(once(Wait(print, work)), wait_s), awaited)
    return result


async def awaited(*step: object) -> None:
    raise AssertionError(step)


@pytest.fixture
def looped() -> Iterator[LoopThread]:
    thread = LoopThread()
    yield thread
    thread.close()


def in_a_thread(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def test_threads_and_coroutines_never_go_on_together(looped: LoopThread) -> None:
    turn, inside, most, done = Turn(), [0], [0], [0]

    def enter() -> None:
        inside[0] += 1
        most[0] = max(most[0], inside[0])

    def leave() -> None:
        done[0] += 1
        inside[0] -= 1

    def block() -> None:
        enter()
        threading.Event().wait(0.0005)
        leave()

    async def go_on() -> None:
        enter()
        await asyncio.sleep(0.0005)
        leave()

    async def all_of_them() -> None:
        async def again() -> None:
            for _ in range(30):
                await take_in_loop(turn, go_on, LONG_S)

        await asyncio.gather(again(), again(), again())

    threads = [in_a_thread(lambda: [take(turn, block, LONG_S) for _ in range(30)]) for _ in "123"]
    looped.run(all_of_them())
    for each in threads:
        each.join(LONG_S)
    assert done == [180]
    assert most == [1]


def test_it_goes_to_those_who_wait_in_the_order_in_which_they_came(looped: LoopThread) -> None:
    turn, order = Turn(), list[str]()
    entered, going_on = threading.Event(), threading.Event()

    def hold() -> None:
        entered.set()
        going_on.wait(LONG_S)

    async def note(name: str) -> None:
        order.append(name)

    threads = [in_a_thread(lambda: take(turn, hold, LONG_S))]
    assert entered.wait(LONG_S)
    running = []
    for n in range(6):
        if n % 2:
            work = take_in_loop(turn, lambda n=n: note(f"coroutine {n}"), LONG_S)  # type: ignore[misc]
            running.append(asyncio.run_coroutine_threadsafe(work, looped.loop))
        else:
            mine = lambda n=n: take(turn, lambda: order.append(f"thread {n}"), LONG_S)  # noqa: E731
            threads.append(in_a_thread(mine))
        wait_for(lambda n=n: turn.length == n + 2, "it waits")  # type: ignore[misc]
    going_on.set()
    for thread in threads:
        thread.join(LONG_S)
    for each in running:
        each.result(LONG_S)
    assert order == [
        "thread 0",
        "coroutine 1",
        "thread 2",
        "coroutine 3",
        "thread 4",
        "coroutine 5",
    ]


def test_a_wait_ends_by_its_bound_with_the_caller_s_error_and_leaves_the_turn_alone(
    looped: LoopThread,
) -> None:
    turn = Turn()

    class LateError(Exception):
        pass

    async def nothing() -> None:
        raise AssertionError("it had no turn")

    def others() -> int:
        for wait_s in (-1.0, 0.0, 0.01):
            with pytest.raises(LateError):
                in_another(lambda wait_s=wait_s: take(turn, int, wait_s, LateError))  # type: ignore[misc]
            with pytest.raises(NotHeldError):
                looped.run(take_in_loop(turn, nothing, wait_s))
        assert not turn.is_free
        return 7

    assert take(turn, others, LONG_S) == 7
    assert turn.length == 0
    assert turn.is_free


def in_another(work: Callable[[], object]) -> None:
    """Do something in another thread, and raise what it raises."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as exc:
            raised.append(exc)

    in_a_thread(run).join(LONG_S)
    if raised:
        raise raised[0]


def test_what_the_work_raises_passes_and_the_turn_is_free(looped: LoopThread) -> None:
    turn = Turn()

    def fail() -> None:
        raise SystemExit(3)

    async def fail_in_loop() -> None:
        raise ValueError("in the loop")

    with pytest.raises(SystemExit):
        take(turn, fail, 0)
    with pytest.raises(ValueError, match="in the loop"):
        looped.run(take_in_loop(turn, fail_in_loop, 0))
    assert turn.is_free


def test_a_coroutine_that_is_cancelled_with_the_turn_or_in_wait_of_it_lets_the_next_one_go_on(
    looped: LoopThread,
) -> None:
    turn = Turn()

    async def both() -> None:
        async def for_ever() -> None:
            await asyncio.Event().wait()

        async def noted() -> str:
            return "it goes on"

        holder = asyncio.ensure_future(take_in_loop(turn, for_ever, LONG_S))
        await asyncio.sleep(0)
        waiter = asyncio.ensure_future(take_in_loop(turn, for_ever, LONG_S))
        last = asyncio.ensure_future(take_in_loop(turn, noted, LONG_S))
        await asyncio.sleep(0)
        waiter.cancel()
        holder.cancel()
        assert await last == "it goes on"
        await asyncio.wait([waiter, holder])
        assert waiter.cancelled()
        assert holder.cancelled()

    looped.run(both())
    assert turn.length == 0


def test_a_turn_of_a_coroutine_whose_loop_was_closed_is_over() -> None:
    turn = Turn()
    loop = asyncio.new_event_loop()

    async def for_ever() -> None:
        await asyncio.Event().wait()

    tasks = [loop.create_task(take_in_loop(turn, for_ever, LONG_S)) for _ in "ab"]
    loop.run_until_complete(asyncio.sleep(0.01))
    assert not turn.is_free
    loop.close()
    assert turn.is_free
    assert take(turn, lambda: 7, 5) == 7
    for task in tasks:
        task._log_destroy_pending = False  # type: ignore[attr-defined]


@pytest.mark.parametrize("each_place", [each_interruption, each_line])
def test_a_thread_that_was_interrupted_anywhere_leaves_the_turn_to_the_next(
    each_place: Any,
) -> None:
    turn, places = Turn(), 0
    for place in each_place(lambda: take(turn, int, 1)):
        places += 1
        assert take(turn, lambda: 7, 5) == 7, place
    assert places > 5


@pytest.mark.parametrize("each_place", [each_interruption, each_line])
def test_a_thread_that_was_interrupted_while_it_waited_is_left_out(each_place: Any) -> None:
    turn = Turn()
    places = 0
    entered, going_on = threading.Event(), threading.Event()

    def hold() -> None:
        entered.set()
        going_on.wait(LONG_S)

    def wait() -> None:
        with pytest.raises(NotHeldError):
            take(turn, int, 0.002)

    holder = in_a_thread(lambda: take(turn, hold, LONG_S))
    assert entered.wait(LONG_S)
    for _ in each_place(wait):
        places += 1
    assert places > 10
    waiter = in_a_thread(lambda: take(turn, int, LONG_S))
    going_on.set()
    for each in (holder, waiter):
        each.join(5)
        assert not each.is_alive()


def test_a_forked_child_has_the_turn_that_its_parent_s_threads_held() -> None:
    turn = Turn()
    entered, going_on = threading.Event(), threading.Event()

    def hold() -> None:
        entered.set()
        going_on.wait(LONG_S)

    holder = in_a_thread(lambda: take(turn, hold, LONG_S))
    assert entered.wait(LONG_S)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if take(turn, lambda: 7, 5) == 7 else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert not turn.is_free
    going_on.set()
    holder.join(5)
    assert turn.is_free


@pytest.mark.parametrize("each_place", [each_interruption, each_line])
def test_a_handler_of_a_signal_takes_the_turn_that_the_main_thread_enters_or_leaves(
    each_place: Any,
) -> None:
    turn, taken, inside = Turn(), [0], [0]

    def handle(number: int, frame: object) -> None:
        for _ in range(2):  # Where the main thread has the turn, the handler waits for its bound.
            with contextlib.suppress(NotHeldError):
                taken[0] += take(turn, lambda: 1, 0.0)

    def work() -> None:
        inside[0] += 1

    waiters = [0]

    def others() -> None:
        waiters[0] += take(turn, lambda: 1, 5)

    places = 0
    for place in each_place(lambda: take(turn, work, 1), handle=handle):
        places += 1
        thread = in_a_thread(others)
        thread.join(5)
        assert not thread.is_alive(), place
        assert waiters[0] == places
        assert turn.length == 0
    assert inside[0] >= places > 5
    assert taken[0] > places


def test_a_handler_and_a_finalizer_that_want_the_turn_of_what_they_interrupt_are_refused_at_once(
    looped: LoopThread,
) -> None:
    turn = Turn()

    def within(error: Callable[[], BaseException], refusal: type[BaseException]) -> int:
        with pytest.raises(refusal):
            take(turn, int, LONG_S, error)
        with pytest.raises(refusal):
            carry_out_new_loop(turn.take(once(Wait(print, nothing)), LONG_S, error))
        return 7

    async def nothing() -> None:
        raise AssertionError("it had no turn")

    async def within_a_loop() -> None:
        within_it = asyncio.ensure_future(take_in_loop(turn, pause, LONG_S))
        await asyncio.sleep(0)
        with pytest.raises(InvalidInputError, match="that it interrupts"):  # It would block it.
            take(turn, int, LONG_S, LateError)
        await within_it

    async def pause() -> None:
        await asyncio.sleep(0.01)

    begun_s = time.monotonic()
    assert take(turn, lambda: within(LateError, InvalidInputError), LONG_S) == 7
    assert take(turn, lambda: within(NotHeldError, NotHeldError), LONG_S) == 7
    looped.run(within_a_loop())
    assert time.monotonic() - begun_s < LONG_S / 2
    assert turn.length == 0


class LateError(Exception):
    pass


def carry_out_new_loop(work: Work[Wait, Any]) -> None:
    asyncio.run(carry_out_in_loop(work, awaited))


def test_a_handler_that_interrupts_a_wait_for_the_turn_does_not_wait_behind_it() -> None:
    turn, entered, going_on = Turn(), threading.Event(), threading.Event()
    refused: list[BaseException] = []

    def hold() -> None:
        entered.set()
        going_on.wait(LONG_S)

    def handle(number: int, frame: object) -> None:
        try:
            take(turn, int, LONG_S, LateError)
        except InvalidInputError as exc:
            refused.append(exc)
        going_on.set()

    before = signal.signal(signal.SIGALRM, handle)
    try:
        holder = in_a_thread(lambda: take(turn, hold, LONG_S))
        assert entered.wait(LONG_S)
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        assert take(turn, lambda: 7, LONG_S) == 7
    finally:
        signal.signal(signal.SIGALRM, before)
    holder.join(LONG_S)
    assert len(refused) == 1

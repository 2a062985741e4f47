"""Work asks, and its driver answers: what a step raises is raised in the work."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

import pytest

from hqueue.errors import Outcome, StoreUnavailableError
from hqueue.runtime.clock import (
    LAST_TRY_MS,
    SYSTEM_CLOCK,
    Deadline,
    bounded_ms,
    drive,
    drive_in_loop,
)
from hqueue.runtime.held import NotHeldError
from hqueue.runtime.steps import (
    Give,
    Pause,
    Work,
    carry_out,
    carry_out_in_loop,
    each_given,
    each_given_in_loop,
    noting,
)
from hqueue.runtime.turn import Turn
from tests.support.doubles import SteppedClock


def asking(*questions: str) -> Work[str, list[str]]:
    """Asks, and gives the answers; an error is one."""
    answers = []
    for question in questions:
        try:
            answers.append((yield question))
        except ValueError as exc:
            answers.append(f"error {exc}")
    return answers


def answered(question: str) -> str:
    if question == "bad":
        raise ValueError(question)
    return f"{question}!"


def test_each_step_is_answered_in_its_turn() -> None:
    assert carry_out(asking(), answered) == []
    assert carry_out(asking("a", "bad", "b"), answered) == ["a!", "error bad", "b!"]


def test_what_work_does_not_handle_ends_it_and_is_raised() -> None:
    def interrupted(question: str) -> str:
        raise KeyboardInterrupt

    work = asking("a")
    with pytest.raises(KeyboardInterrupt):
        carry_out(work, interrupted)
    assert work.gi_frame is None


def test_in_a_loop_each_step_is_answered_in_its_turn_and_cancelling_is_raised_in_the_work() -> None:
    async def answered_later(question: str) -> str:
        await asyncio.sleep(0 if question != "never" else 3_600)
        return answered(question)

    async def cancelled() -> None:
        work = asking("a", "never")
        task = asyncio.create_task(carry_out_in_loop(work, answered_later))
        for _ in range(5):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert work.gi_frame is None

    assert asyncio.run(carry_out_in_loop(asking(), answered_later)) == []
    found = asyncio.run(carry_out_in_loop(asking("a", "bad", "b"), answered_later))
    assert found == ["a!", "error bad", "b!"]
    asyncio.run(cancelled())


def test_work_is_insisted_on_with_pauses_between_until_it_succeeds() -> None:
    steps: list[object] = []

    def attempt() -> Work[str, str]:
        answer: str = yield "question"
        return answer

    def do(step: str | Pause) -> str | None:
        steps.append(step)
        if isinstance(step, Pause):
            return None
        if len(steps) < 5:
            raise StoreUnavailableError("away")
        return "answer"

    deadline = Deadline(SteppedClock(), 10_000)
    assert carry_out(deadline.insist(attempt), do) == "answer"
    kinds = [type(step) for step in steps]
    assert kinds == [str, Pause, str, Pause, str]
    longest_ms = [step.duration_ms for step in steps if isinstance(step, Pause)]
    assert all(pause_ms <= most_ms for pause_ms, most_ms in zip(longest_ms, (50, 100), strict=True))


def test_work_is_given_up_at_the_deadline_with_the_outcome_of_all_its_attempts() -> None:
    clock = SteppedClock()
    outcomes = [Outcome.UNKNOWN]

    def attempt() -> Work[str, str]:
        raise StoreUnavailableError(
            "away", outcome=outcomes.pop() if outcomes else Outcome.NOT_APPLIED
        )
        yield

    def do(step: str | Pause) -> None:
        assert isinstance(step, Pause)
        clock.sleep_ms(step.duration_ms)

    with pytest.raises(StoreUnavailableError) as caught:
        carry_out(Deadline(clock, 1_000).insist(attempt), do)
    assert caught.value.outcome is Outcome.UNKNOWN
    assert clock.monotonic_ms() >= 1_000


class Bound(NamedTuple):
    """Asks how long a request may take."""

    def do(self, port: Bounds) -> object:
        return port.bound()


class Bounds:
    """A port that says what bounds a request."""

    def bound(self) -> float:
        return bounded_ms(60_000)


class BoundsInLoop:
    """The same for a loop."""

    async def bound(self) -> float:
        await asyncio.sleep(0)
        return bounded_ms(60_000)


def bounds(inner: Deadline) -> Work[Any, tuple[float, float, float]]:
    """The bound now, that under another deadline, and that behind it."""

    def ask() -> Work[Bound, float]:
        bound: float = yield Bound()
        return bound

    return (yield Bound()), (yield from inner.bound(ask())), (yield Bound())


def test_a_request_has_what_is_left_of_the_nearest_deadline_in_a_thread_and_in_each_task() -> None:
    def system(bound_ms: float) -> Deadline:
        return Deadline(SYSTEM_CLOCK, bound_ms)

    def check(found: tuple[float, float, float], outer_ms: float, inner_ms: float) -> None:
        for bound_ms, most_ms in zip(found, (outer_ms, inner_ms, outer_ms), strict=True):
            assert most_ms / 2 < bound_ms <= most_ms
        assert bounded_ms(60_000) == 60_000

    async def in_tasks() -> None:
        long, short = await asyncio.gather(
            drive_in_loop(bounds(system(10_000)), BoundsInLoop(), system(40_000)),
            drive_in_loop(bounds(system(50_000)), BoundsInLoop(), system(20_000)),
        )
        check(long, 40_000, 10_000)
        check(short, 20_000, 20_000)

    check(drive(bounds(system(10_000)), Bounds(), system(40_000)), 40_000, 10_000)
    check(drive(bounds(system(50_000)), Bounds(), system(20_000)), 20_000, 20_000)
    last = drive(bounds(system(0)), Bounds(), system(0))
    assert min(last) >= LAST_TRY_MS
    asyncio.run(in_tasks())


def test_pauses_between_tries_let_other_tasks_go_on() -> None:
    went_on: list[int] = []

    async def other() -> None:
        while True:
            went_on.append(len(went_on))
            await asyncio.sleep(0)

    class Away:
        tries = 0

        async def bound(self) -> float:
            self.tries += 1
            if self.tries < 3:
                raise StoreUnavailableError("away")
            return 1.0

    def ask() -> Work[Bound, float]:
        bound: float = yield Bound()
        return bound

    async def run() -> None:
        task = asyncio.create_task(other())
        deadline = Deadline(SYSTEM_CLOCK, 10_000)
        assert await drive_in_loop(deadline.insist(ask), Away(), deadline) == 1.0
        task.cancel()

    asyncio.run(run())
    assert went_on


def giving(closed: list[str]) -> Work[str | Give, None]:
    """Gives what it is answered, one by one."""
    try:
        for question in "abc":
            answer = yield question
            assert (yield Give(answer)) is None
    finally:
        closed.append("closed")


def test_what_work_gives_is_taken_one_by_one_and_no_further_than_it_is_taken() -> None:
    asked: list[str] = []
    closed: list[str] = []
    noted: list[str] = []

    def do(question: str) -> str:
        asked.append(question)
        return answered(question)

    assert list(each_given(noting(giving(closed), noted.append), do)) == noted == ["a!", "b!", "c!"]
    asked.clear()
    some = each_given(giving(closed), do)
    assert next(some) == "a!"
    some.close()  # type: ignore[attr-defined]
    assert (asked, closed) == (["a"], ["closed", "closed"])

    async def do_later(question: str) -> str:
        await asyncio.sleep(0)
        return do(question)

    async def take() -> list[str]:
        return [each async for each in each_given_in_loop(giving(closed), do_later)]

    assert asyncio.run(take()) == ["a!", "b!", "c!"]


def test_what_a_step_raises_reaches_work_whose_gifts_are_noted() -> None:
    def careful() -> Work[str | Give, None]:
        try:
            yield "bad"
        except ValueError as exc:
            yield Give(f"error {exc}")

    noted: list[str] = []
    assert list(each_given(noting(careful(), noted.append), answered)) == noted == ["error bad"]


def test_work_in_a_turn_is_alone_with_it_and_leaves_it_also_when_it_is_cut_off() -> None:
    turn = Turn()
    deadline = Deadline(SYSTEM_CLOCK, 10_000)

    def inside() -> Work[Bound, float]:
        assert not turn.is_free
        bound: float = yield Bound()
        return bound

    def work() -> Work[Any, float]:
        return (yield from turn.take(inside(), 1.0))

    class Never:
        async def bound(self) -> float:
            await asyncio.sleep(3_600)
            return 0.0

    async def cancelled() -> None:
        task = asyncio.create_task(drive_in_loop(work(), Never(), deadline))
        await asyncio.sleep(0)
        assert not turn.is_free
        with pytest.raises(NotHeldError):
            await drive_in_loop(busy(), BoundsInLoop(), deadline)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    def busy() -> Work[Any, float]:
        return (yield from turn.take(inside(), 0))

    assert drive(work(), Bounds(), deadline) > 0
    assert asyncio.run(drive_in_loop(work(), BoundsInLoop(), deadline)) > 0
    asyncio.run(cancelled())
    assert turn.is_free

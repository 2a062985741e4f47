"""Work asks, and its driver answers: what a step raises is raised in the work."""

from __future__ import annotations

import asyncio

import pytest

from hqueue.errors import Outcome, StoreUnavailableError
from hqueue.runtime.clock import Deadline
from hqueue.runtime.steps import Pause, Work, carry_out, carry_out_in_loop
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

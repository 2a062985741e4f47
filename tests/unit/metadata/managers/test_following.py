"""Work that is followed goes on as its answers come, and whatever ends it is the result."""

from __future__ import annotations

import asyncio
from concurrent.futures import CancelledError, Future
from typing import Any

import pytest

from hqueue.metadata.managers.following import Asked, Following, follow
from hqueue.runtime.steps import Wait, Work, carry_out_in_loop


class Question:
    """What is asked for, and answered when a test says so."""

    def __init__(self) -> None:
        self.asked: list[Following[Any]] = []

    def ask(self) -> Asked:
        async def answer() -> object:
            await asyncio.sleep(0)
            return 7

        return Asked(self.asked.append, answer)

    def answer(self, answer: object = None, error: BaseException | None = None) -> None:
        work = self.asked.pop()
        if work.begins():
            work.go_on(answer, error)


def total(*questions: Question) -> Work[Any, int]:
    number = 0
    for each in questions:
        number += yield each.ask()
    return number


def test_work_goes_on_when_what_it_asked_for_is_there() -> None:
    first, second = Question(), Question()
    result = follow(total(first, second))
    assert (len(first.asked), len(second.asked)) == (1, 0)
    first.answer(1)
    assert not result.done()
    second.answer(2)
    assert result.result(0) == 3


def test_an_event_loop_carries_out_the_same_work() -> None:
    async def do(step: Any) -> object:
        return await step.do(None)

    first, second = Question(), Question()
    assert asyncio.run(carry_out_in_loop(total(first, second), do)) == 14


def test_waits_go_on_in_the_thread_that_has_the_answer() -> None:
    def work(question: Question) -> Work[Any, int]:
        first = yield Wait(lambda: 1, asyncio.Event().wait)
        answer = yield question.ask()
        return first + answer + (yield Wait(lambda: 2, asyncio.Event().wait))

    question = Question()
    result = follow(work(question))
    question.answer(4)
    assert result.result(0) == 7


def test_an_error_comes_to_the_step_that_asked_and_ends_it_unless_it_is_caught() -> None:
    def caught(question: Question) -> Work[Any, str]:
        try:
            yield question.ask()
        except ValueError:
            return "caught"
        return "missed"

    def uncaught(question: Question) -> Work[Any, str]:
        yield question.ask()
        return "missed"

    questions = Question(), Question()
    results = [
        follow(work(question)) for work, question in zip((caught, uncaught), questions, strict=True)
    ]
    for question in questions:
        question.answer(error=ValueError())
    assert results[0].result(0) == "caught"
    assert isinstance(results[1].exception(0), ValueError)


def refused() -> Work[Any, int]:
    raise ZeroDivisionError
    yield


def not_asked() -> Work[Any, int]:
    def fail(work: Following[Any]) -> None:
        raise ZeroDivisionError

    return (yield Asked(fail, asyncio.Event().wait))


@pytest.mark.parametrize("work", [refused, not_asked])
def test_an_error_before_anything_was_asked_for_is_raised_at_once(work: Any) -> None:
    with pytest.raises(ZeroDivisionError):
        follow(work())


def test_an_error_after_something_was_asked_for_is_the_result() -> None:
    def work(question: Question) -> Work[Any, None]:
        yield question.ask()
        yield from not_asked()

    question = Question()
    result: Future[None] = follow(work(question))
    question.answer()
    assert isinstance(result.exception(0), ZeroDivisionError)


def test_a_future_can_be_cancelled_until_something_is_done_for_it() -> None:
    first, second = Question(), Question()
    left, kept = follow(total(first)), follow(total(second, first))
    assert left.cancel()
    first.answer(1)
    with pytest.raises(CancelledError):
        left.result(0)
    second.answer(1)
    assert not kept.cancel()
    first.answer(2)
    assert kept.result(0) == 3

"""What listeners answer for each message, in threads and in an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from hqueue import DeliveryAnswer, InvalidInputError, MessageID, ReceivedMessage, Status
from hqueue.push.answers import REJECTED_MAX, Answer, CombinedAnswer, MessageAnswers
from hqueue.push.listener import Listeners
from hqueue.push.loop_service import LoopListeners
from hqueue.runtime.program_loop import ProgramLoop

Consume = Callable[[Sequence[ReceivedMessage]], Any]


def messages(count: int) -> list[ReceivedMessage]:
    return [ReceivedMessage("t", b"%d" % n, MessageID(5, n), 0) for n in range(count)]


class Got:
    """A listener that answers so, and keeps what it got."""

    def __init__(self, answer: Consume = lambda messages: None) -> None:
        self.values: list[int] = []
        self._answer = answer

    def __call__(self, messages: Sequence[ReceivedMessage]) -> Any:
        self.values += [int(each.value) for each in messages]
        return self._answer(messages)


def by_threads(listeners: list[Any], given: list[ReceivedMessage]) -> Answer:
    return Listeners(listeners, 1_000, "sub").consume(given)


def in_loop(listeners: list[Any], given: list[ReceivedMessage]) -> Answer:
    async def answer() -> Answer:
        return await LoopListeners(listeners, 1_000, ProgramLoop(), "sub").consume(given)

    return asyncio.run(answer())


each_face = pytest.mark.parametrize("called", [by_threads, in_loop])
Called = Callable[[list[Any], list[ReceivedMessage]], Answer]


def named(*rejected: int, again: int | None = None, delay_ms: int | None = None) -> Consume:
    """Rejects the messages with these numbers, and has others come again."""

    def answer(messages: Sequence[ReceivedMessage]) -> DeliveryAnswer:
        found = DeliveryAnswer()
        for message in messages:
            if int(message.value) in rejected:
                found.reject(message, f"bad {int(message.value)}")
            if int(message.value) == again:
                found.retry_from(message, "later", delay_ms=delay_ms)
        return found

    return answer


@each_face
@pytest.mark.parametrize(
    ("given", "answer"),
    [
        (named(), Answer(Status.DONE)),
        (named(1), Answer(Status.RETRY, "", MessageAnswers({1: "bad 1"}))),
        (named(again=0), Answer(Status.RETRY, "later", MessageAnswers({}, 0))),
        (
            named(0, 2, 3, again=3, delay_ms=5),
            Answer(Status.RETRY, "later", MessageAnswers({0: "bad 0", 2: "bad 2"}, 3, 5)),
        ),
    ],
)
def test_a_listener_answers_for_each_message(
    called: Called, given: Consume, answer: Answer
) -> None:
    assert called([given], messages(5)) == answer


@each_face
def test_the_next_listener_gets_what_is_done_for_the_ones_before_it(called: Called) -> None:
    second, third = Got(named(2)), Got()
    answer = called([named(1, again=4), second, third], messages(6))
    assert (second.values, third.values) == ([0, 2, 3], [0, 3])
    each = MessageAnswers({1: "bad 1", 2: "bad 2"}, 4)
    assert answer == Answer(Status.RETRY, "later", each)


@each_face
@pytest.mark.parametrize(
    ("second", "answer"),
    [
        (lambda messages: Status.RETRY, Answer(Status.RETRY, "", MessageAnswers({0: "bad 0"}, 1))),
        (
            lambda messages: Status.DEAD_LETTER,
            Answer(Status.RETRY, "", MessageAnswers({0: "bad 0", 1: "", 2: "bad 2", 3: ""})),
        ),
        (
            lambda messages: 1 // 0,
            Answer(
                Status.RETRY,
                "ZeroDivisionError: integer division or modulo by zero",
                MessageAnswers({0: "bad 0"}, 1),
            ),
        ),
    ],
)
def test_an_answer_for_all_is_one_for_what_its_listener_was_given(
    called: Called, second: Consume, answer: Answer
) -> None:
    last = Got()
    assert called([named(0, 2), second, last], messages(4)) == answer
    assert last.values == [], "no listener is called for what is not done"


@each_face
def test_a_message_that_the_listener_was_not_given_makes_no_answer(called: Called) -> None:
    other = messages(9)[8]
    for wrong in (DeliveryAnswer().reject(other), DeliveryAnswer().retry_from(other)):
        answer = called([lambda messages, wrong=wrong: wrong], messages(2))
        assert answer.status is Status.RETRY
        assert answer.each is None
        assert "names a message that the listener was not given" in answer.reason


def test_an_answer_rejects_no_more_than_a_worker_believes_and_the_rest_comes_at_once() -> None:
    given = messages(REJECTED_MAX + 5)
    combined = CombinedAnswer(given)
    answer = DeliveryAnswer()
    for message in given[2:]:
        answer.reject(message, "x" * 100)
    assert not combined.add(answer) or combined.left == given[:2]
    status, reason, each = combined.result()
    assert each is not None
    assert (status, reason, len(each.rejected)) == (Status.RETRY, "", REJECTED_MAX)
    assert (each.retry_from, each.retry_delay_ms) == (REJECTED_MAX + 2, 0)
    assert sum(map(len, each.rejected.values())) <= 16_000


@pytest.mark.parametrize(
    "wrong",
    [
        lambda answer, message: answer.reject(message.id),
        lambda answer, message: answer.reject(message, 5),
        lambda answer, message: answer.reject(message, ValueError("x")),
        lambda answer, message: answer.retry_from(0),
        lambda answer, message: answer.retry_from(message, b"no"),
        lambda answer, message: answer.retry_from(message, delay_ms=-1),
        lambda answer, message: answer.retry_from(message, delay_ms=86_400_001),
        lambda answer, message: answer.retry_from(message, delay_ms=1.5),
    ],
)
def test_what_can_be_no_answer_is_refused_where_it_is_given(
    wrong: Callable[[DeliveryAnswer, ReceivedMessage], object],
) -> None:
    with pytest.raises(InvalidInputError):
        wrong(DeliveryAnswer(), messages(1)[0])

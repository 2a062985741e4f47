"""One connection's requests, without it: numbers, room, late answers, the end."""

from __future__ import annotations

import time

import pytest

from hqueue.hbase.native.calls import REQUESTS_MAX, Call, Calls, NoAnswerError, UnsentError
from hqueue.hbase.native.wire import Answer, RemoteError

ANSWER = Answer(memoryview(b"yes"), memoryview(b""))


class Counted(Call):
    """A request that counts how often its caller was woken."""

    woken = 0

    def wake(self) -> None:
        self.woken += 1


def begun(calls: Calls[Counted], lasts_s: float = 60.0) -> Counted:
    call = Counted(time.monotonic() + lasts_s)
    assert calls.has_room()
    calls.add(call)
    call.sent_s = time.monotonic()
    return call


def test_an_answer_goes_to_the_request_with_its_number() -> None:
    calls = Calls[Counted]()
    first, second = begun(calls), begun(calls)
    refusal = RemoteError("a.b$C", "because", False)
    assert not calls.deliver(second.number, ANSWER)
    assert not calls.deliver(first.number, refusal)
    assert (first.answer(), second.answer()) == (refusal, ANSWER)
    assert (first.woken, second.woken) == (1, 1)


def test_a_late_answer_makes_room_and_is_thrown_away() -> None:
    calls = Calls[Counted]()
    left = [begun(calls) for _ in range(REQUESTS_MAX)]
    calls.heard_s = time.monotonic()
    for call in left[:2]:
        assert calls.leave(call)
    assert not calls.has_room(), "those that were given up count until they are answered"
    assert calls.deliver(left[0].number, ANSWER)
    assert calls.has_room()
    assert left[0].result is None
    with pytest.raises(ValueError, match="never made"):
        calls.deliver(left[0].number, ANSWER)
    with pytest.raises(NoAnswerError):
        left[1].answer()


def test_a_request_that_was_never_sent_takes_no_room_once_it_is_left() -> None:
    calls = Calls[Counted]()
    call = begun(calls)
    call.sent_s = 0.0
    assert calls.leave(call)
    assert calls.silent
    assert not calls.leave(call), "nobody leaves twice"
    with pytest.raises(ValueError, match="never made"):
        calls.deliver(call.number, ANSWER)


def test_a_request_without_a_caller_is_given_up_when_its_time_is_over() -> None:
    calls = Calls[Counted]()
    for _ in range(REQUESTS_MAX):
        begun(calls, -3_600).sent_s = 0.0
    assert calls.has_room()
    assert calls.silent


def test_after_silence_a_connection_is_used_no_more_and_after_a_sound_it_is() -> None:
    quiet, heard, left = Calls[Counted](), Calls[Counted](), Calls[Counted]()
    quiet.leave(begun(quiet, 0.0))
    call = begun(heard, 0.0)
    heard.heard_s = call.sent_s
    heard.leave(call)
    left.leave(begun(left))  # Before its time was over: that says nothing of the server.
    assert (quiet.usable, heard.usable, left.usable) == (False, True, True)
    assert (quiet.over, heard.over, left.over) == (True, False, False)


def test_those_are_woken_whose_time_is_over_and_the_next_time_is_said() -> None:
    calls = Calls[Counted]()
    assert calls.expire() is None
    over, later, soon = begun(calls, 0.0), begun(calls, 60.0), begun(calls, 30.0)
    assert calls.expire() == soon.ends_s
    assert [each.woken for each in (over, later, soon)] == [1, 0, 0]


def test_many_that_are_given_up_retire_a_connection() -> None:
    calls = Calls[Counted]()
    for _ in range(REQUESTS_MAX // 2):
        call = begun(calls)
        calls.heard_s = call.sent_s
        calls.leave(call)
    assert calls.usable
    call = begun(calls)
    calls.heard_s = call.sent_s
    calls.leave(call)
    assert not calls.usable


def test_the_end_of_a_connection_reaches_all_that_wait_and_takes_no_more() -> None:
    calls = Calls[Counted]()
    answered, waiting = begun(calls), begun(calls)
    calls.deliver(answered.number, ANSWER)
    assert calls.fail(ConnectionError("it broke"))
    assert not calls.fail(ConnectionError("it broke again")), "it ended once"
    assert answered.answer() == ANSWER
    with pytest.raises(NoAnswerError, match=r"it broke$"):
        waiting.answer()
    with pytest.raises(UnsentError):
        calls.add(Counted(time.monotonic() + 60))
    assert not calls.over, "their callers are there"
    for call in (answered, waiting):
        calls.leave(call)
    assert calls.over


def test_numbers_begin_again_behind_the_last_one() -> None:
    calls = Calls[Counted](number_max=2)
    numbers = []
    for _ in range(4):
        call = begun(calls)
        numbers.append(call.number)
        calls.deliver(call.number, ANSWER)
        calls.leave(call)
    assert numbers == [1, 2, 1, 2]

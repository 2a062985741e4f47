"""An operation is tried until its deadline, and its error knows of all tries."""

from __future__ import annotations

import contextvars

import pytest

from hqueue.errors import (
    ClosedError,
    HQueueError,
    NotAQueueError,
    Outcome,
    RequestRefusedError,
    StoreUnavailableError,
)
from hqueue.runtime.clock import LAST_TRY_MS, SYSTEM_CLOCK, Deadline, bounded_ms
from hqueue.runtime.steps import Pause, Work
from tests.support.doubles import SteppedClock

BOUND_MS = 10_000

LOST = StoreUnavailableError("no answer", outcome=Outcome.UNKNOWN)
AWAY = StoreUnavailableError("can't be reached", outcome=Outcome.NOT_APPLIED)


def run(*tries: HQueueError | str) -> object:
    """What comes of an operation whose tries end so, and the last of them again and again."""
    ends = list(tries)

    def operation() -> str:
        end = ends.pop(0) if len(ends) > 1 else ends[0]
        if isinstance(end, str):
            return end
        raise type(end)(end.text, outcome=end.outcome)

    return Deadline(SteppedClock(), BOUND_MS).run(operation)


def test_it_is_tried_again_until_it_is_answered() -> None:
    assert run("at once") == "at once"
    assert run(AWAY, LOST, AWAY, "at last") == "at last"


@pytest.mark.parametrize("last", [AWAY, RequestRefusedError("no"), ClosedError("closed")])
def test_what_ends_without_an_answer_is_unknown_if_any_try_was(last: HQueueError) -> None:
    for tries in [(LOST, last), (LOST, AWAY, last), (AWAY, LOST, last)]:
        with pytest.raises(type(last)) as caught:
            run(*tries)
        assert caught.value.outcome is Outcome.UNKNOWN
    for tries in [(last,), (AWAY, last)]:
        with pytest.raises(type(last)) as caught:
            run(*tries)
        assert caught.value.outcome is Outcome.NOT_APPLIED


def test_what_is_an_answer_says_itself_what_became_of_it() -> None:
    with pytest.raises(NotAQueueError) as caught:
        run(LOST, NotAQueueError("a table of another"))
    assert caught.value.outcome is Outcome.NOT_APPLIED


def test_the_last_error_is_raised_when_the_time_is_over() -> None:
    clock = SteppedClock()

    def fail() -> None:
        raise StoreUnavailableError(
            "can't be reached", outcome=Outcome.NOT_APPLIED, at_ms=clock.now_ms
        )

    with pytest.raises(StoreUnavailableError) as caught:
        Deadline(clock, BOUND_MS).run(fail)
    assert caught.value.at_ms == clock.now_ms == pytest.approx(BOUND_MS)


def test_a_request_is_bounded_by_what_is_left_of_the_operation_but_for_a_last_try() -> None:
    assert bounded_ms(15_000) == 15_000
    deadline = Deadline(SYSTEM_CLOCK, 5_000)
    inside = deadline.run(lambda: bounded_ms(15_000))
    assert 4_000 < inside <= 5_000
    assert deadline.run(lambda: bounded_ms(700)) == 700
    assert Deadline(SYSTEM_CLOCK, 10).run(lambda: bounded_ms(15_000)) == LAST_TRY_MS
    assert Deadline(SYSTEM_CLOCK, 0).run(lambda: bounded_ms(15_000)) == 15_000, "one whole try"
    within = deadline.run(lambda: Deadline(SYSTEM_CLOCK, 60_000).run(lambda: bounded_ms(15_000)))
    assert within <= 5_000
    assert bounded_ms(15_000) == 15_000


def test_work_that_is_let_go_of_elsewhere_changes_no_bound_there() -> None:
    def work() -> Work[Pause, None]:
        yield Pause(1)

    def left() -> Work[Pause, None]:
        """Work that a task was in the middle of, when its loop was closed."""
        bound = Deadline(SYSTEM_CLOCK, 2_000).bound(work())
        next(bound)
        return bound

    deadline = Deadline(SYSTEM_CLOCK, 5_000)
    elsewhere = contextvars.Context()
    before = elsewhere.run(left)
    within = elsewhere.run(Deadline(SYSTEM_CLOCK, 3_000).run, left)

    def let_go() -> float:
        before.close()
        return bounded_ms(15_000)

    assert 4_000 < deadline.run(let_go) <= 5_000
    within.close()
    assert bounded_ms(15_000) == 15_000

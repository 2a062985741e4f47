"""Several changes, some of which fail: the outcome of each, and of all together."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from types import FrameType

import pytest

from hqueue import Outcome, StoreUnavailableError
from hqueue.metadata.outcomes import answers_of, own_copy, partly_done
from hqueue.metadata.ports import Version

AWAY = StoreUnavailableError("away", outcome=Outcome.UNKNOWN, path="a")
NOT_SENT = StoreUnavailableError("not sent", outcome=Outcome.NOT_APPLIED)


@pytest.mark.parametrize(
    ("answers", "outcome"),
    [
        ({"a": NOT_SENT, "b": None, "c": False}, Outcome.NOT_APPLIED),
        ({"a": NOT_SENT, "b": Version(0)}, Outcome.UNKNOWN),
        ({"a": NOT_SENT, "b": True}, Outcome.UNKNOWN),
        ({"a": AWAY, "b": None}, Outcome.UNKNOWN),
    ],
)
def test_together_they_are_unknown_if_one_was_made_or_may_have_been(
    answers: Mapping[str, object], outcome: Outcome
) -> None:
    assert partly_done(AWAY, answers).outcome is outcome


def test_what_an_error_does_not_say_of_one_it_says_of_all() -> None:
    partly = partly_done(AWAY, {"a": AWAY, "b": None})
    answers = answers_of(partly, ["a", "b", "c"], Outcome.NOT_APPLIED)
    assert answers["a"] is AWAY
    assert answers["b"] is None
    assert answers["c"].outcome is Outcome.NOT_APPLIED
    assert type(answers["c"]) is StoreUnavailableError


def test_an_error_that_can_t_be_copied_is_shared() -> None:
    class OddError(Exception):
        def __init__(self, one: int, two: int) -> None:
            super().__init__(one)

    odd = OddError(1, 2)
    assert own_copy(odd) is odd
    assert own_copy(ValueError("x")).args == ("x",)


def test_a_handler_that_raises_within_a_copy_is_not_taken_for_an_error_that_can_t_be_copied() -> (
    None
):
    class Interrupts(Exception):  # noqa: N818
        def __reduce__(self) -> str:
            signal.raise_signal(signal.SIGUSR1)
            return ""

    def handle(number: int, frame: FrameType | None) -> None:
        raise TimeoutError("a limit")

    before = signal.signal(signal.SIGUSR1, handle)
    try:
        with pytest.raises(TimeoutError, match="a limit"):
            own_copy(Interrupts())
    finally:
        signal.signal(signal.SIGUSR1, before)

"""A fault that should pass is borne for a bound, and not for ever."""

from __future__ import annotations

import pytest

from hqueue.errors import QueueDisabledError
from hqueue.runtime.clock import Deadline, Patience
from tests.support.doubles import SteppedClock

BOUND_MS = 100


@pytest.fixture
def clock() -> SteppedClock:
    return SteppedClock()


@pytest.fixture
def patience(clock: SteppedClock) -> Patience:
    return Patience(lambda: Deadline(clock, BOUND_MS))


def test_a_fault_is_borne_until_it_has_lasted_for_the_bound(
    clock: SteppedClock, patience: Patience
) -> None:
    error = QueueDisabledError("disabled")
    for _ in range(BOUND_MS):
        patience.bear(error)
        clock.now_ms += 1
    with pytest.raises(QueueDisabledError) as raised:
        patience.bear(error)
    assert raised.value is error


def test_a_fault_that_passed_is_borne_as_long_when_it_comes_again(
    clock: SteppedClock, patience: Patience
) -> None:
    for _ in range(3):
        patience.bear(QueueDisabledError("disabled"))
        clock.now_ms += BOUND_MS - 1
        patience.bear(QueueDisabledError("disabled"))
        patience.renew()
        clock.now_ms += BOUND_MS

"""The clock is measured by one at a time, and nobody waits for that beyond their own bound."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from hqueue import Outcome, StoreUnavailableError
from hqueue.log.skew import SkewGuard
from hqueue.runtime.clock import SYSTEM_CLOCK, Deadline, drive


class HungPort:
    """A store that measures the clock when it is let go on."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.goes_on = threading.Event()
        self.measured = 0

    def clock_offset_ms(self) -> tuple[float, float]:
        self.asked.set()
        assert self.goes_on.wait(30)
        self.measured += 1
        return 0.0, 0.0


def test_who_waits_for_anothers_measurement_does_so_until_its_deadline() -> None:
    port = HungPort()
    guard = SkewGuard(5_000)

    def check(bound_ms: float) -> None:
        deadline = Deadline(SYSTEM_CLOCK, bound_ms)
        drive(guard.check(deadline), port, deadline)

    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(check, 30_000)
        assert port.asked.wait(30)
        late = pool.submit(check, 30)
        patient = pool.submit(check, 30_000)
        try:
            with pytest.raises(StoreUnavailableError) as caught:
                late.result(5)
            assert caught.value.outcome is Outcome.NOT_APPLIED
        finally:
            port.goes_on.set()
        first.result(30)
        patient.result(30)
    assert port.measured == 1

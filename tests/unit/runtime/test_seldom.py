"""What strangers can have logged."""

from __future__ import annotations

import pytest

from hqueue.runtime.logs import Log
from hqueue.runtime.seldom import FAULTS_MAX, FaultLog, SeldomLog


class Clock:
    def __init__(self) -> None:
        self.now_ms = 0.0

    def wall_ms(self) -> int:
        return 0

    def monotonic_ms(self) -> float:
        return self.now_ms

    def sleep_ms(self, duration_ms: float) -> None:
        raise AssertionError


def test_one_line_a_second_is_written_and_says_how_many_were_left_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = Clock()
    log = SeldomLog(Log("strangers"), clock)
    for now_ms in (0, 1, 999, 1_000, 1_001, 3_000):
        clock.now_ms = now_ms
        log.warning("at %d", now_ms)
    assert [record.getMessage() for record in caplog.records] == [
        "at 0",
        "at 1000 (2 lines like this were left out)",
        "at 3000 (1 lines like this were left out)",
    ]


def test_a_fault_that_lasts_is_said_when_it_begins_and_when_it_is_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = Clock()
    log = FaultLog(Log("faults"), clock, quiet_ms=1_000)
    log.over("q", "%s is back", "q")
    for now_ms in range(0, 5_000, 10):
        clock.now_ms = now_ms
        log.met("q", "%s is away", "q")
        log.over("q", "%s is back", "q")
    for now_ms in (5_500, 5_989, 5_990, 6_000):
        clock.now_ms = now_ms
        log.over("q", "%s is back", "q")
    log.met("q", "%s is away", "q")
    log.met("other", "%s is away", "other")
    assert [record.getMessage() for record in caplog.records] == [
        "q is away",
        "q is back, after 6.0 s",
        "q is away",
        "other is away",
    ]


def test_a_fault_that_passes_within_the_patience_with_it_is_not_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = Clock()
    log = FaultLog(Log("faults"), clock, patience_ms=2_000)
    for lasts_ms in (1_990, 2_010):
        for _ in range(0, lasts_ms, 10):
            log.met("q", "%s is away", "q")
            clock.now_ms += 10
        log.over("q", "%s is back", "q")
    assert [record.getMessage() for record in caplog.records] == [
        "q is away",
        "q is back, after 2.0 s",
    ]


def test_faults_without_number_are_not_kept() -> None:
    log = FaultLog(Log("faults"), Clock())
    for number in range(2 * FAULTS_MAX):
        log.met(str(number), "it is there")
    assert log.count == FAULTS_MAX

"""What strangers can have logged."""

from __future__ import annotations

import logging

import pytest

from hqueue.runtime.seldom import SeldomLog


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
    log = SeldomLog(logging.getLogger("strangers"), clock)
    for now_ms in (0, 1, 999, 1_000, 1_001, 3_000):
        clock.now_ms = now_ms
        log.warning("at %d", now_ms)
    assert [record.getMessage() for record in caplog.records] == [
        "at 0",
        "at 1000 (2 lines like this were left out)",
        "at 3000 (1 lines like this were left out)",
    ]

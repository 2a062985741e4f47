"""The audit: what is written of whom, and how much at most."""

from __future__ import annotations

import logging

import pytest

from hqueue.net.audit import Audit
from hqueue.runtime.logs import Log
from hqueue.runtime.seldom import AT_ONCE, KNOWN_MAX, EachLog
from tests.support.doubles import SteppedClock


def test_a_principal_can_fill_no_disk_and_hides_no_other(caplog: pytest.LogCaptureFixture) -> None:
    audit = Audit()
    with caplog.at_level(logging.WARNING, "hqueue.audit"):
        for _ in range(1_000):
            audit.refused("publish", "loud", "10.0.0.1", "it may not", topic="t")
            audit.refused("connect", None, "10.0.0.2", "it proved nothing", port="hub")
        audit.refused("publish", "quiet", "10.0.0.3", "it may not", topic="t")
    lines = [record.getMessage() for record in caplog.records]
    assert AT_ONCE <= sum('who="loud"' in line for line in lines) <= AT_ONCE + 2
    assert sum('who="anonymous"' in line for line in lines) <= 3
    assert 'who="quiet" from="10.0.0.3" action="publish" topic="t" allowed="no"' in lines[-1]


def test_lines_come_again_in_time_with_the_number_of_those_left_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = SteppedClock(0)
    written = EachLog(Log("hqueue.tests"), clock)
    with caplog.at_level(logging.WARNING, "hqueue.tests"):
        for number in range(AT_ONCE + 5):
            written.warning("who", "line %d", number)
        clock.sleep_ms(1_000)
        written.warning("who", "line %d", 99)
        clock.sleep_ms(3_600_000)
        for _ in range(2 * AT_ONCE):
            written.warning("who", "later")
        for number in range(2 * KNOWN_MAX):
            written.warning(str(number), "many")
    lines = [record.getMessage() for record in caplog.records]
    assert lines[:AT_ONCE] == [f"line {number}" for number in range(AT_ONCE)]
    assert lines[AT_ONCE] == "line 99 (5 lines like this were left out)"
    assert lines.count("later") == AT_ONCE
    assert lines.count("many") == 2 * KNOWN_MAX

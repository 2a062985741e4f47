"""What a stall is, and which fault it counts for."""

from __future__ import annotations

from .nemesis import Event
from .report import longest


def test_the_longest_time_without_a_success_at_a_place_counts_for_the_fault_then() -> None:
    events = [Event("kill-meta", 100.0, 110.0), Event("kill-hub", 90.0, 160.0)]
    done = [("a", 99.0), ("b", 100.0), ("b", 104.0), ("a", 112.0), ("a", 119.0), ("a", 140.0)]
    assert longest(events, done) == {"kill-meta": 13.0, "kill-hub": 21.0}


def test_what_happens_without_a_fault_is_no_stall_of_one() -> None:
    assert longest([Event("kill-meta", 100.0, 110.0)], [("a", 10.0), ("a", 50.0)]) == {}

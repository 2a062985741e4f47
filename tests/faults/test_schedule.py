"""The same seed gives the same schedule, in which each kind comes as often as the others."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest

from .schedule import FAULTS, GROUPS, HUBS, PRODUCERS, PUSH, SERVERS, SHARES, Planned, schedule


def beginning(seed: int) -> dict[str, list[Planned]]:
    return {
        track.name: list(itertools.islice(track.planned, 400)) for track in schedule(seed, FAULTS)
    }


def test_the_same_seed_gives_the_same_schedule() -> None:
    assert beginning(1) == beginning(1)
    assert beginning(1)[SERVERS] != beginning(2)[SERVERS]


@pytest.mark.parametrize("track", [SERVERS, PRODUCERS, PUSH, GROUPS, HUBS, SHARES])
def test_all_kinds_come_before_any_comes_again(track: str) -> None:
    round_of = Counter(
        {name: fault.often for name, fault in FAULTS.items() if fault.track == track}
    )
    came = [item.fault for item in beginning(1)[track]]
    for first in range(0, round_of.total() * 5, round_of.total()):
        assert Counter(came[first : first + round_of.total()]) == round_of


def test_a_kind_that_is_wanted_alone_comes_alone() -> None:
    (track,) = schedule(1, ["kill-meta"])
    assert {item.fault for item in itertools.islice(track.planned, 5)} == {"kill-meta"}

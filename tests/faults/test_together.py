"""Two and three faults at once: which may be, and that nothing is mended before they are over."""

from __future__ import annotations

import itertools
import random

import pytest

from .fault import SERVERS
from .schedule import FAULTS, Planned, schedule
from .together import AT_ONCE, LIMITS, can_draw, drawn, may_join

OF_SERVERS = [name for name, fault in FAULTS.items() if fault.track == SERVERS]


def came(count: int) -> list[Planned]:
    (track,) = schedule(1, OF_SERVERS)
    several = (item for item in track.planned if AT_ONCE.get(item.fault) == count)
    return list(itertools.islice(several, 300))


@pytest.mark.parametrize("count", AT_ONCE.values())
def test_the_schedule_has_so_many_at_once_and_all_kinds_in_time(count: int) -> None:
    sets = [tuple(one.fault for one in item.at_once) for item in came(count)]
    assert all(len(set(kinds)) == count and may_join(kinds) for kinds in sets)
    joining = {kind for kinds, _ in LIMITS for kind in kinds}
    assert set(itertools.chain(*sets)) == joining
    assert len(set(sets)) > 200
    for item in came(count):
        assert item.lasts_s == max(one.lasts_s for one in item.at_once)
        assert all(one.fault in str(item) for one in item.at_once)


def test_limits_name_kinds_that_there_are() -> None:
    assert {kind for kinds, _ in LIMITS for kind in kinds} <= set(OF_SERVERS)


@pytest.mark.parametrize(
    "kinds",
    [
        ("kill-datanode", "cut-off-datanode", "unplug-datanode"),
        ("kill-datanode", "cut-off-datanode", "rot-blocks"),
        ("unplug-host", "unplug-datanode"),
        ("unplug-datanode", "rot-checksums"),
        ("rot-zookeeper", "lose-zookeeper-quorum"),
        ("unplug-all", "kill-datanode"),
    ],
)
def test_what_nothing_could_survive_is_not_done(kinds: tuple[str, ...]) -> None:
    assert not may_join(kinds)


def test_what_can_not_be_at_once_is_not_drawn() -> None:
    assert can_draw(2, ["kill-meta", "kill-datanode"])
    assert not can_draw(2, ["kill-meta", "kill-regionserver", "compact"])
    with pytest.raises(ValueError, match="no 2 of these"):
        drawn(random.Random(1), 2, ["kill-meta", "kill-regionserver"])

"""Each new kind of fault has a planted bug, which fits today's code, and a report tells it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from .fault import SERVERS
from .planted_bugs import (
    BUGS,
    FAILURE,
    PUBLISH_STALL,
    PUT_STALL,
    BugGoneError,
    PlantedBug,
    rows,
)
from .report import ALL_KINDS
from .schedule import FAULTS

ROOT = Path(__file__).parents[2]
BEFORE = {
    *("kill-regionserver", "kill-meta", "kill-gateway", "kill-datanode", "pause-regionserver"),
    *("pause-gateway", "restart-master", "restart-zookeeper", "move-regions", "cut-connections"),
    *("delay-connections", "disable-queue", "compact"),
}
"""Kinds of servers' faults that are older than the planted bugs."""


NONE_YET = {"slow-datanode", "slow-disk", "slow-zookeeper-disks"}
"""Kinds for which no bug is known that only they find."""


def figures(**changes: Any) -> dict[str, Any]:
    return {
        "failures": 0,
        "violations": dict.fromkeys(ALL_KINDS, 0),
        "longest_stall_s": {"kill-meta": 3.0},
        "longest_publish_stall_s": {},
        **changes,
    }


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_bug_can_be_planted_in_today_s_code(bug: PlantedBug) -> None:
    source = (ROOT / bug.path).read_text()
    planted = bug.plant(source)
    assert planted != source
    compile(planted, bug.path, "exec")
    with pytest.raises(BugGoneError, match=bug.name):
        bug.plant(planted.replace(bug.old, ""))


def test_each_new_kind_stands_for_one_bug_and_is_known() -> None:
    kinds = [kind for bug in BUGS for kind in bug.kinds]
    new = {name for name, each in FAULTS.items() if each.track == SERVERS or each.upgrades}
    assert sorted(kinds) == sorted(new - BEFORE - NONE_YET)
    assert len({bug.name for bug in BUGS}) == len(BUGS)
    for bug in BUGS:
        assert set(bug.faults) & set(bug.kinds)
        assert not set(bug.others) & {"two-at-once", "three-at-once"}
        assert {*bug.faults, *bug.others} <= set(FAULTS)


def test_what_a_run_reports_tells_whether_a_bug_was_found() -> None:
    for bug in BUGS:
        assert not bug.is_found(figures())
        reports: dict[str, dict[str, Any]] = {
            FAILURE: {"failures": 1},
            PUT_STALL: {"longest_stall_s": {"kill-meta": 90.0}},
            PUBLISH_STALL: {"longest_publish_stall_s": {"kill-meta": 90.0}},
            **{kind: {"violations": {kind: 2}} for kind in ALL_KINDS},
        }
        assert bug.is_found(figures(**reports[bug.shows]))


def test_the_page_shows_them_all() -> None:
    table = list(rows(BUGS))
    page = (ROOT / "docs" / "reliability.md").read_text()
    assert all(f"| {' | '.join(row)} |" in page for row in table)

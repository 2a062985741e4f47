"""A run counts only if all its faults took place, and if processes did enough meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest

from . import report
from .history import History
from .nemesis import Event
from .report import summary, unproven
from .run import Options, Result
from .schedule import FAULTS
from .share_history import ShareHistory
from .topic_history import TopicHistory
from .upgrade_checker import Switch, check_switches


def result(kind: str, times: int, seconds: float = 0.0) -> Result:
    """A run of some seconds, without any message."""
    history = History([], [], {}, {}, [])
    events = [Event(kind, float(at), at + 0.5, "one") for at in range(times)]
    options = Options(1, seconds, [kind], Path())
    return Result(options, history, TopicHistory(), ShareHistory(), events, [], [], 0.0, seconds)


def test_a_run_with_fewer_switches_than_planned_proves_nothing() -> None:
    least = FAULTS["upgrade-hub"].times
    (reason,) = unproven(result("upgrade-hub", least - 1))
    assert reason == f"upgrade-hub took place {least - 1} times instead of {least}"
    assert unproven(result("upgrade-hub", 0)) == ["no upgrade-hub took place"]
    assert unproven(result("upgrade-hub", least)) == []


def test_a_switch_that_did_not_take_place_does_not_count() -> None:
    run = result("upgrade-hub", FAULTS["upgrade-hub"].times)
    run.events[0].problem = "no hub runs that could be switched"
    assert len(unproven(run)) == 1


def test_a_nearly_empty_run_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    reasons = unproven(result("kill-meta", 1, 300.0))
    assert len(reasons) == 1 + len(report.BUSY)
    assert reasons[0] == "ok puts: 0 in the whole run, and fewer than 60 prove nothing"
    assert "proves nothing: ok puts: 0" in summary(result("kill-meta", 1, 300.0))
    figures = report.figures(result("kill-meta", 1, 300.0))
    busy = {**figures, "puts": {"ok": 60}, **dict.fromkeys(report.BUSY, 60)}
    monkeypatch.setattr(report, "figures", lambda _: busy)
    assert unproven(result("kill-meta", 1, 300.0)) == []
    busy["published"] = 59
    (reason,) = unproven(result("kill-meta", 1, 300.0))
    assert reason.startswith("published: 59")


def test_the_summary_says_what_was_switched_and_what_did_not_work() -> None:
    run = result("upgrade-hub", 2)
    run.switches = [
        Switch("hub", "left-4", "present", True, 3.0),
        Switch("hub", "left-5", "older", False, 240.0, "a record has a version"),
    ]
    run.violations = check_switches(run.switches)
    text = summary(run)
    assert "to the present code/back: hub 1/1; the slowest took 240.0 s" in text
    assert "incompatible: hub left-5 did nothing with the older code in 240 s" in text
    assert "a record has a version" in text
    assert text.endswith("seed 1: 1 VIOLATIONS")

"""A plugin of pytest: runs the tests that a file names, in its order, and writes how each ended."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

__all__ = ["CHOSEN", "ENDED", "FAILED", "PASSED", "TIMED_OUT"]

CHOSEN = "MUTANTS_CHOSEN"
"""Names the file with the tests' node IDs. If it has none, all run."""

ENDED = "MUTANTS_ENDED"
"""Names the file to write: for each test how it ended, and how many seconds it took."""

PASSED, FAILED, TIMED_OUT = "passed", "failed", "timed out"

_ended: dict[str, tuple[str, float]] = {}


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the chosen ones."""
    chosen = json.loads(Path(os.environ[CHOSEN]).read_text())
    if not chosen:
        return
    order = {name: number for number, name in enumerate(chosen)}
    kept = [item for item in items if item.nodeid in order]
    items[:] = sorted(kept, key=lambda item: order[item.nodeid])


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Add up what set-up, call and teardown took. One that fails fails the test."""
    outcome, took_s = _ended.get(report.nodeid, (PASSED, 0.0))
    if report.failed:
        outcome = TIMED_OUT if "from pytest-timeout" in report.longreprtext else FAILED
    _ended[report.nodeid] = outcome, took_s + report.duration


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write it, in the process that has all reports."""
    if not hasattr(session.config, "workerinput"):
        Path(os.environ[ENDED]).write_text(json.dumps(_ended))

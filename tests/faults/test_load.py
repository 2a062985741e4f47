"""Faults begin when every writer has written something, and a run without load proves nothing."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from . import load
from .history import Put, Recorder
from .load import await_load, idle
from .processes import Processes


def recorded(path: Path, outcome: str) -> Path:
    recorder = Recorder(path)
    recorder.invoke(Put("p", 0, ["a"], 0, 1.0))
    recorder.complete(0, outcome, [1])  # type: ignore[arg-type]
    return path


def test_who_has_not_succeeded_is_idle(tmp_path: Path) -> None:
    done = recorded(tmp_path / "done", "ok")
    failed = recorded(tmp_path / "failed", "fail")
    nothing = tmp_path / "nothing"
    assert list(idle([done, failed, nothing])) == [failed, nothing]


class Running:
    """Processes that run: one of each kind."""

    def running(self, kind: str) -> dict[str, int]:
        return {f"one-{kind}": 1}


def test_a_writer_that_never_succeeds_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load, "LOADED_WITHIN_S", 0.0)
    for kind in ("producer", "supplier"):
        recorded(tmp_path / f"one-{kind}.{kind}.jsonl", "ok")
    assert await_load(cast(Processes, Running()), tmp_path) == ["one-publisher"]
    recorded(tmp_path / "one-publisher.publisher.jsonl", "ok")
    assert await_load(cast(Processes, Running()), tmp_path) == []

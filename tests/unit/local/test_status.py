"""What `status` says of a server that can't go on: a full disk, and why a process ended."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from hqueue.errors import LocalServerError
from hqueue.local import start, status
from hqueue.local.home import Home, State
from hqueue.local.process import LocalProcess, ProcessPlan
from hqueue.local.server import DISK_BYTES_MIN
from tests.support.command_line import run_here


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """Of a server whose only process has ended."""
    place = Home.of(tmp_path)
    place.logs.mkdir()
    plan = ProcessPlan("master", "127.0.0.1", {}, ("java",), log=str(place.logs / "master.log"))
    process = LocalProcess(plan, 2**22 + 1, 1.0)
    place.write_state(State("standalone", {}, ready=True, processes=(process,)))
    place.write_connection((), "127.0.0.1:1")
    return place


def shown(home: Home, *arguments: str) -> tuple[int, str, str]:
    code, out, err = run_here(
        ["local", "status", *arguments], b"", {"HQUEUE_LOCAL_HOME": str(home.path)}
    )
    return code, out.decode(), err


def leave_free(monkeypatch: pytest.MonkeyPatch, free_bytes: int) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free_bytes))


def test_a_full_disk_is_named_and_status_fails(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    leave_free(monkeypatch, DISK_BYTES_MIN - 1)
    code, out, err = shown(home)
    assert code == 1
    assert "disk free\t67.1 MB" in out
    assert err.startswith(f"hqueue: the disk of {home.path} is full")
    code, out, err = shown(home, "--json")
    assert json.loads(out)["disk_free_bytes"] == DISK_BYTES_MIN - 1
    leave_free(monkeypatch, DISK_BYTES_MIN)
    assert "full" not in shown(home)[2]
    assert not status(home.path).disk_full


def test_nothing_is_started_on_a_full_disk(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    leave_free(monkeypatch, 0)
    with pytest.raises(LocalServerError, match="the disk is full"):
        start(home=home.path)


@pytest.mark.parametrize(
    ("suffix", "line", "cause"),
    [
        (".log", "java.io.IOException: No space left on device", "its disk was full"),
        (".out", "Terminating due to java.lang.OutOfMemoryError: Java", "it had too little memory"),
        (".log", "a line that says nothing of it", None),
    ],
)
def test_why_a_process_ended_is_said_if_its_log_says_it(
    home: Home, suffix: str, line: str, cause: str | None
) -> None:
    (home.logs / f"master{suffix}").write_text(f"before\n{line}\nbehind\n")
    [process] = status(home.path).processes
    assert (process.alive, process.cause) == (False, cause)
    _, out, _ = shown(home)
    assert ("ended" if cause is None else f"ended: {cause}") in out


def test_a_folder_that_is_not_there_yet_lies_on_the_disk_of_the_one_above(tmp_path: Path) -> None:
    free = status(tmp_path / "not" / "yet").disk_free_bytes
    assert free is not None
    assert free > 0

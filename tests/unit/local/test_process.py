"""Starting, recognising and ending processes."""

from __future__ import annotations

import dataclasses
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from hqueue.local.home import Home, State
from hqueue.local.process import (
    LocalProcess,
    ProcessPlan,
    end_all,
    marked_processes,
    spawn,
    wait_ended,
    wait_paused,
)

SLEEPER = "import time; print('up', flush=True); time.sleep(120)"
STUBBORN = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {SLEEPER}"


@pytest.fixture
def start_python(tmp_path: Path) -> Iterator[list[LocalProcess]]:
    """Collects processes that are killed after the test."""
    started: list[LocalProcess] = []
    yield started
    end_all(started, orderly_s=0)


def begin(started: list[LocalProcess], folder: Path, code: str, *arguments: str) -> LocalProcess:
    """Start a Python program and wait until it is up."""
    command = (sys.executable, "-c", code, *arguments)
    log = folder / f"p{len(started)}.log"
    process = spawn(ProcessPlan(log.stem, "", {}, command, log=str(log)))
    started.append(process)
    deadline = time.monotonic() + 20
    while "up" not in log.with_suffix(".out").read_text(encoding="utf-8"):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return process


def test_a_process_is_ended_orderly_and_a_stubborn_one_killed(
    start_python: list[LocalProcess], tmp_path: Path
) -> None:
    quiet = begin(start_python, tmp_path, SLEEPER)
    stubborn = begin(start_python, tmp_path, STUBBORN)
    assert end_all([quiet, stubborn], orderly_s=0.5) == [stubborn.name]
    assert not quiet.alive()
    assert not stubborn.alive()


def test_a_paused_process_is_waited_for_until_it_stands_still_and_can_be_ended(
    start_python: list[LocalProcess], tmp_path: Path
) -> None:
    process = begin(start_python, tmp_path, "print('up', flush=True)\nwhile True: pass")
    assert not wait_paused(process, 0.05)
    assert process.send_signal(signal.SIGSTOP)
    assert wait_paused(process, 20)
    assert process.paused()
    assert process.alive()
    assert end_all([process], orderly_s=20) == []
    assert not wait_paused(process, 20)


def test_a_reused_process_id_is_another_process(
    start_python: list[LocalProcess], tmp_path: Path
) -> None:
    process = begin(start_python, tmp_path, SLEEPER)
    earlier = dataclasses.replace(process, created=process.created - 100)
    assert not earlier.alive()
    end_all([earlier], orderly_s=0)
    assert process.alive()


def test_processes_are_found_by_their_home_without_a_state(
    start_python: list[LocalProcess], tmp_path: Path
) -> None:
    ours = begin(start_python, tmp_path, SLEEPER, f"-Dhqueue.local.home={tmp_path}")
    begin(start_python, tmp_path, SLEEPER, f"-Dhqueue.local.home={tmp_path}-other")
    assert [process.pid for process in marked_processes(tmp_path)] == [ours.pid]


def test_what_a_process_writes_when_it_begins_is_removed_before(
    start_python: list[LocalProcess], tmp_path: Path
) -> None:
    path = tmp_path / "keys"
    path.write_text("of before")
    code = f"import os; print(os.path.exists({str(path)!r}), 'up', flush=True)"
    log = tmp_path / "p.log"
    plan = ProcessPlan("p", "", {}, (sys.executable, "-c", code), log=str(log))
    for written in ((str(path),), (str(path), str(tmp_path / "absent"))):
        process = spawn(dataclasses.replace(plan, written=written))
        start_python.append(process)
        assert wait_ended([process], 20) == []
        assert log.with_suffix(".out").read_text(encoding="utf-8").startswith("False")


def test_a_process_is_in_a_session_of_its_own(
    start_python: list[LocalProcess], tmp_path: Path
) -> None:
    code = f"import os; print(os.getsid(0) == os.getpid()); {SLEEPER}"
    begin(start_python, tmp_path, code)
    assert (tmp_path / "p0.out").read_text(encoding="utf-8").startswith("True")


def test_a_process_whose_first_thread_is_gone_runs_until_the_last_one_is(
    start_python: list[LocalProcess], tmp_path: Path
) -> None:
    code = (
        "import ctypes, threading, time; "
        "threading.Thread(target=time.sleep, args=(120,)).start(); "
        "print('up', flush=True); ctypes.CDLL(None).pthread_exit(None)"
    )
    process = begin(start_python, tmp_path, code)
    deadline = time.monotonic() + 20
    while psutil.Process(process.pid).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert process.alive()
    end_all([process], orderly_s=0)
    assert not process.alive()


def test_the_state_is_read_as_it_was_written(tmp_path: Path) -> None:
    me = psutil.Process()
    plan = ProcessPlan("p", "127.0.0.1", {"p": 1}, ("a", "b"), 2, "x.log")
    state = State("s", {"p": 1}, True, ("h:1/2",), "h:3", (LocalProcess(plan, me.pid, 1.5),))
    home = Home.of(tmp_path)
    assert home.read_state() is None
    home.write_state(state)
    assert home.read_state() == state
    (tmp_path / "state.json").write_text("{", encoding="utf-8")
    assert home.read_state() is None

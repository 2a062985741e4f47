"""One process of the local server: starting, recognising and ending it.

A process is identified by its ID together with the time it was created, so that a process ID which
the system gave to another program is never touched.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import psutil

from hqueue.runtime.clock import SYSTEM_CLOCK, Deadline

__all__ = [
    "LocalProcess",
    "ProcessPlan",
    "end_all",
    "home_mark",
    "marked_processes",
    "spawn",
    "wait_ended",
    "wait_paused",
]

KILL_WAIT_S = 15.0
_CREATE_TIME_SLACK_S = 0.05

_children: dict[int, subprocess.Popen[bytes]] = {}
"""What this Python process started: polled, so that an ended one doesn't stay a zombie."""


@dataclasses.dataclass(frozen=True)
class ProcessPlan:
    """How to start one process."""

    name: str
    host: str
    ports: Mapping[str, int]
    """The TCP ports that it listens on, by name. It is up when all of them answer."""
    command: tuple[str, ...]
    stage: int = 0
    """Processes of a stage are started when those of the earlier stages are up."""
    log: str = ""
    """The path of its log file; what it prints goes to the same path with ``.out``."""
    ready_text: str = ""
    """What it has printed when it is up; "" if its ports alone say so."""
    stop_command: tuple[str, ...] = ()
    """What asks it to end better than SIGTERM does; none for most."""
    written: tuple[str, ...] = ()
    """The paths of files that it writes when it begins, and that must not exist before."""


@dataclasses.dataclass(frozen=True)
class LocalProcess:
    """A process that was started; it may have ended since."""

    plan: ProcessPlan
    pid: int
    created: float

    @property
    def name(self) -> str:
        """The name of the process, unique in its server."""
        return self.plan.name

    def alive(self) -> bool:
        """Say whether this very process runs (or is paused)."""
        return self._found() is not None

    def paused(self) -> bool:
        """Say whether it is stopped by a signal."""
        found = self._found()
        with contextlib.suppress(psutil.Error):
            return found is not None and found.status() == psutil.STATUS_STOPPED
        return False

    def rss_bytes(self) -> int:
        """Resident memory; 0 if it has ended."""
        found = self._found()
        with contextlib.suppress(psutil.Error):
            return int(found.memory_info().rss) if found else 0
        return 0

    def send_signal(self, number: int) -> bool:
        """Send a signal, if this very process still runs. Returns whether it did."""
        found = self._found()
        with contextlib.suppress(psutil.NoSuchProcess):
            if found is not None:
                found.send_signal(number)
                return True
        return False

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> LocalProcess:
        """Read the form in the state file."""
        plan = dict(value["plan"])
        plan["command"] = tuple(plan["command"])
        for name in ("stop_command", "written"):
            plan[name] = tuple(plan.get(name, ()))
        return cls(ProcessPlan(**plan), int(value["pid"]), float(value["created"]))

    def _found(self) -> psutil.Process | None:
        child = _children.get(self.pid)
        if child is not None and child.poll() is not None:
            del _children[self.pid]
        try:
            found = psutil.Process(self.pid)
            if abs(found.create_time() - self.created) > _CREATE_TIME_SLACK_S:
                return None
            return None if _is_over(found) else found
        except psutil.NoSuchProcess:
            return None


def _is_over(process: psutil.Process) -> bool:
    """Whether a process has ended, and only its entry is left.

    The kernel calls a process a zombie as soon as its first thread is gone. Until the last one
    is, its ports and files stay open.
    """
    return process.status() == psutil.STATUS_ZOMBIE and process.num_threads() <= 1


def spawn(plan: ProcessPlan) -> LocalProcess:
    """Start a process in a session of its own, so that it outlives the terminal and its Ctrl-C.

    It reads nothing; what it prints goes into a file beside its log. Its log begins again, and the
    log of the run before is kept as ``<log>.before``.
    """
    environ = {k: v for k, v in os.environ.items() if not k.startswith(("HBASE_", "HADOOP_"))}
    environ["MALLOC_ARENA_MAX"] = "2"
    log = Path(plan.log)
    with contextlib.suppress(FileNotFoundError):
        os.replace(log, log.with_name(f"{log.name}.before"))
    for path in plan.written:
        Path(path).unlink(missing_ok=True)
    output = log.with_suffix(".out")
    with open(output, "wb") as sink:
        child = subprocess.Popen(
            plan.command,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            close_fds=True,
            cwd=output.parent,
            env=environ,
        )
    _children[child.pid] = child
    try:
        created = psutil.Process(child.pid).create_time()
    except psutil.NoSuchProcess:
        created = 0.0
    return LocalProcess(plan, child.pid, created)


def end_all(processes: Iterable[LocalProcess], *, orderly_s: float) -> list[str]:
    """End processes together: SIGTERM, then SIGKILL for those that run on after the bound.

    A paused process is continued, so that it can end. When this returns none of them runs.

    Args:
        processes: what to end; processes that ended already are passed over.
        orderly_s: how long they may take; 0 kills at once.

    Returns:
        The names of those that had to be killed.
    """
    left = [process for process in processes if process.alive()]
    killed: list[str] = []
    if orderly_s > 0:
        for process in left:
            process.send_signal(signal.SIGTERM)
            process.send_signal(signal.SIGCONT)
        left = wait_ended(left, orderly_s)
        killed = [process.name for process in left]
    for process in left:
        process.send_signal(signal.SIGKILL)
    wait_ended(left, KILL_WAIT_S)
    return killed


def wait_ended(processes: list[LocalProcess], timeout_s: float) -> list[LocalProcess]:
    """Wait until all have ended, or the bound, and return those that run on."""
    deadline = Deadline(SYSTEM_CLOCK, timeout_s * 1e3)
    while (left := [each for each in processes if each.alive()]) and not deadline.expired:
        time.sleep(0.05)
    return left


def wait_paused(process: LocalProcess, timeout_s: float) -> bool:
    """Wait until a process stands still that was sent SIGSTOP, its end, or the bound.

    The signal is under way for as long as the machine is busy: a process takes it when it next
    gets a processor.

    Returns:
        Whether it stands still.
    """
    deadline = Deadline(SYSTEM_CLOCK, timeout_s * 1e3)
    while not (paused := process.paused()) and process.alive() and not deadline.expired:
        time.sleep(0.005)
    return paused


def home_mark(home: Path) -> str:
    """The option on the command line of every process of the server with this home."""
    return f"-Dhqueue.local.home={home}"


def marked_processes(home: Path) -> list[LocalProcess]:
    """Find the running processes of the server with this home, without its state file."""
    mark = home_mark(home)
    found: list[LocalProcess] = []
    for process in psutil.process_iter():
        try:
            command = process.cmdline()
            if mark in command and not _is_over(process):
                plan = ProcessPlan("unknown", "", {}, tuple(command))
                found.append(LocalProcess(plan, process.pid, process.create_time()))
        except psutil.Error:
            continue
    return found

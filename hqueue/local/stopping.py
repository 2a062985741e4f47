"""Stopping a home's server, and deleting what it stored."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterable

from hqueue.local.home import Home, State
from hqueue.local.process import LocalProcess, end_all, marked_processes, wait_ended
from hqueue.runtime.clock import SYSTEM_CLOCK, Deadline
from hqueue.runtime.logs import Log

__all__ = ["end_left_overs", "reset", "stop"]

logger = Log(__name__)

ORDERLY_S = 30.0
TERM_S = 10.0
LOCK_TIMEOUT_S = 300.0
LOOK_AGAIN_MS = 200.0

_STOP_ORDER = (
    ("thrift",),
    ("master", "regionserver"),
    ("zookeeper", "namenode", "datanode", "kdc"),
)


def stop(
    *,
    home: str | os.PathLike[str] | None = None,
    orderly_s: float = ORDERLY_S,
    timeout_s: float = LOCK_TIMEOUT_S,
) -> bool:
    """Stop the server of a home. When it returns none of its processes runs; the data stays.

    Clients lose the connection file first. Then the gateways, the master with the region
    servers, and the storage below them end in this order, each within its bound. HBase is asked
    to write out what it holds in memory; what runs on is killed.

    Args:
        home: the server's folder; ``HQUEUE_LOCAL_HOME`` or the user's state folder if None.
        orderly_s: the bound of each step; 0 kills everything at once.
        timeout_s: the bound on waiting for another start or stop in this home.

    Returns:
        Whether anything ran.

    Raises:
        LocalServerError: another process held the home until the bound.
    """
    server_home = Home.of(home)
    if not server_home.path.exists():
        return False
    with server_home.locked(timeout_s):
        return _stop_locked(server_home, orderly_s)


def reset(*, home: str | os.PathLike[str] | None = None, timeout_s: float = LOCK_TIMEOUT_S) -> None:
    """Stop the server of a home, if it runs, and delete everything that it stored and logged.

    Raises:
        LocalServerError: another process held the home until the bound.
    """
    server_home = Home.of(home)
    if not server_home.path.exists():
        return
    with server_home.locked(timeout_s):
        _stop_locked(server_home, 0.0)
        for folder in (
            server_home.path / "data",
            server_home.logs,
            server_home.conf,
            server_home.authority,
            server_home.temporary,
        ):
            shutil.rmtree(folder, ignore_errors=True)
        server_home.remove_state()


def end_left_overs(home: Home) -> None:
    """Kill what is left of an earlier start. The caller holds the home's lock."""
    home.remove_connection()
    state = home.read_state()
    left = [*(state.processes if state else ()), *marked_processes(home.path)]
    while left:
        end_all(left, orderly_s=0)
        # A process that was started just before shows its mark a moment later, when it runs.
        SYSTEM_CLOCK.sleep_ms(LOOK_AGAIN_MS)
        left = marked_processes(home.path)


def _stop_locked(home: Home, orderly_s: float) -> bool:
    home.remove_connection()
    state = home.read_state()
    known = list(state.processes) if state else []
    pids = {process.pid for process in known}
    unknown = [process for process in marked_processes(home.path) if process.pid not in pids]
    ran = bool(unknown) or any(process.alive() for process in known)
    for step in (*_steps(known), unknown):
        if orderly_s > 0:
            _ask_to_end(step, orderly_s)
        killed = end_all(step, orderly_s=min(orderly_s, TERM_S))
        if killed and orderly_s > 0:
            logger.warning("killed processes that did not end by themselves: %s", killed)
    if state is not None:
        home.write_state(State(state.profile, state.ports))
    return ran


def _ask_to_end(step: list[LocalProcess], orderly_s: float) -> None:
    """Run the stop command of a process of this step, if one has any, and wait for them all."""
    deadline = Deadline(SYSTEM_CLOCK, orderly_s * 1e3)
    for process in step:
        process.send_signal(signal.SIGCONT)
        if not process.plan.stop_command or not process.alive():
            continue
        try:
            subprocess.run(
                process.plan.stop_command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=orderly_s,
                check=True,
            )
        except (OSError, subprocess.SubprocessError) as exc:
            logger.info("can't ask %s to end: %s", process.name, type(exc).__name__)
        else:
            wait_ended(step, deadline.remaining_ms / 1e3)


def _steps(processes: Iterable[LocalProcess]) -> list[list[LocalProcess]]:
    processes = list(processes)
    return [[p for p in processes if p.name.startswith(names)] for names in _STOP_ORDER]

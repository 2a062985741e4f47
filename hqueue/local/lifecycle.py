"""Starting, stopping and resetting a local server: one at a time in a home."""

from __future__ import annotations

import dataclasses
import logging
import os
import shutil
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from hqueue.errors import LocalServerError
from hqueue.local.cluster import Cluster
from hqueue.local.configuration import Launcher
from hqueue.local.freeports import choose_ports
from hqueue.local.home import Home, State
from hqueue.local.jars import ensure_jars
from hqueue.local.java import find_java
from hqueue.local.layout import Profile
from hqueue.local.process import LocalProcess, end_all, marked_processes
from hqueue.local.server import LocalServer, Status, status_of
from hqueue.local.standalone import Standalone
from hqueue.local.starting import PortTakenError, Progress, bring_up

__all__ = ["PROFILES", "attach", "reset", "start", "status", "stop"]

logger = logging.getLogger(__name__)

PROFILES: Mapping[str, Profile] = {p.name: p for p in (Standalone(), Cluster())}

START_TIMEOUT_S = 240.0
STOP_TIMEOUT_S = 120.0
ORDERLY_S = 30.0
PORT_TRIES_MAX = 4

_Path = str | os.PathLike[str] | None


def start(
    profile: str = "standalone",
    *,
    ports: Mapping[str, int] | None = None,
    home: _Path = None,
    timeout_s: float = START_TIMEOUT_S,
    progress: Progress | None = None,
) -> LocalServer:
    """Start a server, or return the one of the same profile that runs already.

    When it returns, a row was written and read back through each gateway, and the connection
    file says how to reach the server. The server's processes outlive this one. Of several calls
    at once for a home one starts the server and the others wait for it. Data of earlier starts
    is there again, also when the server was killed. If this fails or is interrupted, no process
    is left.

    Args:
        profile: ``standalone`` or ``cluster``.
        ports: a port for some of the profile's port names; the others are those of the last
            start, or random free ones.
        home: the server's folder; ``HQUEUE_LOCAL_HOME`` or the user's state folder if None.
        timeout_s: the bound on all of it, but for fetching the jars the first time.
        progress: called with a line of text at each step.

    Raises:
        LocalServerError: it could not be started; the fact `log` has the last lines of the
            server's log where there are any.
    """
    if profile not in PROFILES:
        raise LocalServerError("unknown profile", profile=profile, known=list(PROFILES))
    progress = progress or (lambda text: logger.info("%s", text))
    java = find_java()
    place = Home.of(home)
    jars = ensure_jars(progress=progress)
    deadline = time.monotonic() + timeout_s
    with place.locked(timeout_s):
        running = status_of(place)
        if running.ready:
            _check_same(running, profile, ports)
            return LocalServer(place)
        launcher = Launcher(place, java, jars)
        for tries_left in reversed(range(PORT_TRIES_MAX)):
            _clear(place)
            try:
                _start_once(PROFILES[profile], launcher, ports or {}, deadline, progress)
                break
            except PortTakenError as exc:
                if not tries_left or time.monotonic() >= deadline:
                    raise
                logger.info("a port was taken meanwhile, choosing again: %s", exc.facts["process"])
                place.write_state(State(profile, {}))
    return LocalServer(place)


def attach(home: _Path = None) -> LocalServer:
    """Return the server that runs in a home.

    Raises:
        LocalServerError: none does, or it is not ready.
    """
    place = Home.of(home)
    if not status_of(place).ready:
        raise LocalServerError("no local server is ready in this home", home=str(place.path))
    return LocalServer(place)


def status(home: _Path = None) -> Status:
    """Say what runs in a home. Starts, stops and waits for nothing."""
    return status_of(Home.of(home))


def stop(
    *, home: _Path = None, orderly_s: float = ORDERLY_S, timeout_s: float = STOP_TIMEOUT_S
) -> bool:
    """Stop the server of a home. When it returns none of its processes runs; the data stays.

    Clients lose the connection file first. Then gateways, masters with region servers, and the
    storage below them end in this order, each orderly (SIGTERM) within its bound, so that
    HBase writes out what it holds in memory; what runs on is killed.

    Args:
        home: the server's folder; ``HQUEUE_LOCAL_HOME`` or the user's state folder if None.
        orderly_s: the bound of each step; 0 kills everything at once.
        timeout_s: the bound on waiting for another start or stop in this home.

    Returns:
        Whether anything ran.

    Raises:
        LocalServerError: another process held the home until the bound.
    """
    place = Home.of(home)
    if not place.path.exists():
        return False
    with place.locked(timeout_s):
        return _stop_locked(place, orderly_s)


def reset(*, home: _Path = None, timeout_s: float = STOP_TIMEOUT_S) -> None:
    """Stop the server of a home, if it runs, and delete everything that it stored and logged.

    Raises:
        LocalServerError: another process held the home until the bound.
    """
    place = Home.of(home)
    if not place.path.exists():
        return
    with place.locked(timeout_s):
        _stop_locked(place, 0.0)
        for name in ("data", "logs", "conf", "tmp"):
            shutil.rmtree(place.path / name, ignore_errors=True)
        (place.path / "state.json").unlink(missing_ok=True)


def _check_same(running: Status, profile: str, ports: Mapping[str, int] | None) -> None:
    if running.profile != profile:
        raise LocalServerError(
            "a local server of another profile runs in this home; stop it first",
            running=running.profile,
            wanted=profile,
        )
    used = {name: port for process in running.processes for name, port in process.ports.items()}
    different = {n: p for n, p in (ports or {}).items() if used.get(n) != p}
    if different:
        raise LocalServerError(
            "the local server runs already, with other ports; stop it first",
            wanted=different,
            running={name: used.get(name) for name in different},
        )


def _clear(place: Home) -> None:
    """End what is left of an earlier start, whose starter or processes died."""
    place.remove_connection()
    state = place.read_state()
    left = [*(state.processes if state else ()), *marked_processes(place.path)]
    end_all(left, orderly_s=0)


def _start_once(
    profile: Profile,
    launcher: Launcher,
    given: Mapping[str, int],
    deadline: float,
    progress: Progress,
) -> None:
    place = launcher.home
    last = place.read_state()
    preferred = last.ports if last and last.profile == profile.name else {}
    ports = choose_ports(profile.port_names, given=given, preferred=preferred)
    launcher.clear()
    layout = profile.layout(launcher, ports)
    state = State(
        profile.name,
        ports,
        gateways=tuple(str(gateway) for gateway in layout.gateways),
        zookeeper=layout.zookeeper,
    )
    place.write_state(state)

    def started(process: LocalProcess) -> None:
        nonlocal state
        state = state.with_process(process)
        place.write_state(state)

    try:
        layout.prepare()
        bring_up(layout.processes, deadline=deadline, started=started, progress=progress)
        place.write_state(dataclasses.replace(state, ready=True))
        place.write_connection(layout.gateways, layout.zookeeper)
    except BaseException:
        # Also a Ctrl-C: nothing that was begun may stay behind.
        _clear(place)
        raise


def _stop_locked(place: Home, orderly_s: float) -> bool:
    place.remove_connection()
    state = place.read_state()
    known = list(state.processes) if state else []
    known_pids = {process.pid for process in known}
    unknown = [p for p in marked_processes(place.path) if p.pid not in known_pids]
    ran = bool(unknown) or any(process.alive() for process in known)
    for step in (*_stop_steps(known), unknown):
        killed = end_all(step, orderly_s=orderly_s)
        if killed and orderly_s > 0:
            logger.warning("killed after %.0f s without an orderly end: %s", orderly_s, killed)
    if state is not None:
        place.write_state(State(state.profile, state.ports))
    return ran


_STOP_ORDER = (("thrift",), ("master", "regionserver"), ("zookeeper", "namenode", "datanode"))


def _stop_steps(processes: Iterable[LocalProcess]) -> list[list[LocalProcess]]:
    processes = list(processes)
    return [[p for p in processes if p.name.startswith(names)] for names in _STOP_ORDER]

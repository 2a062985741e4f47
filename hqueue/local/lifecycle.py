"""Starting a home's server, and finding the one that runs."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping

from hqueue.errors import LocalServerError
from hqueue.local.cluster import CLUSTER
from hqueue.local.configuration import Launcher
from hqueue.local.freeports import choose_ports
from hqueue.local.home import Home, State
from hqueue.local.jars import KDC, ensure_jars
from hqueue.local.java import find_java
from hqueue.local.layout import Profile
from hqueue.local.logs import LogLine, follow_lines, read_lines
from hqueue.local.process import LocalProcess
from hqueue.local.secure import SECURE
from hqueue.local.server import DISK_BYTES_MIN, LocalServer, Status, status_of
from hqueue.local.standalone import STANDALONE
from hqueue.local.starting import PortTakenError, Progress, bring_up
from hqueue.local.stopping import end_left_overs
from hqueue.local.versions import hbase_jars
from hqueue.runtime.clock import SYSTEM_CLOCK, Deadline
from hqueue.runtime.logs import Log

__all__ = ["PROFILES", "attach", "logs", "start", "start_profile", "status"]

logger = Log(__name__)

PROFILES: Mapping[str, Profile] = {p.name: p for p in (STANDALONE, CLUSTER, SECURE)}

START_TIMEOUT_S = 300.0
MISSING_TIMEOUT_MS = 90_000.0
"""Of starting what is missing: later all is started again."""

PORT_TRIES_MAX = 4

_Path = str | os.PathLike[str] | None


def start(
    profile: str = "standalone",
    *,
    gateways: bool = False,
    ports: Mapping[str, int] | None = None,
    home: _Path = None,
    timeout_s: float = START_TIMEOUT_S,
    progress: Progress | None = None,
) -> LocalServer:
    """Start a server, or return the one of the same profile that runs already. If some of its
    processes have ended, only these are started, as long as the others go on with them.

    When it returns, a row was written and read back, through each gateway if there are any, and the
    connection file says how to reach the server: through its gateways, or natively without any. The
    server's processes outlive this one. Of several calls at once for a home one starts the server
    and the others wait for it. Data of earlier starts is there again, also when the server was
    killed. If this fails or is interrupted, no process is left; if this process is killed
    meanwhile, the next start or stop ends what it left.

    Args:
        profile: ``standalone``, ``cluster`` or ``secure``.
        gateways: whether HBase's two Thrift gateways are started, too. A server that runs with them
            is what is wanted in any case.
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
    return start_profile(
        PROFILES[profile],
        gateways=gateways,
        ports=ports,
        home=home,
        timeout_s=timeout_s,
        progress=progress,
    )


def start_profile(
    profile: Profile,
    *,
    gateways: bool = False,
    ports: Mapping[str, int] | None = None,
    home: _Path = None,
    timeout_s: float = START_TIMEOUT_S,
    progress: Progress | None = None,
) -> LocalServer:
    """Start a server of a profile that need not be one of `PROFILES`; all else as `start`."""
    if gateways and not profile.gateway_port_names:
        raise LocalServerError("this profile has no gateways", profile=profile.name)
    server_home = Home.of(home)
    if _runs(server_home, profile.name, gateways, ports):
        return LocalServer(server_home)
    if status_of(server_home).disk_full:
        raise LocalServerError(
            "the disk is full: make room, or choose another home by HQUEUE_LOCAL_HOME",
            home=str(server_home.path),
            needed_bytes=DISK_BYTES_MIN,
        )
    java = find_java()
    jars = ensure_jars(hbase_jars(), progress=progress)
    gateway_jars = ensure_jars(progress=progress) if gateways else None
    kdc_jars = ensure_jars(KDC, progress=progress) if profile.is_secure else None
    deadline = Deadline(SYSTEM_CLOCK, timeout_s * 1e3)
    with server_home.locked(timeout_s):
        if _runs(server_home, profile.name, gateways, ports):
            return LocalServer(server_home)
        if _start_missing(
            server_home, profile, gateways, ports, deadline=deadline, progress=progress
        ):
            return LocalServer(server_home)
        launcher = Launcher(server_home, java, jars, gateway_jars, kdc_jars)
        for tries_left in reversed(range(PORT_TRIES_MAX)):
            end_left_overs(server_home)
            try:
                _start_once(
                    profile,
                    launcher,
                    ports or {},
                    gateways=gateways,
                    deadline=deadline,
                    progress=progress,
                )
                break
            except PortTakenError as exc:
                if not tries_left or deadline.expired:
                    raise
                logger.info(
                    "another program took a port meanwhile; choosing ports again: %s",
                    exc.facts["process"],
                )
                server_home.write_state(State(profile.name, {}))
    return LocalServer(server_home)


def attach(home: _Path = None) -> LocalServer:
    """Return the server that runs in a home.

    Raises:
        LocalServerError: none does, or it is not ready.
    """
    server_home = Home.of(home)
    if not status_of(server_home).ready:
        raise LocalServerError(
            "no local server is ready in this home; start one first", home=str(server_home.path)
        )
    return LocalServer(server_home)


def status(home: _Path = None) -> Status:
    """Say what runs in a home. Starts, stops and waits for nothing."""
    return status_of(Home.of(home))


def logs(
    pattern: str = "*",
    *,
    home: _Path = None,
    last: int | None = None,
    follow: bool = False,
    timeout_s: float | None = None,
) -> Iterator[LogLine]:
    """Yield log lines of the processes of a home's server, whether or not it runs.

    Args:
        pattern: a process's name, or a pattern such as ``regionserver-*``.
        home: the server's folder; ``HQUEUE_LOCAL_HOME`` or the user's state folder if None.
        last: begin this many lines before the end of each log; at its beginning if None.
        follow: go on with what is written from now on, until the bound or the iterator's
            ``close``.
        timeout_s: the bound on following; None for none.
    """
    folder = Home.of(home).logs
    if follow:
        return follow_lines(folder, pattern, last=last, timeout_s=timeout_s)
    return read_lines(folder, pattern, last=last)


def _runs(home: Home, profile: str, gateways: bool, ports: Mapping[str, int] | None) -> bool:
    """Say whether the server wanted is ready; refuse if another one is."""
    running = status_of(home)
    if not running.ready:
        return False
    if running.profile != profile:
        raise LocalServerError(
            "a local server of another profile runs in this home; stop it first",
            running=running.profile,
            wanted=profile,
        )
    if gateways and not running.gateways:
        raise LocalServerError(
            "the local server runs without gateways; stop it first", running=running.profile
        )
    used = {name: port for process in running.processes for name, port in process.ports.items()}
    different = {name: port for name, port in (ports or {}).items() if used.get(name) != port}
    if different:
        raise LocalServerError(
            "the local server runs already, with other ports; stop it first",
            wanted=different,
            running={name: used.get(name) for name in different},
        )
    return True


def _start_missing(
    home: Home,
    profile: Profile,
    gateways: bool,
    ports: Mapping[str, int] | None,
    *,
    deadline: Deadline,
    progress: Progress | None,
) -> bool:
    """Start the processes that have ended since the last start, if others run and are those that
    are wanted. The caller holds the home's lock.

    Returns:
        Whether the server is ready. If not, all of it must be started again.
    """
    last = home.read_state()
    if last is None or not last.ready or last.profile != profile.name:
        return False
    running = {process.name: process for process in last.processes if process.alive()}
    is_wanted = (last.gateways or not gateways) and (ports or {}).items() <= last.ports.items()
    if not running or not is_wanted or not profile.is_usable(home):
        return False
    state = dataclasses.replace(last, ready=False)
    home.write_state(state)

    def started(process: LocalProcess) -> None:
        nonlocal state
        state = state.with_process(process)
        home.write_state(state)

    try:
        bring_up(
            [process.plan for process in last.processes],
            settings={"zookeeper": state.zookeeper, **state.settings},
            deadline=Deadline(SYSTEM_CLOCK, min(MISSING_TIMEOUT_MS, deadline.remaining_ms)),
            started=started,
            progress=progress,
            running=running,
        )
        home.write_state(dataclasses.replace(state, ready=True))
    except LocalServerError as exc:
        logger.info("what is left of the local server can't be used; starting all of it: %s", exc)
        return False
    except BaseException:
        end_left_overs(home)
        raise
    return home.connection_file.exists()


def _start_once(
    profile: Profile,
    launcher: Launcher,
    given: Mapping[str, int],
    *,
    gateways: bool,
    deadline: Deadline,
    progress: Progress | None,
) -> None:
    home = launcher.home
    last = home.read_state()
    preferred = last.ports if last and last.profile == profile.name else {}
    names = (*profile.port_names, *(profile.gateway_port_names if gateways else ()))
    ports = choose_ports(names, given=given, preferred=preferred)
    launcher.clear()
    layout = profile.layout(launcher, ports, gateways)
    state = State(
        profile.name,
        ports,
        gateways=tuple(str(gateway) for gateway in layout.gateways),
        zookeeper=layout.zookeeper,
        settings=dict(layout.settings),
    )
    home.write_state(state)

    def started(process: LocalProcess) -> None:
        nonlocal state
        state = state.with_process(process)
        home.write_state(state)

    try:
        layout.prepare()
        bring_up(
            layout.processes,
            settings={"zookeeper": layout.zookeeper, **layout.settings},
            deadline=deadline,
            started=started,
            progress=progress,
        )
        home.write_state(dataclasses.replace(state, ready=True))
        others = {**layout.settings, **layout.roles}
        home.write_connection(layout.gateways, layout.zookeeper, others)
    except BaseException:
        # Also a Ctrl-C: nothing that was begun may stay behind.
        end_left_overs(home)
        raise

"""A local server that runs, and what may be done to its processes."""

from __future__ import annotations

import dataclasses
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

from hqueue.errors import LocalServerError
from hqueue.local.configuration import TOOL_LOGGING
from hqueue.local.home import Home, State
from hqueue.local.layout import is_gateway
from hqueue.local.logs import LogLine, cause_of_end, read_lines
from hqueue.local.process import LocalProcess, end_all, spawn, wait_paused
from hqueue.local.starting import await_listening, await_serving
from hqueue.local.stopping import ORDERLY_S, stop
from hqueue.runtime.clock import SYSTEM_CLOCK, Deadline
from hqueue.settings.addresses import GatewayAddress
from hqueue.settings.connection import Settings

__all__ = ["DISK_BYTES_MIN", "LocalServer", "ProcessStatus", "Status", "status_of"]

STATE_TIMEOUT_S = 60.0
PAUSE_WAIT_S = 15.0
DISK_BYTES_MIN = 64 * 1024 * 1024
"""With less room a disk counts as full: each write-ahead log and each flush needs some."""


@dataclasses.dataclass(frozen=True)
class ProcessStatus:
    """One process of the server, as it is now."""

    name: str
    pid: int
    host: str
    ports: Mapping[str, int]
    """The TCP ports that it listens on, by name."""
    alive: bool
    paused: bool
    rss_bytes: int
    cause: str | None = None
    """Why it ended, if it has, and its log says it."""


@dataclasses.dataclass(frozen=True)
class Status:
    """A local server as it is now."""

    home: Path
    profile: str | None
    """None if no server was started in this home, or it was stopped."""
    ready: bool
    """It was started completely, and each of its processes is alive."""
    gateways: tuple[GatewayAddress, ...]
    """None if it runs without them: clients speak to HBase natively then."""
    zookeeper: str
    processes: tuple[ProcessStatus, ...]
    disk_free_bytes: int | None
    """What the file system of the home has room for; None where it can't be asked."""

    @property
    def disk_full(self) -> bool:
        """Whether the servers have no room to write in: they may run on, and answer nothing."""
        return self.disk_free_bytes is not None and self.disk_free_bytes < DISK_BYTES_MIN

    @property
    def rss_bytes(self) -> int:
        """The resident memory of all processes."""
        return sum(process.rss_bytes for process in self.processes)


def status_of(home: Home) -> Status:
    """Look at a home's server. Starts, stops and waits for nothing."""
    state = home.read_state()
    if state is None or not state.processes:
        return Status(home.path, None, False, (), "", (), home.disk_free_bytes())
    processes = tuple(map(_process_status, state.processes))
    return Status(
        home.path,
        state.profile,
        state.ready
        and home.connection_file.exists()
        and all(process.alive for process in processes),
        tuple(GatewayAddress.parse(gateway) for gateway in state.gateways),
        state.zookeeper,
        processes,
        home.disk_free_bytes(),
    )


def _process_status(process: LocalProcess) -> ProcessStatus:
    alive = process.alive()
    return ProcessStatus(
        process.name,
        process.pid,
        process.plan.host,
        process.plan.ports,
        alive,
        process.paused(),
        process.rss_bytes(),
        None if alive else cause_of_end(Path(process.plan.log)),
    )


class LocalServer:
    """A running server. As a context manager it stops the server at the end.

    Objects of several processes may stand for the same server. Not thread-safe.
    """

    def __init__(self, home: Home) -> None:
        state = home.read_state()
        if state is None:
            raise LocalServerError("no local server runs in this home", home=str(home.path))
        self._home = home
        self.profile: str = state.profile
        self.gateways: tuple[GatewayAddress, ...] = tuple(
            GatewayAddress.parse(gateway) for gateway in state.gateways
        )
        self.zookeeper: str = state.zookeeper
        self._settings = state.settings

    def __repr__(self) -> str:
        return f"<LocalServer {self.profile} in {str(self._home.path)!r}>"

    def __enter__(self) -> LocalServer:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    @property
    def home(self) -> Path:
        """The folder of everything that is this server's."""
        return self._home.path

    @property
    def logs_dir(self) -> Path:
        """The folder of its logs: a file ``<process>.log`` for each process."""
        return self._home.logs

    @property
    def processes(self) -> tuple[ProcessStatus, ...]:
        """All processes as they are now, also those that were killed."""
        return status_of(self._home).processes

    def settings(self, **changes: object) -> Settings:
        """The settings of a client of this server, with changes; no other source is read. Through
        its gateways if it has any, and natively otherwise.
        """
        return Settings(
            **{
                "gateways": self.gateways,
                "zookeeper": self.zookeeper,
                **self._settings,
                **changes,
            }
        )

    def status(self) -> Status:
        """Look at the server and all of its processes."""
        return status_of(self._home)

    def kill(self, name: str) -> None:
        """Kill a process (SIGKILL). When this returns it has ended."""
        end_all([self._process(name)], orderly_s=0)

    def pause(self, name: str) -> None:
        """Stop a process where it is (SIGSTOP); it keeps its memory, ports and connections.

        When this returns it stands still.

        Raises:
            LocalServerError: it has ended, or did not stop in time.
        """
        process = self._signal(name, signal.SIGSTOP)
        if not wait_paused(process, PAUSE_WAIT_S):
            raise LocalServerError("the process was not paused in time", process=name)

    def resume(self, name: str) -> None:
        """Continue a paused process (SIGCONT).

        Raises:
            LocalServerError: it has ended.
        """
        self._signal(name, signal.SIGCONT)

    def restart(self, name: str, *, timeout_s: float = 60.0, orderly_s: float = 0.0) -> None:
        """End a process if it still runs and start it again, with the same ports.

        When this returns its ports answer; through a gateway, rows were written and read.

        Args:
            name: the process.
            timeout_s: the bound on coming up.
            orderly_s: how long it may take to end by SIGTERM before it is killed.

        Raises:
            LocalServerError: it did not come up. What runs of it is left running.
        """
        deadline = Deadline(SYSTEM_CLOCK, timeout_s * 1e3)
        old = self._process(name)
        end_all([old], orderly_s=orderly_s)
        with self._home.locked(STATE_TIMEOUT_S):
            state = self._state()
            new = spawn(old.plan)
            self._home.write_state(state.with_process(new))
        await_listening(new, deadline=deadline)
        if is_gateway(name):
            await_serving([new], deadline=deadline)

    def run_tool(
        self, main_class: str, *arguments: str, timeout_s: float = 60.0
    ) -> subprocess.CompletedProcess[str]:
        """Run a main class of the server's jars, such as HBase's RegionMover, as its client.

        Its log is on its standard error.

        Raises:
            LocalServerError: it did not end in time; it was killed.
        """
        # The command that stops the master is a client as a tool is: small, with the same settings.
        command = self._process("master").plan.stop_command
        before_main = command.index("-cp") + 2
        logging = f"-Dlog4j.configuration=file:{self._home.conf / TOOL_LOGGING}"
        try:
            return subprocess.run(
                [*command[:before_main], logging, main_class, *arguments],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired as exc:
            raise LocalServerError("a tool did not end in time", tool=main_class) from exc

    def last_log_lines(self, number: int = 50, pattern: str = "*") -> list[LogLine]:
        """The last lines of the log of each process whose name fits the pattern."""
        return list(read_lines(self._home.logs, pattern, last=number))

    def stop(self, *, orderly_s: float = ORDERLY_S) -> None:
        """Stop the server; see `hqueue.local.stop`."""
        stop(home=self._home.path, orderly_s=orderly_s)

    def _state(self) -> State:
        state = self._home.read_state()
        if state is None:
            raise LocalServerError("the local server was stopped", home=str(self._home.path))
        return state

    def _process(self, name: str) -> LocalProcess:
        return self._state().process(name)

    def _signal(self, name: str, number: int) -> LocalProcess:
        process = self._process(name)
        if not process.send_signal(number):
            raise LocalServerError("this process has ended; restart it first", process=name)
        return process

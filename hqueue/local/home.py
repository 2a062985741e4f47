"""The home of a local server: one folder with its data, logs, settings and run state.

<home>/connection.toml   how to reach the server; there only while it is ready
<home>/state.json        profile, ports and processes of the last start
<home>/lock              held while a server is started, stopped or reset
<home>/data/<profile>    what the servers store; stays until a reset
<home>/conf/<process>    what was written for the last start
<home>/authority         what signs certificates; stays until a reset
<home>/logs/<process>.log
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import filelock
import tomli_w

from hqueue.errors import LocalServerError
from hqueue.local.process import LocalProcess
from hqueue.settings.addresses import GatewayAddress
from hqueue.settings.loading import local_connection_file

__all__ = ["Home", "State"]


@dataclasses.dataclass(frozen=True)
class State:
    """What is known of the last start."""

    profile: str
    ports: dict[str, int]
    ready: bool = False
    gateways: tuple[str, ...] = ()
    zookeeper: str = ""
    processes: tuple[LocalProcess, ...] = ()
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)
    """What clients need besides."""

    def process(self, name: str) -> LocalProcess:
        """Find a process by its name.

        Raises:
            LocalServerError: no process has that name.
        """
        for process in self.processes:
            if process.name == name:
                return process
        raise LocalServerError(
            "the local server has no process of this name",
            name=name,
            known=[process.name for process in self.processes],
        )

    def with_process(self, process: LocalProcess) -> State:
        """The state with this process instead of the one of the same name, or added."""
        processes = [p for p in self.processes if p.name != process.name]
        return dataclasses.replace(self, processes=(*processes, process))


@dataclasses.dataclass(frozen=True)
class Home:
    """The paths below one home, and the files in it that several processes share."""

    path: Path

    @classmethod
    def of(cls, path: str | os.PathLike[str] | None) -> Home:
        """The home at the path, or where ``HQUEUE_LOCAL_HOME`` or the default is."""
        chosen = local_connection_file().parent if path is None else Path(path)
        return cls(chosen.expanduser().resolve())

    @property
    def connection_file(self) -> Path:
        """Where the way to reach the server is written."""
        return self.path / "connection.toml"

    @property
    def logs(self) -> Path:
        """The folder of the log files."""
        return self.path / "logs"

    @property
    def conf(self) -> Path:
        """The folder of the processes' own configuration folders."""
        return self.path / "conf"

    @property
    def authority(self) -> Path:
        """The folder of the authority that signs the certificates of each start."""
        return self.path / "authority"

    @property
    def temporary(self) -> Path:
        """The folder of the processes' temporary files."""
        return self.path / "tmp"

    def data(self, profile: str) -> Path:
        """The folder of what a profile's servers store."""
        return self.path / "data" / profile

    def disk_free_bytes(self) -> int | None:
        """What the file system of this folder has room for; None where it can't be asked."""
        folder = self.path
        while not folder.exists() and folder != folder.parent:
            folder = folder.parent
        try:
            return shutil.disk_usage(folder).free
        except OSError:
            return None

    @contextlib.contextmanager
    def locked(self, timeout_s: float) -> Iterator[None]:
        """Hold the home's lock. The system frees it if this process dies.

        Raises:
            LocalServerError: another process held it until the bound.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        try:
            with filelock.FileLock(self.path / "lock", timeout=timeout_s):
                yield
        except filelock.Timeout as exc:
            raise LocalServerError(
                "another process is starting or stopping this local server; try again later",
                home=str(self.path),
                waited_s=timeout_s,
            ) from exc

    def read_state(self) -> State | None:
        """Read the state of the last start; None if there is none, or none that can be read."""
        try:
            value = json.loads((self.path / "state.json").read_text(encoding="utf-8"))
            value["gateways"] = tuple(value["gateways"])
            value["processes"] = tuple(LocalProcess.from_json(p) for p in value["processes"])
            return State(**value)
        except (OSError, ValueError, TypeError, KeyError):
            return None

    def write_state(self, state: State) -> None:
        """Replace the state, atomically."""
        self._replace(self.path / "state.json", json.dumps(dataclasses.asdict(state), indent=1))

    def remove_state(self) -> None:
        """Forget the last start."""
        (self.path / "state.json").unlink(missing_ok=True)

    def write_connection(
        self,
        gateways: tuple[GatewayAddress, ...],
        zookeeper: str,
        others: Mapping[str, Any] | None = None,
    ) -> None:
        """Tell clients how to reach the server, atomically: natively, if it has no gateways.

        Args:
            gateways: its gateways.
            zookeeper: where it has HBase's nodes.
            others: further settings of clients, and tables of those of roles.
        """
        settings: dict[str, Any] = {"zookeeper": zookeeper, **(others or {})}
        if gateways:
            settings["gateways"] = [str(gateway) for gateway in gateways]
        self._replace(self.connection_file, tomli_w.dumps(settings))

    def remove_connection(self) -> None:
        """Tell clients nothing any more."""
        self.connection_file.unlink(missing_ok=True)

    @staticmethod
    def _replace(path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
        try:
            with open(handle, "w", encoding="utf-8") as file:
                file.write(text)
            os.replace(name, path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise

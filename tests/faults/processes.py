"""The processes of a run: producers, readers, consumers, workers, subscribers and a stranger; hubs,
their publishers and listeners; suppliers and consumers of share groups.
"""

from __future__ import annotations

import contextlib
import random
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from . import (
    consumer,
    hub,
    listener,
    producer,
    publisher,
    reader,
    sharer,
    stranger,
    subscriber,
    supplier,
    worker,
)
from .specification import Specification
from .versions import PRESENT, Code
from .working import SERVING

__all__ = ["Processes"]

_MODULES: Mapping[str, Any] = {
    "producer": producer,
    "reader": reader,
    "consumer": consumer,
    "worker": worker,
    "subscriber": subscriber,
    "stranger": stranger,
    "hub": hub,
    "publisher": publisher,
    "listener": listener,
    "supplier": supplier,
    "sharer": sharer,
}

STOPS_S = 30.0
"""As docs/upgrading.md says."""

WORDS = 2_000


class Processes:
    """Starts and ends them. One thread may `fill` while others `replace` s.

    Args:
        seed: of what they choose.
        queue: the queue.
        folder: of the history and of their logs.
        settings: of their clients.
        consumers: how many are in a process of consumers.
        own: settings of the clients of a kind of processes that differ.
        ways: the proxies that their clients go through natively, by region servers' addresses.
        older: the code of the last release, if all processes start with that.
    """

    def __init__(
        self,
        seed: int | str,
        queue: str,
        folder: Path,
        settings: Mapping[str, object],
        *,
        consumers: int = 1,
        own: Mapping[str, Mapping[str, object]] | None = None,
        ways: Mapping[str, str] | None = None,
        older: Code | None = None,
    ) -> None:
        self._queue = queue
        self._folder = folder
        self._settings = settings
        self._consumers = consumers
        self._own = dict(own or {})
        self._ways = dict(ways or {})
        self._random = random.Random(f"{seed} processes")
        self._older = older
        self._switched: set[tuple[str, str]] = set()
        self._started = 0
        self._filled = 0
        self.hubs = _addresses(len(hub.STYLES))
        """Where the hubs listen, in the order of their styles."""
        self.metrics_ports: dict[tuple[str, str], int] = {}
        """Where workers and hubs serve their metrics, by kind and name."""
        self._running: dict[tuple[str, str], subprocess.Popen[bytes]] = {}

    def start_all(self) -> None:
        """Start one of each style."""
        for kind, module in _MODULES.items():
            for style in module.STYLES:
                self.start(kind, style)

    def start(self, kind: str, style: str) -> str:
        """Start one of a style, and return its name."""
        self._started += 1
        name = f"{style}-{self._started}"
        self._running[kind, name] = self._start(kind, style, name)
        return name

    def running(self, kind: str) -> dict[str, int]:
        """The process IDs of those of a kind that run, by name."""
        return {
            name: process.pid
            for (of, name), process in list(self._running.items())
            if of == kind and process.poll() is None
        }

    def replace(self, kind: str, name: str) -> str:
        """Start another of the same style in place of one that was killed, and return its name."""
        self._running.pop((kind, name)).wait(timeout=30)
        return self.start(kind, _style(name))

    def stop(self, kind: str, name: str) -> None:
        """Stop one as an operator does: SIGTERM, and SIGKILL only after a time."""
        process = self._running[kind, name]
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOPS_S)
        except subprocess.TimeoutExpired:
            process.kill()

    def version(self, kind: str, name: str) -> str:
        """Which code one runs, or the one that comes in its place: ``older`` or ``present``."""
        switched = (kind, _style(name)) in self._switched
        return "present" if self._older is None or switched else "older"

    def switch(self, kind: str, name: str) -> str:
        """Let those that come in place of this one run the other version, which is returned."""
        self._switched ^= {(kind, _style(name))}
        return self.version(kind, name)

    def count(self, kind: str) -> int:
        """How many processes of a kind there should be."""
        return len(_MODULES[kind].STYLES)

    def last_words(self, kind: str, name: str) -> str:
        """The end of a process's log."""
        return self._log(kind, name).read_text(errors="replace")[-WORDS:]

    def fill(self, partition: int, timeout_s: float) -> None:
        """Let a producer of its own write some megabytes into a partition."""
        self._filled += 1
        name = f"{producer.FILLING}-{self._filled}"
        filling = self._start("producer", producer.FILLING, name, partition)
        try:
            filling.wait(timeout_s)
        except subprocess.TimeoutExpired:
            pass
        finally:
            filling.kill()
            filling.wait()

    def end(self, kind: str, timeout_s: float) -> list[str]:
        """Wait for all of a kind; those that failed or did not end, and their last words."""
        failed = []
        deadline = time.monotonic() + timeout_s
        for key in [key for key in self._running if key[0] == kind]:
            process = self._running.pop(key)
            try:
                code: object = process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                code = "it did not end"
            if code != 0:
                failed.append(f"{key[1]}: {code}: {self.last_words(*key)}")
        return failed

    def kill(self) -> None:
        """Leave none behind."""
        for process in self._running.values():
            process.kill()
            process.wait()

    def _log(self, kind: str, name: str) -> Path:
        return self._folder / f"{name}.{kind}.log"

    def _start(
        self, kind: str, style: str, name: str, partition: int | None = None
    ) -> subprocess.Popen[bytes]:
        older = self.version(kind, name) == "older"
        code = self._older if older and self._older else PRESENT
        if kind in SERVING:
            address = _addresses(1)[0]
            self.metrics_ports[kind, name] = int(address.rpartition(":")[2])
        specification = Specification(
            name=name,
            style=style,
            queue=self._queue,
            folder=self._folder,
            seed=self._random.randrange(2**32),
            settings={**self._settings, **self._own.get(kind, {})},
            partition=partition,
            consumers=self._consumers,
            ways=self._ways,
            hubs=tuple(self.hubs),
            metrics_port=self.metrics_ports.get((kind, name), 0),
        )
        with self._log(kind, name).open("wb") as log:
            return subprocess.Popen(
                [code.python, "-m", _MODULES[kind].__name__, specification.to_json()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=code.folder,
                env=code.environment(),
                # Stopped processes in its group would cost a run without a terminal its life.
                start_new_session=True,
            )


def _style(name: str) -> str:
    return name.rpartition("-")[0]


def _addresses(count: int) -> list[str]:
    """Free ones of this machine, which a hub that is started again has, too."""
    with contextlib.ExitStack() as stack:
        ports = [
            stack.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1]
            for _ in range(count)
        ]
    return [f"127.0.0.1:{port}" for port in ports]

"""What the nemesis does to those who hand messages on, and to those who get them."""

from __future__ import annotations

import functools
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from .aiming import kill_under_way
from .group_history import owners
from .hub import expiring_path
from .nemesis import Harm, NotDoneError
from .processes import Processes
from .schedule import Planned

__all__ = ["ProcessFaults"]

KINDS = ("worker", "subscriber", "consumer", "hub", "publisher", "listener", "sharer")
BOUND_S = 60.0


class ProcessFaults:
    """Faults of workers, subscribers and consumers; of hubs, publishers and listeners; of share
    consumers.

    Args:
        processes: has them.
        folder: of their histories.
    """

    def __init__(self, processes: Processes, folder: Path) -> None:
        self._processes = processes
        self._folder = folder
        self.kinds: dict[str, Callable[[Planned], Harm]] = {
            f"{name}-{kind}": functools.partial(harm, kind)
            for kind in KINDS
            for name, harm in (("kill", self._kill), ("pause", self._pause))
        }
        self.kinds["expire-hub"] = self._expire

    def _chosen(self, kind: str, item: Planned) -> tuple[str, int]:
        deadline = time.monotonic() + BOUND_S
        while not (running := self._harmable(kind)):
            if time.monotonic() > deadline:
                raise NotDoneError(f"no {kind} runs that could be harmed")
            time.sleep(0.5)
        return running[item.target % len(running)]

    def _harmable(self, kind: str) -> list[tuple[str, int]]:
        running = sorted(self._processes.running(kind).items())
        if kind != "consumer":
            return running
        # Only one that has partitions leaves any to others.
        having = set(owners(self._folder).values())
        return [(name, pid) for name, pid in running if name in having]

    def _kill(self, kind: str, item: Planned) -> Harm:
        name, pid = self._chosen(kind, item)
        if kind == "publisher":
            kill_under_way(pid, self._folder / f"{name}.publisher.jsonl")
        else:
            os.kill(pid, signal.SIGKILL)
        return Harm(name, lambda: self._processes.replace(kind, name))

    def _pause(self, kind: str, item: Planned) -> Harm:
        name, pid = self._chosen(kind, item)
        os.kill(pid, signal.SIGSTOP)
        return Harm(name, lambda: os.kill(pid, signal.SIGCONT))

    def _expire(self, item: Planned) -> Harm:
        name, _ = self._chosen("hub", item)
        expiring = expiring_path(self._folder, name)
        expiring.touch()
        deadline = time.monotonic() + BOUND_S
        while expiring.exists():
            if time.monotonic() > deadline:
                expiring.unlink(missing_ok=True)
                raise NotDoneError(f"the session of {name} did not expire")
            time.sleep(0.1)
        return Harm(name)

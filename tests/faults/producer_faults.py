"""What the nemesis does to producers."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

from .aiming import kill_under_way
from .clock import set_clock
from .nemesis import Harm
from .processes import Processes
from .schedule import Planned

__all__ = ["ProducerFaults"]

KINDS = ("producer", "supplier")
MINUTE_MS = 60_000


class ProducerFaults:
    """Faults of producers and suppliers, and of their clocks.

    Args:
        processes: has them.
        folder: of the histories and of the clocks.
    """

    def __init__(self, processes: Processes, folder: Path) -> None:
        self._processes = processes
        self._folder = folder
        self.kinds: dict[str, Callable[[Planned], Harm]] = {
            "kill-producer": self._kill,
            "pause-producer": self._pause,
            "set-clock": self._set_clock,
        }

    def _chosen(self, item: Planned) -> tuple[str, str, int]:
        running = [
            (kind, name, pid)
            for kind in KINDS
            for name, pid in sorted(self._processes.running(kind).items())
        ]
        return running[item.target % len(running)]

    def _kill(self, item: Planned) -> Harm:
        kind, name, pid = self._chosen(item)
        kill_under_way(pid, self._folder / f"{name}.{kind}.jsonl")
        return Harm(name, lambda: self._processes.replace(kind, name))

    def _pause(self, item: Planned) -> Harm:
        _, name, pid = self._chosen(item)
        os.kill(pid, signal.SIGSTOP)
        return Harm(name, lambda: os.kill(pid, signal.SIGCONT))

    def _set_clock(self, item: Planned) -> Harm:
        _, name, _ = self._chosen(item)
        path = self._folder / f"{name}.clock"
        minutes = (1 + 4 * abs(item.change)) * (1 if item.change > 0 else -1)
        set_clock(path, int(minutes * MINUTE_MS))
        return Harm(f"{name} by {minutes:+.1f} min", lambda: set_clock(path, 0))

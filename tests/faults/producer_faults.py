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

MINUTE_MS = 60_000


class ProducerFaults:
    """Faults of producers and their clocks.

    Args:
        processes: the producers.
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

    def _chosen(self, item: Planned) -> tuple[str, int]:
        producers = sorted(self._processes.running("producer").items())
        return producers[item.target % len(producers)]

    def _kill(self, item: Planned) -> Harm:
        name, pid = self._chosen(item)
        kill_under_way(pid, self._folder / f"{name}.producer.jsonl")
        return Harm(name, lambda: self._processes.replace("producer", name))

    def _pause(self, item: Planned) -> Harm:
        name, pid = self._chosen(item)
        os.kill(pid, signal.SIGSTOP)
        return Harm(name, lambda: os.kill(pid, signal.SIGCONT))

    def _set_clock(self, item: Planned) -> Harm:
        name, _ = self._chosen(item)
        path = self._folder / f"{name}.clock"
        minutes = (1 + 4 * abs(item.change)) * (1 if item.change > 0 else -1)
        set_clock(path, int(minutes * MINUTE_MS))
        return Harm(f"{name} by {minutes:+.1f} min", lambda: set_clock(path, 0))

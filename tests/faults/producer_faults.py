"""What the nemesis does to producers."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from .clock import set_clock
from .history import is_under_way
from .nemesis import Harm
from .processes import Processes
from .schedule import Planned

__all__ = ["ProducerFaults"]

AIMS_MAX = 200
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
        history = self._folder / f"{name}.producer.jsonl"
        for _ in range(AIMS_MAX):
            os.kill(pid, signal.SIGSTOP)
            if history.exists() and is_under_way(history):
                break
            os.kill(pid, signal.SIGCONT)
            time.sleep(0.01)
        os.kill(pid, signal.SIGKILL)
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

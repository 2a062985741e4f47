"""What the nemesis does to workers and subscribers."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

from .nemesis import Harm, NotDoneError
from .processes import Processes
from .schedule import Planned

__all__ = ["PushFaults"]


class PushFaults:
    """Faults of workers and subscribers.

    Args:
        processes: has them.
    """

    def __init__(self, processes: Processes) -> None:
        self._processes = processes
        self.kinds: dict[str, Callable[[Planned], Harm]] = {
            "kill-worker": lambda item: self._kill("worker", item),
            "pause-worker": lambda item: self._pause("worker", item),
            "kill-subscriber": lambda item: self._kill("subscriber", item),
            "pause-subscriber": lambda item: self._pause("subscriber", item),
        }

    def _chosen(self, kind: str, item: Planned) -> tuple[str, int]:
        running = sorted(self._processes.running(kind).items())
        if not running:
            raise NotDoneError(f"no {kind} runs")
        return running[item.target % len(running)]

    def _kill(self, kind: str, item: Planned) -> Harm:
        name, pid = self._chosen(kind, item)
        os.kill(pid, signal.SIGKILL)
        return Harm(name, lambda: self._processes.replace(kind, name))

    def _pause(self, kind: str, item: Planned) -> Harm:
        name, pid = self._chosen(kind, item)
        os.kill(pid, signal.SIGSTOP)
        return Harm(name, lambda: os.kill(pid, signal.SIGCONT))

"""What the nemesis does to processes' versions: it upgrades them one by one, and goes back."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from pathlib import Path

from .nemesis import Harm, NotDoneError
from .processes import Processes
from .schedule import UPGRADED, Planned
from .upgrade_checker import Switch
from .working import has_worked

__all__ = ["UpgradeFaults"]

RUNS_S = 60.0
WORKS_S = 240.0
"""Of a machine that is busy with other work, too."""
PAUSE_S = 0.2


class UpgradeFaults:
    """Switches of processes between two versions of the code.

    The processes of a kind are upgraded one after the other until all have the present code, and
    then go back one after the other, and so on. Which one is next is drawn by the seed.

    Args:
        processes: has them.
        folder: of their histories.
    """

    def __init__(self, processes: Processes, folder: Path) -> None:
        self._processes = processes
        self._folder = folder
        self._towards = dict.fromkeys(UPGRADED, "present")
        self.switches: list[Switch] = []
        self.on_incompatible: Callable[[], None] = lambda: None
        """Called when a process did not work: what the run does after that shows little more."""
        self.kinds: dict[str, Callable[[Planned], Harm]] = {
            f"upgrade-{kind}": functools.partial(self._upgrade, kind) for kind in UPGRADED
        }

    def _upgrade(self, kind: str, item: Planned) -> Harm:
        """Upgrade a process, or go back, and see that it works then."""
        name = self._next(kind, item)
        self._processes.stop(kind, name)
        version = self._processes.switch(kind, name)
        return Harm(f"{name} to the {version} code", lambda: self._start(kind, name, version))

    def _next(self, kind: str, item: Planned) -> str:
        deadline = time.monotonic() + RUNS_S
        while True:
            running = sorted(self._processes.running(kind))
            towards = self._towards[kind]
            left = [name for name in running if self._processes.version(kind, name) != towards]
            if left:
                return left[item.target % len(left)]
            if running and len(running) == self._processes.count(kind):
                self._towards[kind] = "older" if towards == "present" else "present"
            elif time.monotonic() > deadline:
                raise NotDoneError(f"no {kind} runs that could be switched")
            else:
                time.sleep(PAUSE_S)

    def _start(self, kind: str, stopped: str, version: str) -> None:
        """Start it, and wait, as an operator does, until it works."""
        name = self._processes.replace(kind, stopped)
        began_s = time.monotonic()
        worked = False
        while not worked and time.monotonic() < began_s + WORKS_S:
            if name not in self._processes.running(kind):
                break
            worked = has_worked(
                self._folder, kind, name, self._processes.metrics_ports.get((kind, name), 0)
            )
            time.sleep(0 if worked else PAUSE_S)
        took_s = round(time.monotonic() - began_s, 1)
        words = "" if worked else self._processes.last_words(kind, name)
        self.switches.append(Switch(kind, name, version, worked, took_s, words))
        if not worked:
            self.on_incompatible()

"""What the nemesis does to the clocks of servers."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from .ensemble_faults import EnsembleFaults
from .nemesis import Harm
from .schedule import Planned
from .server_clocks import ServerClocks
from .server_faults import ServerFaults

__all__ = ["ClockFaults"]

AHEAD_S_MAX = 300.0
JUMP_EVERY_S = (1.0, 3.0)


class ClockFaults:
    """Faults of the clock of a region server, of the master or of ZooKeeper's leader.

    Args:
        clocks: of all these servers.
        servers: finds the region server that holds a partition.
        ensemble: finds ZooKeeper's leader.
    """

    def __init__(
        self, clocks: ServerClocks, servers: ServerFaults, ensemble: EnsembleFaults
    ) -> None:
        self._clocks = clocks
        self._servers = servers
        self._ensemble = ensemble
        kinds: dict[str, Callable[[Planned], Harm]] = {
            "set-regionserver-clock": lambda item: self._set(item, servers.holder(item)),
            "set-server-clock": lambda item: self._set(item, self._other(item)),
            "jump-server-clock": self._jump,
        }
        self.kinds = {name: servers.healed(begin) for name, begin in kinds.items()}

    def _other(self, item: Planned) -> str:
        """The master or ZooKeeper's leader."""
        return "master" if item.target % 2 else self._ensemble.leader()

    def _set(self, item: Planned, name: str) -> Harm:
        ahead_s = item.change * AHEAD_S_MAX
        self._clocks.set(name, ahead_s)
        return Harm(f"{name} by {ahead_s:+.0f} s", lambda: self._clocks.set(name, 0))

    def _jump(self, item: Planned) -> Harm:
        """Set a server's clock ahead and back, again and again."""
        name = self._servers.holder(item) if item.target % 3 else self._other(item)
        rng = random.Random(item.target)
        over = threading.Event()

        def jump() -> None:
            while not over.is_set():
                self._clocks.set(name, rng.uniform(-AHEAD_S_MAX, AHEAD_S_MAX))
                over.wait(rng.uniform(*JUMP_EVERY_S))
            self._clocks.set(name, 0)

        jumping = ThreadPoolExecutor(1, "jump")
        jumped = jumping.submit(jump)

        def mend() -> None:
            over.set()
            jumping.shutdown()
            jumped.result()

        return Harm(f"{name}, again and again", mend)

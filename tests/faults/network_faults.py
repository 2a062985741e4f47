"""What the nemesis does to the network between servers whose hosts are apart."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor

from .hosts import CLIENTS, Hosts
from .nemesis import Harm
from .schedule import Planned
from .server_faults import ServerFaults

__all__ = ["NetworkFaults"]

FLAP_S = (0.3, 3.0)

Direction = tuple[Collection[str], Collection[str]]
"""From which hosts to which nothing arrives."""


class NetworkFaults:
    """Faults of the network between servers, and between them and clients.

    Args:
        hosts: of the servers.
        servers: brings up again what ended because of a fault.
    """

    def __init__(self, hosts: Hosts, servers: ServerFaults) -> None:
        self._hosts = hosts
        self._servers = servers
        kinds: dict[str, Callable[[Planned], Harm]] = {
            "cut-off-regionserver": lambda item: self.cut_off(servers.holder(item)),
            "cut-off-datanode": lambda item: self.cut_off(servers.datanode(item)),
            "cut-off-zookeeper": lambda _: self.cut_off(*servers.zookeepers),
            "cut-off-master": lambda _: self.cut_off("master"),
            "cut-from-zookeeper": lambda item: self.cut_apart(
                servers.holder(item), *servers.zookeepers
            ),
            "cut-from-master": lambda item: self.cut_apart(servers.holder(item), "master"),
            "cut-from-namenode": lambda item: self.cut_apart(servers.holder(item), "namenode"),
            "cut-from-clients": lambda item: self.cut_apart(servers.holder(item), CLIENTS),
            "cut-clients-from-zookeeper": lambda _: self.cut_apart(CLIENTS, *servers.zookeepers),
            "cut-one-way": self._cut_one_way,
            "halve-network": lambda item: self._halve(item, bridge=False),
            "bridge-network": lambda item: self._halve(item, bridge=True),
            "flap-regionserver": self._flap,
        }
        self.kinds = {name: servers.healed(begin) for name, begin in kinds.items()}

    def cut_off(self, *names: str) -> Harm:
        """Cut hosts from all others, and from clients, but not from each other."""
        others = [name for name in (*self._hosts.names, CLIENTS) if name not in names]
        return self._cut(f"{' '.join(names)} from all", (names, others), (others, names))

    def cut_apart(self, one: str, *others: str) -> Harm:
        """Cut a host from these others, both ways."""
        return self._cut(f"{one} from {' '.join(others)}", ((one,), others), (others, (one,)))

    def _cut_one_way(self, item: Planned) -> Harm:
        """Drop what one host sends to another, chosen among all pairs."""
        everybody = (*self._hosts.names, CLIENTS)
        source, target = random.Random(item.target).sample(everybody, 2)
        return self._cut(f"{source} to {target}", ((source,), (target,)))

    def _halve(self, item: Planned, *, bridge: bool) -> Harm:
        """Cut the servers into halves, which clients and, as a bridge, perhaps one server see."""
        names = random.Random(item.target).sample(self._hosts.names, len(self._hosts.names))
        middle = len(names) // 2
        left, right = names[:middle], names[middle + bridge :]
        text = f"{' '.join(left)} | {' '.join(right)}"
        return self._cut(text, (left, right), (right, left))

    def _cut(self, target: str, *directions: Direction) -> Harm:
        for sources, targets in directions:
            self._hosts.cut(sources, targets)

        def mend() -> None:
            for sources, targets in directions:
                self._hosts.mend(sources, targets)

        return self._servers.deposing(Harm(target, mend))

    def _flap(self, item: Planned) -> Harm:
        """Cut a region server from all others again and again, for moments."""
        name = self._servers.holder(item)
        rng = random.Random(item.target)
        everybody = (*self._hosts.names, CLIENTS)
        over = threading.Event()

        def flap() -> None:
            while not over.is_set():
                for change in (self._hosts.cut, self._hosts.mend):
                    change((name,), everybody)
                    change(everybody, (name,))
                    over.wait(rng.uniform(*FLAP_S))

        flapping = ThreadPoolExecutor(1, "flap")
        flapped = flapping.submit(flap)

        def mend() -> None:
            over.set()
            flapping.shutdown()
            flapped.result()

        return self._servers.deposing(Harm(f"{name} from all, now and then", mend))

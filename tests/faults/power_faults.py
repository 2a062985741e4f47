"""What the nemesis does to the power of servers whose disks are their own."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from hqueue.errors import LocalServerError
from hqueue.local import LocalServer
from hqueue.local.cluster import HOST_NAMES
from hqueue.local.home import Home

from .disks import Disk
from .nemesis import Harm, NotDoneError
from .schedule import Planned
from .server_faults import ServerFaults

__all__ = ["PowerFaults", "disk_folders", "lose_power", "start_shuffled"]

STORING = ("zookeeper", "namenode", "datanode")
"""The beginnings of the names of those that store anything: region servers and the master store
all on data nodes."""
APART_S = (0.0, 2.0)
HEALS_MAX = 3


def disk_folders(home: Path) -> tuple[Path, dict[str, Path]]:
    """Where a cluster in this home stores: the folder of all, and that of each process."""
    below = Home.of(home).data("cluster")
    return below, {name: below / name for name in HOST_NAMES if name.startswith(STORING)}


def lose_power(server: LocalServer, disks: Mapping[str, Disk], names: Sequence[str]) -> float:
    """Cut the power of these processes at once: each stands still when its disk drops what was not
    synced, and then ends. When this returns, the disks are mounted again.

    Returns:
        When the power was cut, by the monotonic clock: all stood still then.
    """
    for name in names:
        with contextlib.suppress(LocalServerError):  # It had ended.
            server.pause(name)
    cut_s = time.monotonic()
    lost = [disks[name] for name in names if name in disks]
    for disk in lost:
        disk.lose_power()
    for name in names:
        server.kill(name)
    for disk in lost:
        disk.recover()
    return cut_s


def start_shuffled(names: Collection[str], restart: Callable[[str], None], seed: int) -> None:
    """Start processes in an order that the seed determines, some moments apart; each waits by
    itself for those that it needs.
    """
    rng = random.Random(seed)
    shuffled = rng.sample(sorted(names), len(names))
    with ThreadPoolExecutor(len(shuffled), "restart") as pool:
        started = []
        for name in shuffled:
            started.append(pool.submit(restart, name))
            time.sleep(rng.uniform(*APART_S))
        for each in started:
            each.result()


class PowerFaults:
    """Power losses of data nodes, of hosts with a region server and a data node, and of all.

    Args:
        disks: of the processes that store anything.
        server: the cluster.
        servers: brings up again what ended because of a fault.
    """

    def __init__(
        self, disks: Mapping[str, Disk], server: LocalServer, servers: ServerFaults
    ) -> None:
        self._disks = disks
        self._server = server
        self._servers = servers
        kinds: dict[str, Callable[[Planned], Harm]] = {
            "unplug-datanode": lambda item: self._unplug(item, [self._datanode_of(item)]),
            "unplug-host": lambda item: self._unplug(
                item, [servers.holder(item), self._datanode_of(item)]
            ),
            "unplug-all": self._unplug_all,
        }
        self.kinds = {name: servers.healed(begin) for name, begin in kinds.items()}

    def _datanode_of(self, item: Planned) -> str:
        """The data node beside the region server that holds one of the partitions."""
        return f"datanode-{self._servers.holder(item).rpartition('-')[2]}"

    def _unplug(self, item: Planned, names: Sequence[str]) -> Harm:
        lose_power(self._server, self._disks, names)
        return Harm(
            " ".join(names), lambda: start_shuffled(names, self._servers.restart, item.target)
        )

    def _unplug_all(self, item: Planned) -> Harm:
        names = [process.name for process in self._server.processes]
        random.Random(item.target).shuffle(names)
        harm = self._unplug(item, names)

        def mend() -> None:
            harm.mend()
            for _ in range(HEALS_MAX):  # Some give up where those that they need come too late.
                self._servers.heal()
            if not all(process.alive for process in self._server.processes):
                raise NotDoneError("some servers did not come up again")

        return Harm("all servers", mend)

"""What the nemesis does to the power of servers whose disks are their own."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from hqueue.errors import LocalServerError
from hqueue.local import LocalServer
from hqueue.local.cluster import host_names
from hqueue.local.home import Home

from .disks import Disk
from .nemesis import Harm
from .schedule import Planned
from .server_faults import ServerFaults, start_apart

__all__ = ["PowerFaults", "disk_folders", "lose_power"]

STORING = ("zookeeper", "namenode", "datanode")
"""The beginnings of the names of those that store anything: region servers and the master store
all on data nodes."""


def disk_folders(home: Path, zookeepers: int = 1) -> tuple[Path, dict[str, Path]]:
    """Where a cluster in this home stores, with so many servers of ZooKeeper: the folder of all,
    and that of each process.
    """
    below = Home.of(home).data("cluster")
    storing = [name for name in host_names(zookeepers) if name.startswith(STORING)]
    return below, {name: below / name for name in storing}


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
        for disk in disks.values():
            disk.sync()  # What the servers were set up with is older than any fault.
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
        rng = random.Random(item.target)
        return Harm(" ".join(names), lambda: start_apart(names, self._servers.restart, rng))

    def _unplug_all(self, item: Planned) -> Harm:
        rng = random.Random(item.target)
        names = [process.name for process in self._server.processes]
        rng.shuffle(names)
        lose_power(self._server, self._disks, names)
        rng.shuffle(names)
        return Harm(f"all, then {' '.join(names)}", lambda: self._servers.start_all(names, rng))

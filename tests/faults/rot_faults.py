"""What the nemesis does to the files of a minority: a data node, or one of ZooKeeper's servers.

It is the same data node all the time, and only closed blocks that another one has, too. HDFS can't
replace a replica while each data node has one, so that rot on one after another would leave no good
replica of a block; and HBase begins a file on the data nodes that are there, also on a single one.
No server survives the loss of the only replica. Of an open block HDFS may take a damaged replica,
although there are better ones: docs/loss-of-power.md says when.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

from hqueue.local import LocalServer
from hqueue.local.home import Home

from .ensemble_faults import EnsembleFaults
from .nemesis import Harm, NotDoneError
from .rot import CHECKSUMS, files_of_blocks, rot_some
from .schedule import Planned
from .server_faults import ServerFaults

__all__ = ["RotFaults"]

ROTTING = "datanode-3"
OTHERS = ("datanode-1", "datanode-2")
SERVES_WITHIN_S = 20.0


class RotFaults:
    """Faults of files that servers trust.

    Args:
        server: the cluster.
        servers: kills what must read the files then, and starts it again.
        ensemble: says whether a server of ZooKeeper's serves.
        say: called with what happens.
    """

    def __init__(
        self,
        server: LocalServer,
        servers: ServerFaults,
        ensemble: EnsembleFaults,
        say: Callable[[str], None],
    ) -> None:
        self._server = server
        self._servers = servers
        self._ensemble = ensemble
        self._say = say
        self._data = Home(server.home).data("cluster")
        kinds: dict[str, Callable[[Planned], Harm]] = {
            "rot-blocks": lambda item: self._rot_running(item, checksums=False),
            "rot-checksums": lambda item: self._rot_running(item, checksums=True),
            "rot-stopped-datanode": self._rot_stopped,
            "rot-zookeeper": self._rot_zookeeper,
        }
        self.kinds = {name: servers.healed(begin) for name, begin in kinds.items()}

    def _rot_running(self, item: Planned, *, checksums: bool) -> Harm:
        """Let files of a running data node rot, and kill a region server: others read its logs."""
        files = (path for path in self._of_blocks() if path.match(CHECKSUMS) is checksums)
        text = self._rot(files, item)
        killed = self._servers.killed(self._servers.holder(item))
        return Harm(f"{text} of {ROTTING}, and {killed.target}", killed.mend)

    def _rot_stopped(self, item: Planned) -> Harm:
        """Let files of a data node rot while it is down."""
        killed = self._servers.killed(ROTTING)
        text = self._rot(self._of_blocks(), item)
        return Harm(f"{text} of {ROTTING}", killed.mend)

    def _of_blocks(self) -> list[Path]:
        """The files that may rot."""
        return files_of_blocks(self._data / ROTTING, [self._data / name for name in OTHERS])

    def _rot_zookeeper(self, item: Planned) -> Harm:
        """Let the logs and snapshots of one of ZooKeeper's servers rot while it is down.

        A server that refuses to start with them gets an empty folder, as an operator would give it,
        and has all from the others then.
        """
        name = self._servers.zookeepers[item.target % len(self._servers.zookeepers)]
        killed = self._servers.killed(name)
        folder = self._data / name / "version-2"
        text = self._rot([*folder.glob("log.*"), *folder.glob("snapshot.*")], item)

        def mend() -> None:
            killed.mend()
            if not self._servers.within(SERVES_WITHIN_S, lambda: self._ensemble.serves(name)):
                self._say(f"{name} does not serve with its files; it begins without")
                self._server.kill(name)
                shutil.rmtree(folder, ignore_errors=True)
                killed.mend()

        return Harm(f"{text} of {name}", mend)

    def _rot(self, files: Iterable[Path], item: Planned) -> str:
        harmed = rot_some(files, random.Random(item.target))
        if not harmed:
            raise NotDoneError("there was no file to harm")
        return f"{len(harmed)} files"

"""Bugs that are planted to see whether the faults find them: for each idea of a fault, one that the
faults of before don't find.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from .report import ALL_KINDS
from .schedule import FAULTS

__all__ = [
    "BUGS",
    "FAILURE",
    "PUBLISH_STALL",
    "PUT_STALL",
    "BugGoneError",
    "PlantedBug",
    "rows",
]

PUT_STALL, PUBLISH_STALL, FAILURE = "puts stalled", "publishes stalled", "failed"
"""What a run may report besides violations: the longest stall of its faults, and that a process
crashed or did not end."""


class BugGoneError(Exception):
    """The code in which a bug is planted has changed."""


@dataclasses.dataclass(frozen=True)
class PlantedBug:
    """A bug, and the faults that find it.

    Args:
        name: its name.
        doc: what is wrong with it.
        kinds: the kinds of faults that it stands for.
        path: the file, from the project's root.
        old: a text that is in it once.
        new: what stands there instead.
        faults: those of its kinds that are run; none if no run has shown yet that they find it.
        others: kinds of other ideas, which don't find it.
        shows: the kind of violation, or what else a run reports.
        stall_s: for a stall, the least that counts; without the bug it is shorter.
        reported: what runs reported.
    """

    name: str
    doc: str
    kinds: tuple[str, ...]
    path: str
    old: str
    new: str
    faults: tuple[str, ...]
    others: tuple[str, ...]
    shows: str
    stall_s: float = 0.0
    reported: str = ""

    def plant(self, source: str) -> str:
        """The file with the bug.

        Raises:
            BugGoneError: the text that it changes is not there, or more than once.
        """
        if source.count(self.old) != 1:
            raise BugGoneError(f"{self.name}: {self.path} does not have this once: {self.old}")
        return source.replace(self.old, self.new)

    def is_found(self, figures: Mapping[str, Any]) -> bool:
        """Whether a run with these figures reports it."""
        return self.amount(figures) > self.stall_s

    def amount(self, figures: Mapping[str, Any]) -> float:
        """How many violations or failures of this kind a run reports, or how long a stall is."""
        if self.shows == FAILURE:
            return float(figures["failures"])
        if self.shows in ALL_KINDS:
            return float(figures["violations"][self.shows])
        key = "longest_stall_s" if self.shows == PUT_STALL else "longest_publish_stall_s"
        return max(figures[key].values(), default=0.0)


CLUSTER = "hqueue/local/cluster.py"

BUGS = (
    PlantedBug(
        "durability",
        "`durability` `FSYNC_WAL` reaches HBase as `SYNC_WAL`",
        ("unplug-datanode", "unplug-host", "unplug-all"),
        "hqueue/settings/attributes.py",
        "        return name\n\n    return parse",
        '        return name.removeprefix("F")\n\n    return parse',
        ("unplug-all",),
        ("kill-regionserver", "kill-datanode", "pause-regionserver"),
        "lost",
        reported="two runs of `unplug-all`, not what was looked for: one reported nothing, with "
        "little load; in the other, HBase could not replay its logs, whose replicas had wrong "
        "checksums, and the run failed. Others: not run yet",
    ),
    PlantedBug(
        "checksums",
        "HDFS keeps no checksums: it does not see that a replica has wrong bits",
        ("rot-blocks", "rot-checksums", "rot-stopped-datanode", "rot-zookeeper"),
        CLUSTER,
        '    "dfs.replication": 3,\n',
        '    "dfs.replication": 3,\n    "dfs.checksum.type": "NULL",\n',
        ("rot-blocks",),
        ("kill-regionserver", "kill-datanode", "pause-regionserver"),
        "broken",
        reported="a run of one `rot-blocks`: nothing. Others: not run yet",
    ),
    PlantedBug(
        "reserve",
        "data nodes reserve no room: HDFS can't recover a block whose writing met a full disk, and "
        "drops its last bytes",
        ("fill-datanode", "fill-datanodes", "fill-namenode", "fill-zookeeper", "fill-zookeepers"),
        CLUSTER,
        "RESERVED_BYTES = 256 * 1024 * 1024\n",
        "RESERVED_BYTES = 0\n",
        ("fill-datanodes",),
        ("kill-datanode", "unplug-datanode", "slow-datanode"),
        "lost",
        reported="`fill-datanodes`: 6 messages (seed 1). Others: not run yet",
    ),
    PlantedBug(
        "safe-mode",
        "a name node that starts stays in its safe mode for another 30 s, HDFS's default, in which "
        "region servers can't flush",
        ("kill-namenode", "kill-all"),
        CLUSTER,
        '    "dfs.namenode.safemode.extension": 0,\n',
        "",
        ("kill-namenode",),
        ("kill-regionserver", "kill-datanode", "pause-regionserver"),
        PUT_STALL,
        30,
    ),
    PlantedBug(
        "silent-datanode",
        "region servers wait for a data node that answers nothing for a minute, HDFS's default: an "
        "end of the process is seen at once, a cut is not",
        (
            *("cut-off-regionserver", "cut-off-datanode", "cut-off-master", "cut-from-zookeeper"),
            *("cut-from-master", "cut-from-namenode", "cut-from-clients", "cut-one-way"),
            *("halve-network", "bridge-network", "flap-regionserver"),
        ),
        CLUSTER,
        '    "dfs.client.socket-timeout": 5_000,\n',
        "",
        ("cut-off-datanode",),
        ("kill-datanode", "restart-master"),
        PUT_STALL,
        22,
        reported="`cut-off-datanode`: 37.1 s; 11.5 s without the bug (seed 4). Others: not run yet",
    ),
    PlantedBug(
        "connecting",
        "a client of ZooKeeper's ensemble takes the whole time-out of its session to connect to a "
        "server: one that has ended refuses at once, one that is cut off does not",
        (
            *("kill-zookeeper", "kill-zookeeper-leader", "lose-zookeeper-quorum"),
            *("cut-off-zookeeper", "cut-off-zookeeper-leader", "cut-clients-from-leader"),
            "cut-clients-from-zookeeper",
        ),
        "hqueue/zookeeper/handshake.py",
        "        self._connect_s_max = connect_s_max\n",
        "        self._connect_s_max = math.inf\n",
        ("cut-off-zookeeper-leader", "cut-clients-from-leader"),
        ("kill-zookeeper-leader", "restart-zookeeper"),
        PUBLISH_STALL,
        5,
    ),
    PlantedBug(
        "probe",
        "writers measure a region server's clock by one row, which they delete again: while a "
        "deletion from a clock that was ahead hides the row, no writer can begin",
        ("set-regionserver-clock", "set-server-clock", "jump-server-clock"),
        "hqueue/hbase/native/appends.py",
        "        key = PROBE_ROW_PREFIX + secrets.token_bytes(8)\n",
        "        key = PROBE_ROW_PREFIX + bytes(8)\n",
        ("jump-server-clock", "kill-producer"),
        ("kill-regionserver", "kill-producer", "set-clock"),
        PUT_STALL,
        60,
    ),
    PlantedBug(
        "replicas",
        "files have two replicas: one data node may be gone, but not two",
        ("two-at-once", "three-at-once"),
        CLUSTER,
        '    "dfs.replication": 3,\n',
        '    "dfs.replication": 2,\n',
        ("two-at-once", "kill-datanode", "unplug-datanode"),
        ("kill-datanode", "unplug-datanode", "kill-regionserver"),
        "lost",
    ),
    PlantedBug(
        "records",
        "records of metadata are written in version 2, and read in versions 1 and 2: no earlier "
        "release reads them",
        tuple(name for name, fault in FAULTS.items() if fault.upgrades),
        "hqueue/metadata/encoding.py",
        "VERSION = 1\n",
        'VERSION = type("Two", (int,), {"__ne__": lambda _, read: read not in (1, 2)})(2)\n',
        ("upgrade-consumer",),
        ("kill-consumer", "kill-worker", "kill-sharer"),
        "incompatible",
        reported="the first consumer that was upgraded got nothing in 4 minutes, and the run ended",
    ),
)
"""Each is found by what it was planted for, or not yet."""


def rows(bugs: Iterable[PlantedBug]) -> Iterator[list[str]]:
    """The rows of a table of them."""
    for bug in bugs:
        kinds = ", ".join(f"`{kind}`" for kind in bug.kinds)
        finds = f"{bug.shows} for more than {bug.stall_s:.0f} s" if bug.stall_s else bug.shows
        yield [kinds, bug.doc, f"**{finds}**", bug.reported or "not run yet"]

"""What the nemesis does to disks: full, of one server and of all that store the same, and slow."""

from __future__ import annotations

import errno
import os
import random
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from hqueue.errors import LocalServerError
from hqueue.local import LocalServer
from hqueue.local.cluster import RESERVED_BYTES

from .disks import Disk
from .nemesis import Harm, NotDoneError
from .schedule import Planned
from .server_faults import ServerFaults

__all__ = ["DiskFaults", "fill"]

BALLAST = "ballast"
STEP_BYTES = 1024 * 1024 * 1024
STEP_BYTES_MIN = 4_096
WRITES_S = (2, 4, 8, 16)
"""A write that is synced is three or four of them."""
STANDS_S = (0.2, 1.5)
RUNS_S = (0.02, 0.2)


def fill(folder: Path, left_bytes: int = 0) -> Path:
    """Take the room that the disk of a folder has, but for what is left; the file that takes it."""
    ballast = folder / BALLAST
    step = STEP_BYTES
    with ballast.open("wb") as file:
        end = 0
        while step >= STEP_BYTES_MIN:
            try:
                if not left_bytes or _free_bytes(folder) >= left_bytes + step:
                    os.posix_fallocate(file.fileno(), end, step)
                    end += step
                    continue
            except OSError as exc:
                if exc.errno != errno.ENOSPC:
                    raise
            step //= 2
    return ballast


def _free_bytes(folder: Path) -> int:
    found = os.statvfs(folder)
    return found.f_bfree * found.f_frsize


class DiskFaults:
    """Faults of the disks of the name node, of data nodes and of ZooKeeper's servers.

    Args:
        disks: of the servers that have their own, by the servers' names.
        server: the cluster.
        servers: brings up again what ended because of a fault.
    """

    def __init__(
        self, disks: Mapping[str, Disk], server: LocalServer, servers: ServerFaults
    ) -> None:
        self._disks = disks
        self._server = server
        self._servers = servers
        datanodes = [p.name for p in server.processes if p.name.startswith("datanode")]
        kinds: dict[str, Callable[[Planned], Harm]] = {
            "slow-datanode": lambda item: self._stutter(item, _chosen(item, datanodes)),
        }
        if disks:
            kinds |= {
                "slow-disk": lambda item: self._slow(item, servers.datanode(item)),
                "slow-zookeeper-disks": lambda item: self._slow(item, *servers.zookeepers),
                "fill-datanode": lambda item: self._fill_hdfs(_chosen(item, datanodes)),
                "fill-datanodes": lambda _: servers.deposing(self._fill_hdfs(*datanodes)),
                "fill-namenode": lambda _: servers.deposing(self._fill_hdfs("namenode")),
                "fill-zookeeper": lambda item: self._fill(_chosen(item, servers.zookeepers)),
                "fill-zookeepers": lambda _: servers.deposing(self._fill(*servers.zookeepers)),
            }
        self.kinds = {name: servers.healed(begin) for name, begin in kinds.items()}

    def _fill(self, *names: str, left_bytes: int = 0) -> Harm:
        """Fill the disks of these servers, until the fault ends. One that ended for it is started
        before the next fault.
        """
        filled = [fill(self._disks[name].at, left_bytes) for name in names]

        def mend() -> None:
            for ballast in filled:
                ballast.unlink()

        return Harm(f"the disks of {' '.join(names)}", mend)

    def _fill_hdfs(self, *names: str) -> Harm:
        """Fill the disks of these servers of HDFS, so far that data nodes take no new block, and
        let HBase write files. When there is room again, what HDFS stopped for that is started
        again, as docs/repairing.md says.
        """
        filled = self._fill(*names, left_bytes=0 if "namenode" in names else RESERVED_BYTES)
        self._servers.flush()

        def mend() -> None:
            filled.mend()
            self._servers.killed(*names).mend()

        return Harm(filled.target, mend)

    def _slow(self, item: Planned, *names: str) -> Harm:
        """Let the disks of these servers take few writes a second."""
        writes_s = WRITES_S[item.target // len(self._disks) % len(WRITES_S)]
        for name in names:
            self._disks[name].slow_down(writes_s)

        def mend() -> None:
            for name in names:
                self._disks[name].speed_up()

        return Harm(f"{' '.join(names)}: {writes_s} writes a second", mend)

    def _stutter(self, item: Planned, name: str) -> Harm:
        """Let a server stand still most of the time, in moments, as one whose disk is slow."""
        rng = random.Random(item.target)
        over = threading.Event()

        def stutter() -> None:
            while not over.is_set():
                try:
                    self._server.pause(name)
                    over.wait(rng.uniform(*STANDS_S))
                finally:
                    self._server.resume(name)
                over.wait(rng.uniform(*RUNS_S))

        stuttering = ThreadPoolExecutor(1, "slow")
        stuttered = stuttering.submit(stutter)

        def mend() -> None:
            over.set()
            stuttering.shutdown()
            try:
                stuttered.result()
            except LocalServerError as exc:  # It had ended: that is mended before the next fault.
                raise NotDoneError(f"{name} ended meanwhile") from exc

        return Harm(name, mend)


def _chosen(item: Planned, names: list[str]) -> str:
    return names[item.target % len(names)]

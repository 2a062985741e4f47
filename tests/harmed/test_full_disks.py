"""Servers whose disks are full: the errors meanwhile, and that all goes on afterwards.

Whatever was acknowledged, before and while a disk was full, is read when there is room again.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import hqueue
from hqueue import HQueueError, Message, Outcome, local
from hqueue.errors import LocalServerError
from hqueue.local.cluster import RESERVED_BYTES, cluster_on, host_names, loopback
from hqueue.local.home import Home
from hqueue.local.lifecycle import start_profile
from tests.support.waiting import wait_for

from .sized_disks import sized_disk

VALUE_BYTES = 100_000
"""So much that region servers begin other logs, and flush, while disks are full."""
CHUNK_BYTES = 512
PUTS_MAX = 50_000
FULL_S = 10.0
STARTS_WITHIN_S = 180.0
RECOVERS_WITHIN_S = 480.0
TEST_S = 1_800
"""Five outages with a recovery each, on a machine that others use, too."""
SETTINGS = {"operation_timeout_ms": 10_000, "request_timeout_ms": 3_000}


class Putting:
    """Puts messages one by one, and knows what became of each."""

    def __init__(self, queue: hqueue.Queue, settings: hqueue.Settings) -> None:
        self._queue = queue
        self._settings = settings
        self._numbers = itertools.count()
        self.acknowledged: list[bytes] = []
        self.unknown: list[bytes] = []
        self.failed_after: set[int] = set()
        """How many were acknowledged whenever one failed."""

    def put(self) -> HQueueError | None:
        """Put the next one; the error, if there was one."""
        number = next(self._numbers)
        value = b"%06d" % number + random.Random(number).randbytes(VALUE_BYTES)
        kept = value[:CHUNK_BYTES]
        try:
            self._queue.put(Message("t", value))
        except HQueueError as exc:
            self.failed_after.add(len(self.acknowledged))
            if exc.outcome is Outcome.UNKNOWN:
                self.unknown.append(kept)
            return exc
        self.acknowledged.append(kept)
        return None

    def until_refused(self) -> HQueueError:
        """Put until one fails."""
        return next(filter(None, (self.put() for _ in range(PUTS_MAX))))

    def check(self, *, lost_max: int = 0) -> None:
        """Everything acknowledged is in the log once, in order, and nothing that failed is. So many
        may be lost that were the last ones before a failure.
        """
        with hqueue.connect(self._settings) as client:
            queue = client.queue(self._queue.name)
            with queue.scan() as scanner:
                found = [message.value[:CHUNK_BYTES] for message in scanner]
            findings = list(queue.verify())[-1].findings
        assert findings == []
        got, known = set(found), set(self.acknowledged)
        assert len(found) == len(got)
        assert got <= known | set(self.unknown)
        lost = {n for n, value in enumerate(self.acknowledged, 1) if value not in got}
        assert len(lost) <= lost_max
        assert lost <= self.failed_after
        kept = [value for n, value in enumerate(self.acknowledged, 1) if n not in lost]
        assert [value for value in found if value in known] == kept


def goes_on(
    putting: Putting, restart: Callable[[], object] = lambda: None, *, lost_max: int = 0
) -> None:
    """Wait until puts succeed; servers that ended are started again, as a service manager would."""

    def does() -> bool:
        with contextlib.suppress(LocalServerError):
            restart()
        return putting.put() is None

    wait_for(does, "messages are accepted again", timeout_s=RECOVERS_WITHIN_S, pause_s=1.0)
    for _ in range(5):
        assert putting.put() is None
    putting.check(lost_max=lost_max)


def test_a_local_server_goes_on_when_its_disk_has_room_again(tmp_path: Path) -> None:
    with sized_disk(tmp_path / "disk") as disk:
        home = disk.at / "home"
        with (
            local.start(home=home) as server,
            hqueue.connect(server.settings(**SETTINGS)) as client,
        ):
            putting = Putting(
                client.create_queue("full", partitions=1, ttl="1d"), server.settings()
            )
            for _ in range(20):
                assert putting.put() is None
            disk.fill()
            print(f"a local server's disk: {putting.until_refused()!r}")
            assert local.status(home).disk_full
            disk.free()
            assert not local.status(home).disk_full
            # HBase may hang for good: as docs/repairing.md says, the server is started again.
            server.stop()
            with local.start(home=home):
                goes_on(putting)


class FullCluster:
    """A cluster whose servers have disks of a size, and one queue in it."""

    def __init__(self, tmp_path: Path, stack: contextlib.ExitStack) -> None:
        home = tmp_path / "home"
        data = Home.of(home).data("cluster")
        names = [name for name in host_names(3) if not name.startswith(("master", "region"))]
        self._disks = {name: stack.enter_context(sized_disk(data / name)) for name in names}
        self._server = stack.enter_context(start_profile(cluster_on(loopback(3), 3), home=home))
        with hqueue.connect(self._server.settings()) as creator:
            creator.create_queue("full", partitions=1, ttl="1d")
        client = stack.enter_context(hqueue.connect(self._server.settings(**SETTINGS)))
        self._putting = Putting(client.queue("full"), self._server.settings())
        goes_on(self._putting, self._restart_ended)

    def fill(self, *names: str, left_bytes: int = 0, lost_max: int = 0) -> None:
        """Fill the disks of these servers for a while, put all the time, give them room, start
        those again that docs/repairing.md names, and wait until all goes on.
        """
        for name in names:
            self._disks[name].fill(left_bytes)
        ends_s = time.monotonic() + FULL_S
        failures = []
        while time.monotonic() < ends_s:
            failures += filter(None, [self._putting.put()])
        for name in names:
            self._disks[name].free()
            if not name.startswith("zookeeper"):
                self._server.restart(name, timeout_s=STARTS_WITHIN_S)
        freed_s = time.monotonic()
        goes_on(self._putting, self._restart_ended, lost_max=lost_max)
        took_s = time.monotonic() - freed_s
        print(f"{' '.join(names)}: {took_s:.0f} s after there was room; {failures[:1]!r}")

    def _restart_ended(self) -> None:
        """All at once: some wait for others."""
        ended = [process.name for process in self._server.processes if not process.alive]
        if not ended:
            return
        print(f"{' '.join(ended)} had ended, and are started again")
        restart = functools.partial(self._server.restart, timeout_s=STARTS_WITHIN_S)
        with ThreadPoolExecutor(len(ended), "restart") as pool:
            list(pool.map(restart, ended))


DATANODES = ("datanode-1", "datanode-2", "datanode-3")
ZOOKEEPERS = ("zookeeper-1", "zookeeper-2", "zookeeper-3")


@pytest.mark.timeout(TEST_S)
def test_a_cluster_goes_on_when_its_disks_have_room_again(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        cluster = FullCluster(tmp_path, stack)
        cluster.fill("datanode-1")
        cluster.fill("zookeeper-1")
        cluster.fill(*ZOOKEEPERS)
        cluster.fill("namenode")
        cluster.fill(*DATANODES, left_bytes=RESERVED_BYTES)


@pytest.mark.timeout(TEST_S)
def test_full_disks_of_all_data_nodes_lose_one_message_at_most(tmp_path: Path) -> None:
    """HDFS may lose the last bytes of a block, fewer than a chunk of a checksum, if other programs
    had filled the disks.
    """
    with contextlib.ExitStack() as stack:
        FullCluster(tmp_path, stack).fill(*DATANODES, lost_max=1)

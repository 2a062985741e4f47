"""Telling workers that something was appended, so that they need not poll for it.

Best effort: whoever appends never waits for this, and never fails because of it. What is not told
the workers find by themselves a little later.
"""

from __future__ import annotations

import collections
import importlib.resources
import logging
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import thriftpy2
from thriftpy2.protocol import TBinaryProtocol
from thriftpy2.thrift import TClient
from thriftpy2.transport import TFramedTransport, TSocket

from hqueue.clock import SYSTEM_CLOCK
from hqueue.coordination import Address, Coordination, PartitionKey, Watch, WorkerRecord
from hqueue.errors import ClosedError, HQueueError
from hqueue.fork import register

__all__ = ["WORKER_SERVICE", "WakeUps"]

logger = logging.getLogger(__name__)

SEND_TIMEOUT_S = 0.5
AVOIDED_MS = 2_000.0
LOOK_FOR_ZOOKEEPER_EVERY_S = 60.0

with importlib.resources.as_file(
    importlib.resources.files("hqueue").joinpath("idl/worker.thrift")
) as _path:
    WORKER_SERVICE: Any = thriftpy2.load(
        str(_path), module_name="hqueue_worker_thrift"
    ).HQueueWorkerService


class WakeUps:
    """Tells the workers that serve partitions of what is appended to them. Thread-safe.

    A thread does it, which begins with the first append. It watches in ZooKeeper who serves what;
    while nobody serves a partition, an append to it costs a look into a dictionary. Wake-ups that
    come faster than they can be sent become one.

    Args:
        coordinate: gives the session with the coordination service.
        zookeeper: its hosts. They are tried before a session is begun: who only writes may have
            none.
    """

    def __init__(self, coordinate: Callable[[], Coordination], zookeeper: str) -> None:
        self._coordinate = coordinate
        self._zookeeper = zookeeper
        self._closed = False
        self.after_fork_in_child()
        register(self)

    def after_fork_in_child(self) -> None:
        self._owners: Mapping[PartitionKey, str] = {}
        self._workers: Mapping[str, WorkerRecord] = {}
        self._pending: set[PartitionKey] = set()
        self._work = threading.Event()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._lines: dict[Address, _Line] = {}

    def appended(self, key: PartitionKey) -> None:
        """Something was appended to a partition. Returns at once, and never raises."""
        if self._thread is None:
            self._start()
        if key in self._owners:
            self._pending.add(key)
            self._work.set()

    def close(self) -> None:
        """Tell nothing more."""
        self._closed = True
        self._work.set()

    def _start(self) -> None:
        if self._closed or not self._starting.acquire(blocking=False):
            return
        try:
            thread = threading.Thread(target=self._run, name="hqueue-wake-ups", daemon=True)
            thread.start()
            self._thread = thread
        except RuntimeError:  # The interpreter is ending.
            logger.debug("no wake-ups: no thread can be started")
        finally:
            self._starting.release()

    def _run(self) -> None:
        watches: list[Watch] = []
        while not watches and not self._closed:
            try:
                if _listens(self._zookeeper):
                    coordination = self._coordinate()
                    watches.append(coordination.workers.watch(self._see_workers))
                    watches.append(coordination.owners.watch(self._see_owners))
                    break
            except ClosedError:
                return
            except HQueueError as exc:
                logger.debug("no wake-ups for now: %s", exc)
            self._work.wait(LOOK_FOR_ZOOKEEPER_EVERY_S)
            self._work.clear()
        while not self._closed:
            self._work.wait()
            self._work.clear()
            self._send_pending()
        for watch in watches:
            watch.close()
        for line in self._lines.values():
            line.close()

    def _see_workers(self, workers: Mapping[str, WorkerRecord]) -> None:
        self._workers = workers

    def _see_owners(self, owners: Mapping[PartitionKey, str]) -> None:
        self._owners = owners

    def _send_pending(self) -> None:
        told: dict[tuple[Address, str], list[int]] = collections.defaultdict(list)
        owners, workers = self._owners, self._workers
        while self._pending:
            key = self._pending.pop()
            worker = workers.get(owners.get(key, ""))
            if worker is not None:
                told[worker.address, key.queue].append(key.partition)
        for (address, queue), partitions in told.items():
            line = self._lines.get(address)
            if line is None:
                line = self._lines[address] = _Line(address)
            line.tell(queue, partitions)
        if len(self._lines) > 2 * len(workers) + 8:  # Workers that are gone.
            here = {worker.address for worker in workers.values()}
            for address in self._lines.keys() - here:
                self._lines.pop(address).close()


class _Line:
    """The connection to one worker."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._socket: socket.socket | None = None
        self._client: Any = None
        self._avoided_until_ms = 0.0

    def tell(self, queue: str, partitions: Sequence[int]) -> None:
        """Send a wake-up, if the worker can be reached."""
        if SYSTEM_CLOCK.monotonic_ms() < self._avoided_until_ms:
            return
        try:
            if self._socket is None:
                self._socket = socket.create_connection(self._address, SEND_TIMEOUT_S)
                self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                wire = TFramedTransport(TSocket(sock=self._socket))  # type: ignore[no-untyped-call]
                self._client = TClient(WORKER_SERVICE, TBinaryProtocol(wire))  # type: ignore[no-untyped-call]
            self._client.appended(queue, partitions)
        except Exception as exc:  # Whatever it is, the worker looks by itself.
            logger.debug("worker at %s was not told: %s", self._address, exc)
            self._avoided_until_ms = SYSTEM_CLOCK.monotonic_ms() + AVOIDED_MS
            self.close()

    def close(self) -> None:
        """Close the connection."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def _listens(hosts: str) -> bool:
    """Whether anything listens at one of ZooKeeper's hosts."""
    for part in hosts.partition("/")[0].split(","):
        host, colon, port = part.strip().rpartition(":")
        address = (host.strip("[]"), int(port)) if colon and port.isdecimal() else (part, 2181)
        try:
            socket.create_connection(address, SEND_TIMEOUT_S).close()
        except OSError:
            continue
        return True
    return False

"""Notifying workers of appends, so that they need not poll for them.

Best effort: an append never waits for this, and never fails because of it. What no notification
reports the workers find by themselves a little later. A small batch goes along, signed, so that a
worker need not read from HBase what was written a millisecond ago.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from hqueue.errors import ClosedError, HQueueError
from hqueue.format import rowkey
from hqueue.log.ports import Row
from hqueue.metadata import Address, Coordination, PartitionKey, Watch, WorkerRecord
from hqueue.metadata.append_keys import AppendKey, AppendKeys, sign
from hqueue.net.contexts import TlsContexts
from hqueue.net.sockets import WOULD_BLOCK
from hqueue.rpc.connection import open_socket
from hqueue.rpc.messages import encode_call
from hqueue.rpc.services import load
from hqueue.runtime.clock import SYSTEM_CLOCK
from hqueue.runtime.fork import register
from hqueue.runtime.held import if_free
from hqueue.runtime.interrupts import is_interruption
from hqueue.runtime.job import Job
from hqueue.runtime.logs import Log
from hqueue.runtime.sockets import open_connection
from hqueue.settings.addresses import zookeeper_servers

__all__ = ["BATCH", "WORKER_SERVICE", "AppendNotifier", "row_of"]

logger = Log(__name__)

CONNECT_TIMEOUT_S = 0.5
AVOIDED_MS = 2_000.0
LOOK_FOR_ZOOKEEPER_EVERY_MS = 60_000.0
BATCH_BYTES_MAX = 32 * 1024
"""A batch up to this size goes along, its header counted, which can have a thousand long topics.
Reading a heavier one costs little beside delivering it."""

WORKER_SERVICE: Any = load("worker").HQueueWorkerService
BATCH: Any = load("worker").TBatch


class AppendNotifier:
    """Notifies the workers that serve partitions of what is appended to them. Thread-safe.

    The thread that appends sends the notification itself, in one system call that never waits. What
    goes on in the background from the first append on watches in ZooKeeper who serves what and
    which key signs, and opens the connections. While nobody serves a partition, an append to it
    costs a look into a dictionary.

    Args:
        coordinate: gives the session with the coordination service.
        zookeeper: its hosts. They are tried before a session is begun: a process that
            only writes may have none.
        look_every_ms: how often they are tried.
        tls: what TLS is spoken with to workers; in clear if None.
    """

    def __init__(
        self,
        coordinate: Callable[[], Coordination],
        zookeeper: str,
        look_every_ms: float = LOOK_FOR_ZOOKEEPER_EVERY_MS,
        tls: TlsContexts | None = None,
    ) -> None:
        self._coordinate = coordinate
        self._zookeeper = zookeeper
        self._look_every_ms = look_every_ms
        self._tls = tls
        self._closed = False
        self.after_fork_in_child()
        register(self)

    def after_fork_in_child(self) -> None:
        self._owners: Mapping[PartitionKey, str] = {}
        self._workers: Mapping[str, WorkerRecord] = {}
        self._key: AppendKey | None = None
        self._routes: dict[PartitionKey, _Route | None] = {}
        self._connections: dict[Address, _Connection] = {}
        self._waiting: set[_Route] = set()
        self._starting = threading.Lock()
        self._tending: Job | None = None
        self._watches: list[Watch] = []

    @property
    def looks(self) -> bool:
        """Whether it looks for workers: from the first append on."""
        return self._tending is not None

    def knows(self, key: PartitionKey) -> bool:
        """Whether it is known who serves a partition."""
        return key in self._owners

    def appended(
        self,
        key: PartitionKey,
        slot: int | None = None,
        header: bytes = b"",
        cells: Mapping[bytes, bytes] | None = None,
    ) -> None:
        """A batch was appended to a partition. Returns at once, and never raises.

        Args:
            key: the partition.
            slot: where the batch lies, if that is known.
            header, cells: what lies there. It goes along once a key is known to sign it with.
        """
        if self._tending is None and not self._closed:
            if_free(self._starting, self._start)
        routes = self._routes
        if key not in routes:
            routes[key] = self._route(key)
        route = routes[key]
        if route is None:
            return
        frame, signing = route.frame, self._key
        if signing and slot is not None and cells and _size(header, cells) <= BATCH_BYTES_MAX:
            mac = sign(signing, key.queue, key.partition, slot, header=header, cells=cells)
            batch = BATCH(key.partition, slot, header, cells, signing.id, mac)
            frame = _frame(key, batch)
        if not route.connection.send(frame):
            self._waiting.add(route)
            if self._tending is not None:
                self._tending.ask()

    def close(self) -> None:
        """Notify of nothing more."""
        self._closed = True
        if self._tending is not None:
            self._tending.ask()

    def _route(self, key: PartitionKey) -> _Route | None:
        worker = self._workers.get(self._owners.get(key, ""))
        if worker is None:
            return None
        connection = self._connections.setdefault(
            worker.address, _Connection(worker.address, self._tls)
        )
        return _Route(connection, _frame(key))

    def _start(self) -> None:
        if self._tending is None and not self._closed:  # Else another was faster.
            with contextlib.suppress(HQueueError):  # The next append tries again.
                self._tending = Job(self._tend)
                self._tending.ask()

    def _tend(self) -> float:
        """Watch, if that is possible now, and connect where that is asked for; when to come back.

        Raises:
            ClosedError: this was closed, or the session.
        """
        try:
            if self._closed:
                raise ClosedError("the notifications of appends were closed")
            if not self._watches and not self._begin_watching():
                return self._look_every_ms
            self._connect()
        except ClosedError:
            for each in (*self._watches, *self._connections.values()):
                each.close()
            raise
        return float("inf")

    def _begin_watching(self) -> bool:
        try:
            if not _listens(self._zookeeper):
                return False
            coordination = self._coordinate()
            with contextlib.ExitStack() as failed:
                workers = coordination.workers.watch(self._see_workers)
                failed.callback(workers.close)
                owners = coordination.owners.watch(self._see_owners)
                failed.callback(owners.close)
                self._watches = [
                    workers,
                    owners,
                    coordination.append_keys.watch(self._see_keys),
                ]
                failed.pop_all()
        except ClosedError:
            raise
        except HQueueError as exc:
            logger.debug("can't notify workers of appends now: %s", exc)
            return False
        return True

    def _connect(self) -> None:
        while self._waiting and not self._closed:
            route = self._waiting.pop()
            if route.connection.connect():
                route.connection.send(route.frame)

    def _see_workers(self, workers: Mapping[str, WorkerRecord]) -> None:
        self._workers = workers
        self._routes = {}
        here = {worker.address for worker in workers.values()}
        for address in list(self._connections):
            if address not in here:
                self._connections.pop(address).close()

    def _see_owners(self, owners: Mapping[PartitionKey, str]) -> None:
        self._owners = owners
        self._routes = {}

    def _see_keys(self, keys: AppendKeys | None) -> None:
        self._key = None if keys is None else keys.current


class _Connection:
    """The connection to one worker. Nothing but notifications goes through it, and nothing comes
    back.

    Thread-safe, but for `connect`, which one thread at a time calls.
    """

    def __init__(self, address: Address, tls: TlsContexts | None) -> None:
        self._address = address
        self._tls = tls
        self._lock = threading.RLock()
        self._socket: socket.socket | None = None
        self._avoided_until_ms = 0.0

    def send(self, frame: bytes) -> bool:
        """Send a notification without waiting; whether that needs no connection first."""
        with self._lock:
            opened = self._socket  # A handler of a signal may send one here, too.
            if opened is None:
                return SYSTEM_CLOCK.monotonic_ms() < self._avoided_until_ms
            try:
                if _is_ended(opened):  # The worker needed its place for others.
                    opened.close()
                    self._socket = None
                    return False
                if opened.send(frame) == len(frame):
                    return True
                reason = "it takes no more"
            except OSError as exc:
                if is_interruption(exc):
                    raise
                reason = str(exc)
            # A worker that does not read, or is gone. It looks by itself.
            self._avoid(reason)
            return True

    def connect(self) -> bool:
        """Open the connection, if it isn't; whether it is open."""
        if self._socket is not None:
            return True
        try:
            opened = open_socket(*self._address, CONNECT_TIMEOUT_S, self._tls)
            opened.setblocking(False)
        except OSError as exc:
            if is_interruption(exc):
                raise
            with self._lock:
                self._avoid(str(exc))
            return False
        with self._lock:
            self._socket = opened
        return True

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            if self._socket is not None:
                self._socket.close()
                self._socket = None

    def _avoid(self, reason: str) -> None:
        logger.debug("worker at %s was not notified: %s", self._address, reason)
        self._avoided_until_ms = SYSTEM_CLOCK.monotonic_ms() + AVOIDED_MS
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def _is_ended(of: socket.socket) -> bool:
    """Whether the other side has hung up. Nothing else comes from it.

    Raises:
        OSError: the connection is broken.
    """
    try:
        return not of.recv(1)
    except WOULD_BLOCK:
        return False


class _Route(NamedTuple):
    """How a worker is notified of appends to a partition that it serves."""

    connection: _Connection
    frame: bytes


def _size(header: bytes, cells: Mapping[bytes, bytes]) -> int:
    return len(header) + sum(map(len, cells.values()))


def _frame(key: PartitionKey, *batches: Any) -> bytes:
    """The call that notifies of an append, as it is on the wire."""
    call = encode_call(WORKER_SERVICE, "appended", key.queue, [key.partition], list(batches))
    return len(call).to_bytes(4, "big") + call


def row_of(batch: Any) -> Row:
    """The row of a batch that came along with a notification. It is as good as its MAC."""
    return Row(
        rowkey.encode(batch.partition, batch.slot),
        batch.partition,
        batch.slot,
        batch.header,
        {topic.decode(): cell for topic, cell in batch.cells.items()},
    )


def _listens(hosts: str) -> bool:
    """Whether anything listens at one of ZooKeeper's hosts."""
    for server in zookeeper_servers(hosts):
        try:
            open_connection(server, CONNECT_TIMEOUT_S).close()
        except OSError as exc:
            if is_interruption(exc):
                raise
            continue
        return True
    return False

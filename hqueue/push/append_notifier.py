"""Notifying workers of appends, so that they need not poll for them.

Best effort: an append never waits for this, and never fails because of it. What no notification
reports the workers find by themselves a little later. A small batch goes along, signed, so that a
worker need not read from HBase what was written a millisecond ago.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from hqueue.errors import ClosedError, HQueueError
from hqueue.format import rowkey
from hqueue.log.ports import Row
from hqueue.metadata import Address, Coordination, PartitionKey, Watch, WorkerRecord
from hqueue.metadata.append_keys import AppendKey, AppendKeys, sign
from hqueue.net.contexts import TlsContexts
from hqueue.push.notifier_connection import NotifierConnection, open_socket
from hqueue.rpc.messages import encode_call
from hqueue.rpc.services import load
from hqueue.runtime.foreign import call_foreign
from hqueue.runtime.fork import register
from hqueue.runtime.held import if_free
from hqueue.runtime.job import Job
from hqueue.runtime.logs import Log
from hqueue.runtime.loop import computed, is_much, program_loop
from hqueue.runtime.per_loop import PerLoop
from hqueue.runtime.program_loop import ProgramLoop
from hqueue.settings.addresses import zookeeper_servers

__all__ = ["BATCH", "WORKER_SERVICE", "AppendNotifier", "row_of"]

logger = Log(__name__)

LOOK_FOR_ZOOKEEPER_EVERY_MS = 60_000.0
BATCH_BYTES_MAX = 32 * 1024
"""A batch up to this size goes along, its header counted, which can have a thousand long topics.
Reading a heavier one costs little beside delivering it."""

WORKER_SERVICE: Any = load("worker").HQueueWorkerService
BATCH: Any = load("worker").TBatch


class AppendNotifier:
    """Notifies the workers that serve partitions of what is appended to them. Thread-safe, and
    usable in a forked child.

    Who appends sends the notification itself, in one system call that never waits. What goes on in
    the background from the first append on watches in ZooKeeper who serves what and which key
    signs, and opens the connections: in the event loop in which was appended, if that is the
    program's, else in the process's. Each loop has connections of its own. While nobody serves a
    partition, an append to it costs a look into a dictionary.

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
        self._make = partial(_Notifications, coordinate, zookeeper, look_every_ms, tls)
        self._closed = False
        self._in_loops: PerLoop[_Notifications] = PerLoop(
            lambda: self._make(_ReadingLoop()), _Notifications.close, _Notifications.abandon
        )
        self.after_fork_in_child()
        register(self)

    def after_fork_in_child(self) -> None:
        self._in_threads = self._make(None)

    @property
    def looks(self) -> bool:
        """Whether it looks for workers here: from the first append on."""
        return self._here().looks

    def knows(self, key: PartitionKey) -> bool:
        """Whether it is known here who serves a partition."""
        return self._here().knows(key)

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
        if not self._closed:
            self._here().appended(key, slot, header, cells)

    def close(self) -> None:
        """Notify of nothing more."""
        self._closed = True
        self._in_threads.close()
        self._in_loops.close()

    async def ended(self) -> None:
        """Wait until nothing goes on in the running loop, after `close`."""
        here = self._in_loops.items.get(asyncio.get_running_loop())
        if here is not None:
            await here.ended()

    def _here(self) -> _Notifications:
        return self._in_threads if program_loop() is None else self._in_loops.here()


class _ReadingLoop(ProgramLoop):
    """The program's loop. There may be thousands of records: they are read beside it."""

    async def notify(self, what: str, function: Callable[..., object], /, *args: Any) -> None:
        if is_much(sum(map(len, args)), lambda: 0):
            await computed(call_foreign, what, function, *args)
        else:
            call_foreign(what, function, *args)


class _Notifications:
    """The notifications of what one event loop appends, or all threads without one.

    Args:
        coordinate, zookeeper, look_every_ms, tls: as `AppendNotifier`.
        loop: the program's; None for that of the process.
    """

    def __init__(
        self,
        coordinate: Callable[[], Coordination],
        zookeeper: str,
        look_every_ms: float,
        tls: TlsContexts | None,
        loop: _ReadingLoop | None,
    ) -> None:
        self._coordinate = coordinate
        self._zookeeper = zookeeper
        self._look_every_ms = look_every_ms
        self._tls = tls
        self._loop = loop
        self._pid = os.getpid()
        self._closed = False
        self._owners: Mapping[PartitionKey, str] = {}
        self._workers: Mapping[str, WorkerRecord] = {}
        self._key: AppendKey | None = None
        self._routes: dict[PartitionKey, _Route | None] = {}
        self._connections: dict[Address, NotifierConnection] = {}
        self._waiting: set[_Route] = set()
        self._starting = threading.Lock()
        self._tending: Job | None = None
        self._watches: list[Watch] = []

    @property
    def looks(self) -> bool:
        """Like `AppendNotifier.looks`."""
        return self._tending is not None

    def knows(self, key: PartitionKey) -> bool:
        """Like `AppendNotifier.knows`."""
        return key in self._owners

    def appended(
        self,
        key: PartitionKey,
        slot: int | None,
        header: bytes,
        cells: Mapping[bytes, bytes] | None,
    ) -> None:
        """Like `AppendNotifier.appended`."""
        if self._tending is None:
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

    def abandon(self) -> None:
        """Let go of watches and connections at once: the loop does not run. In a forked child they
        are the parent's.
        """
        if self._pid == os.getpid():
            self._let_go()

    async def ended(self) -> None:
        """Like `AppendNotifier.ended`."""
        if self._loop is not None:
            self._let_go()
            await self._loop.close()

    def _let_go(self) -> None:
        for each in (*self._watches, *self._connections.values()):
            each.close()

    def _route(self, key: PartitionKey) -> _Route | None:
        worker = self._workers.get(self._owners.get(key, ""))
        if worker is None:
            return None
        connection = self._connections.setdefault(
            worker.address, NotifierConnection(worker.address, self._tls)
        )
        return _Route(connection, _frame(key))

    def _start(self) -> None:
        if self._tending is None and not self._closed:  # Else another was faster.
            with contextlib.suppress(HQueueError):  # The next append tries again.
                self._tending = Job(self._tend, loop=self._loop)
                self._tending.ask()

    async def _tend(self) -> float:
        """Watch, if that is possible now, and connect where that is asked for; when to come back.

        Raises:
            ClosedError: this was closed, or the session.
        """
        try:
            if self._closed:
                raise ClosedError("the notifications of appends were closed")
            if not self._watches and not await self._begin_watching():
                return self._look_every_ms
            await self._connect()
        except ClosedError:
            self._let_go()
            raise
        return float("inf")

    async def _begin_watching(self) -> bool:
        try:
            if not await _listens(self._zookeeper):
                return False
            coordination, loop = self._coordinate(), self._loop
            with contextlib.ExitStack() as failed:
                workers = coordination.workers.watch(self._see_workers, loop)
                failed.callback(workers.close)
                owners = coordination.owners.watch(self._see_owners, loop)
                failed.callback(owners.close)
                self._watches = [
                    workers,
                    owners,
                    coordination.append_keys.watch(self._see_keys, loop),
                ]
                failed.pop_all()
        except ClosedError:
            raise
        except HQueueError as exc:
            logger.debug("can't notify workers of appends now: %s", exc)
            return False
        return True

    async def _connect(self) -> None:
        while self._waiting and not self._closed:
            route = self._waiting.pop()
            if await route.connection.connect():
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


class _Route(NamedTuple):
    """How a worker is notified of appends to a partition that it serves."""

    connection: NotifierConnection
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


async def _listens(hosts: str) -> bool:
    """Whether anything listens at one of ZooKeeper's hosts."""
    for server in zookeeper_servers(hosts):
        try:
            (await open_socket(server)).close()
        except OSError:
            continue
        return True
    return False

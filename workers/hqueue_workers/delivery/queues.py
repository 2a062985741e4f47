"""The queues that a worker reads: opened once, with their pollers and the locations of their
regions.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Collection, Mapping, Sequence

from hqueue import Client, HQueueError
from hqueue.engine import Engine, OpenLog, Row
from hqueue.metadata import PartitionKey
from hqueue_workers.delivery.poller import Poller
from hqueue_workers.node.runtime import Runtime
from hqueue_workers.node.settings import WorkerSettings

__all__ = ["OpenQueue", "OpenQueues"]

REGIONS_FRESH_MS = 30_000.0
REGIONS_UNOWNED_MS = 2_000.0
RETRY_MS = 5_000.0


@dataclasses.dataclass
class OpenQueue:
    """An open queue."""

    queue: OpenLog
    poller: Poller
    polling: asyncio.Task[None]
    hosts: Mapping[int, str]
    """The host of each partition's region, as it was when that was asked last."""
    hosts_stale_ms: float


class OpenQueues:
    """All open queues. A queue that can't be opened now is tried again after some seconds.

    Args:
        client: the connection.
        runtime: the worker's runtime.
        settings: the worker's settings.
    """

    def __init__(self, client: Client, runtime: Runtime, settings: WorkerSettings) -> None:
        self._client = client
        self._engine = Engine(client)
        self._runtime = runtime
        self._settings = settings
        self._open: dict[str, OpenQueue] = {}
        self._retry_ms: dict[str, float] = {}

    def __getitem__(self, name: str) -> OpenQueue:
        return self._open[name]

    def notify(self, name: str, partitions: Collection[int], rows: Sequence[Row]) -> None:
        """Wake the readers of partitions that got an append, and give them the appended rows."""
        if name in self._open:
            poller = self._open[name].poller
            for row in rows:
                poller.push(row)
            for partition in partitions:
                poller.notify(partition)

    async def regions(
        self, wanted: Collection[PartitionKey], unowned: Collection[str]
    ) -> dict[PartitionKey, str | None]:
        """The existing ones of these partitions, each with its region's host if that is known.

        The locations of queues with unowned partitions are at most 2 s old.
        """
        names = {key.queue for key in wanted}
        for name in self._open.keys() - names:
            # The queue is not closed: it holds nothing, and what is served of it ends cleanly.
            self._open.pop(name).polling.cancel()
        await asyncio.gather(*(self._freshen(name, name in unowned) for name in names))
        return {
            key: self._open[key.queue].hosts.get(key.partition)
            for key in wanted
            if key.queue in self._open and key.partition < self._open[key.queue].queue.partitions
        }

    async def _freshen(self, name: str, unowned: bool) -> None:
        """Open a queue that is not open, or was created again with other partitions. Look its
        regions up again now and then.
        """
        fault = f"opening {name}"
        now_ms = self._runtime.clock.monotonic_ms()
        known = self._open.get(name)
        due_ms = self._retry_ms.get(name, now_ms) if known is None else known.hosts_stale_ms
        if known is not None and unowned:
            due_ms -= REGIONS_FRESH_MS - REGIONS_UNOWNED_MS
        if now_ms < due_ms:
            return
        try:
            located = await self._runtime.read(lambda: self._client.locations(name))
            queue = None if known is None else known.queue
            if queue is None or queue.partitions != len(located):
                queue = await self._runtime.read(lambda: self._engine.open(name))
        except HQueueError as exc:
            text = "queue %s can't be opened or located now: %s"
            self._runtime.faults.met(fault, text, name, exc)
            self._retry_ms[name] = now_ms + RETRY_MS
            if known is not None:
                known.hosts_stale_ms = now_ms + RETRY_MS
            return
        self._runtime.faults.over(fault, "queue %s can be opened and located again", name)
        hosts = {each.partition: each.host for each in located}
        if known is not None:
            # The poller stays: it asks for any partition, and those that are served wait for it.
            known.queue = queue
            known.hosts, known.hosts_stale_ms = hosts, now_ms + REGIONS_FRESH_MS
            return
        settings = self._settings
        poller = Poller(
            queue,
            queue.in_loop().reader,
            self._runtime,
            settings.poll_ms_max,
            settings.pushed_bytes_max,
        )
        polling = self._runtime.start(poller.run())
        self._open[name] = OpenQueue(queue, poller, polling, hosts, now_ms + REGIONS_FRESH_MS)

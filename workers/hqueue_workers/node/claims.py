"""Decides which partitions this worker serves: it plans as all other workers do, claims and
releases.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import Generic, Protocol, TypeVar

from hqueue import HQueueError
from hqueue.metadata import (
    Coordination,
    PartitionKey,
    Presence,
    SubscriptionKey,
    Watch,
    WorkerRecord,
)
from hqueue.metadata.claimant import Claimant
from hqueue.metadata.claiming import Steps
from hqueue.runtime.logs import Log
from hqueue_workers.node.assignment import assigned_to, claimed_by
from hqueue_workers.node.lease import Lease
from hqueue_workers.node.runtime import Runtime

__all__ = ["Claims", "Served"]

logger = Log(__name__)

LEASE_S = 1.0
"""How long a worker that ends waits for its lease, to release what it has."""

SETTLE_MS = 20.0
"""Changes that come within this time are looked at together."""

LOOK_EVERY_MS = 5_000.0


class Served(Protocol):
    """A claimed partition, as it is delivered."""

    region_host: str | None

    def assign(self, presences: Mapping[str, Presence]) -> None:
        """Deliver to these subscribers from now on."""

    def see_elsewhere(self, presences: Mapping[str, Presence]) -> None:
        """While it stops, no longer wait for processes that others have replaced as subscribers."""

    async def stop(self) -> None:
        """End delivery in order."""

    def abandon(self) -> None:
        """End delivery at once."""


_Served = TypeVar("_Served", bound=Served)


class Claims(Generic[_Served]):
    """The partitions that this worker has claimed.

    It watches the subscribers, the workers and their claims, and plans from them. It claims its
    share of the unclaimed partitions, and releases partitions that go to other workers when their
    calls have ended. Used by the event loop's thread alone.

    Args:
        coordination: the session.
        lease: whether this worker may act.
        runtime: the worker's runtime.
        regions: gives the existing ones of some partitions, with the hosts of their regions. The
            second argument names the queues whose hosts must be as fresh as possible: workers must
            agree soon on a plan for unclaimed partitions.
        serve: begins to deliver a partition that was claimed.
    """

    def __init__(
        self,
        *,
        coordination: Coordination,
        lease: Lease,
        runtime: Runtime,
        regions: Callable[
            [Collection[PartitionKey], Collection[str]],
            Awaitable[Mapping[PartitionKey, str | None]],
        ],
        serve: Callable[[PartitionKey], _Served],
    ) -> None:
        self.served: dict[PartitionKey, _Served] = {}
        self._name = ""
        self._coordination = coordination
        self._lease = lease
        self._runtime = runtime
        self._regions = regions
        self._serve = serve
        self._present: Mapping[SubscriptionKey, Presence] | None = None
        self._workers: Mapping[str, WorkerRecord] | None = None
        self._owners: Mapping[PartitionKey, str] | None = None
        self._leaving: dict[PartitionKey, tuple[_Served, asyncio.Task[None]]] = {}
        self._changed = asyncio.Event()
        self._watches: list[Watch | Claimant] = []
        self._lock = threading.Lock()
        self._claimant: Claimant | None = None
        self._releasing = asyncio.Lock()
        self._closed = False

    def watch(self) -> None:
        """Begin to watch for changes. For a thread that may wait."""
        tell = self._runtime.call
        self._watches = [
            self._coordination.subscriptions.watch(lambda v: tell(lambda: self._see(present=v))),
            self._coordination.workers.watch(lambda v: tell(lambda: self._see(workers=v))),
            self._coordination.owners.watch(lambda v: tell(lambda: self._see(owners=v))),
        ]

    async def run(self, name: str) -> None:
        """Claim and release partitions under this worker's name, until cancelled."""
        self._name = name
        owners, on_change = self._coordination.owners, self._changed.set
        claimant = self._claimant = await self._runtime.coordinate(
            lambda: Claimant(owners, name, self._lock, lambda: self._runtime.call(on_change)),
            Claimant.close,
        )
        self._watches.append(claimant)
        while True:
            await self._runtime.wait(self._changed, LOOK_EVERY_MS)
            await self._runtime.sleep_ms(SETTLE_MS)
            self._changed.clear()
            await self._lease.wait()
            try:
                await self._settle(claimant)
                await self._look_after(claimant)
            except HQueueError as exc:
                self._runtime.faults.met("claims", "partitions can't be claimed now: %s", exc)
            else:
                self._runtime.faults.over("claims", "partitions can be claimed again")

    async def drain(self) -> None:
        """Release all partitions in order: their next owners continue where this worker ended."""
        self._closed = True
        if self._claimant is not None:
            steps = self._next(self._claimant)
            with self._lock:
                self._claimant.claiming.doubt(steps.release)
            self._give_up(self._claimant, steps.revoke)
        if self._leaving:
            await asyncio.wait([task for _, task in self._leaving.values()])
        if self._claimant is not None and self._claimant.claiming.revoking:
            # Their calls ended while the lease did not hold, as on a machine that was stopped.
            with contextlib.suppress(asyncio.TimeoutError, HQueueError):
                await asyncio.wait_for(self._lease.wait(), LEASE_S)
                await self._release(self._claimant)

    def revoke(self) -> None:
        """End all deliveries at once: the claims are gone with the session."""
        if self._claimant is not None:
            with self._lock:
                self._claimant.claiming.lost()
        for served in (*self.served.values(), *(served for served, _ in self._leaving.values())):
            served.abandon()
        self.served.clear()
        self._changed.set()

    def close(self) -> None:
        """Stop watching, and deliver nothing more."""
        self._closed = True
        self.revoke()
        for watch in self._watches:
            watch.close()

    def _see(
        self,
        present: Mapping[SubscriptionKey, Presence] | None = None,
        workers: Mapping[str, WorkerRecord] | None = None,
        owners: Mapping[PartitionKey, str] | None = None,
    ) -> None:
        """Take note of what is known now."""
        self._present = self._present if present is None else present
        self._workers = self._workers if workers is None else workers
        self._owners = self._owners if owners is None else owners
        self._changed.set()

    async def _look_after(self, claimant: Claimant) -> None:
        """End at once the delivery of partitions whose claims another program removed, because
        other workers may serve them already. If they are still in the plan, they are claimed again.
        """
        gone = await claimant.look_after.in_loop()
        if gone:
            ending = (self._leaving[key][0] for key in gone & self._leaving.keys())
            for served in (*map(self.served.pop, gone & self.served.keys()), *ending):
                served.abandon()
            self._changed.set()

    async def _settle(self, claimant: Claimant) -> None:
        """Claim and release partitions according to the plan.

        Raises:
            HQueueError: nothing can be claimed now.
        """
        if self._present is None or self._workers is None or self._owners is None:
            return
        if self._name not in self._workers:  # The others do not reckon with this one yet.
            return
        wanted: dict[PartitionKey, dict[str, Presence]] = defaultdict(dict)
        for key, presence in self._present.items():
            wanted[key.partition_key][key.subscriber] = presence
        for leaving, (ending, _) in self._leaving.items():
            ending.see_elsewhere(wanted.get(leaving, {}))
        unowned = {key.queue for key in wanted.keys() - self._owners.keys()}
        regions = await self._regions(wanted.keys(), unowned)
        hosts = {name: record.region_host for name, record in self._workers.items()}
        with self._lock:
            claiming = claimant.claiming
            owners = {**self._owners, **dict.fromkeys(claiming.owned, self._name)}
            mine = assigned_to(self._name, regions, hosts, owners)
            # What can't be located now is kept: its queue may be disabled for a moment.
            claiming.request(
                (mine - self._leaving.keys()) | claiming.owned & (wanted.keys() - regions.keys())
            )
            # Claims of an earlier life of this worker, unknown to it.
            own = claimed_by(self._name, self._owners)
            claiming.doubt(own - claiming.held - self._leaving.keys())
        steps = self._next(claimant)
        self._give_up(claimant, steps.revoke)
        claimed = await claimant.carry_out.in_loop(steps)
        # The session may have been lost meanwhile: then the claims are gone. That the lease
        # holds may be the next session's.
        with self._lock:
            new = claiming.owned - self.served.keys()
        if new and (self._closed or not self._lease.holds):
            self._changed.set()
            return
        for partition in sorted(new):
            self.served[partition] = self._serve(partition)
        if claimed:
            logger.info("claimed %d partitions, %d in all", len(claimed), len(self.served))
        for partition, served in self.served.items():
            served.region_host = regions.get(partition)
            served.assign(wanted.get(partition, {}))
        await self._release(claimant)

    def _next(self, claimant: Claimant) -> Steps:
        with self._lock:
            if self._closed:
                claimant.claiming.leave()
            return claimant.claiming.steps()

    def _give_up(self, claimant: Claimant, keys: Iterable[PartitionKey]) -> None:
        for key in keys:
            served = self.served.pop(key, None)
            if served is not None:
                leaving = self._runtime.start(self._leave(claimant, key, served))
                self._leaving[key] = served, leaving

    async def _leave(self, claimant: Claimant, key: PartitionKey, served: _Served) -> None:
        """End the delivery of a partition, and only then let another worker claim it."""
        try:
            try:
                await served.stop()
            finally:
                del self._leaving[key]
            await self._release(claimant)
        except HQueueError as exc:  # It is released later, or disappears with the session.
            logger.warning("a claim was not released: %s", exc)
        finally:
            self._changed.set()

    async def _release(self, claimant: Claimant) -> None:
        """Release the partitions that were given up and whose delivery has ended. Those that end
        meanwhile are released next time.

        Raises:
            HQueueError: they will be released later.
        """
        async with self._releasing:
            with self._lock:
                ended = claimant.claiming.revoking - self._leaving.keys()
            if ended and self._lease.holds:
                await claimant.release.in_loop(ended)

"""Which partitions this worker serves: it plans as all others do, claims and gives up."""

from __future__ import annotations

import asyncio
import logging
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
from hqueue.metadata.owners import ClaimGuard
from hqueue_workers.node.assignment import assign
from hqueue_workers.node.lease import Lease
from hqueue_workers.node.runtime import Runtime

__all__ = ["Claims", "Served"]

logger = logging.getLogger(__name__)

SETTLE_MS = 20.0
"""Changes that come within this time are looked at together."""

LOOK_EVERY_MS = 5_000.0


class Served(Protocol):
    """A claimed partition that is delivered."""

    region_host: str | None

    def assign(self, presences: Mapping[str, Presence]) -> None:
        """Deliver to these subscribers from now on."""

    def see_elsewhere(self, presences: Mapping[str, Presence]) -> None:
        """While it stops: wait no more for subscribers that are other processes by now."""

    async def stop(self) -> None:
        """End in order."""

    def abandon(self) -> None:
        """End at once."""


_Served = TypeVar("_Served", bound=Served)


class Claims(Generic[_Served]):
    """The partitions that this worker has claimed.

    It sees who is subscribed, which workers there are and who has claimed what; from that it
    plans, claims what is to be its own and nobody has, and gives up what is to be another's, when
    its calls have ended. Used by the event loop's thread alone.

    Args:
        coordination: the session.
        lease: whether this worker may act.
        runtime: what the worker runs on.
        regions: gives those of some partitions that exist, and the hosts of their regions. The
            second argument says whose hosts are to be as new as can be: for what nobody has, all
            workers must come to the same plan soon.
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
        self._sessions = 0
        """How many sessions have ended."""
        self._changed = asyncio.Event()
        self._watches: list[Watch] = []
        self._guard: ClaimGuard | None = None
        self._closed = False

    def watch(self) -> None:
        """Begin to see what changes. For a thread that may wait."""
        tell = self._runtime.call
        self._watches = [
            self._coordination.subscriptions.watch(lambda v: tell(lambda: self._see(present=v))),
            self._coordination.workers.watch(lambda v: tell(lambda: self._see(workers=v))),
            self._coordination.owners.watch(lambda v: tell(lambda: self._see(owners=v))),
        ]

    async def run(self, name: str) -> None:
        """Claim and give up under this worker's name, until cancelled."""
        self._name = name
        self._guard = await self._runtime.coordinate(
            lambda: self._coordination.owners.guard(
                name, lambda: self._runtime.call(self._changed.set)
            )
        )
        while True:
            await self._runtime.wait(self._changed, LOOK_EVERY_MS)
            await self._runtime.sleep_ms(SETTLE_MS)
            self._changed.clear()
            await self._lease.wait()
            try:
                await self._settle()
                await self._look_after()
            except HQueueError as exc:
                self._runtime.faults.met("claims", "partitions can't be claimed now: %s", exc)
            else:
                self._runtime.faults.over("claims", "partitions can be claimed again")

    async def drain(self) -> None:
        """Give all up in order: what another claims then goes on where this ended."""
        self._closed = True
        self._give_up(self.served.keys())
        if self._leaving:
            await asyncio.wait([task for _, task in self._leaving.values()])

    def revoke(self) -> None:
        """All claims are gone with the session: end at once."""
        self._sessions += 1
        for served in (*self.served.values(), *(served for served, _ in self._leaving.values())):
            served.abandon()
        self.served.clear()
        self._changed.set()

    def close(self) -> None:
        """See nothing more, and deliver nothing more."""
        self._closed = True
        self.revoke()
        for watch in self._watches:
            watch.close()
        if self._guard is not None:
            self._guard.close()

    def _see(
        self,
        present: Mapping[SubscriptionKey, Presence] | None = None,
        workers: Mapping[str, WorkerRecord] | None = None,
        owners: Mapping[PartitionKey, str] | None = None,
    ) -> None:
        """Take in what is known now."""
        self._present = self._present if present is None else present
        self._workers = self._workers if workers is None else workers
        self._owners = self._owners if owners is None else owners
        self._changed.set()

    async def _look_after(self) -> None:
        """End at once what another hand took away: others may serve it already. What is to be its
        own is claimed again.
        """
        guard, session = self._guard, self._sessions
        assert guard is not None
        claims = [*self.served]
        gone = await self._runtime.coordinate(lambda: guard.lost(claims))
        if gone and session == self._sessions:
            logger.warning("claims were removed by another hand: %s", sorted(gone)[:10])
            for key in gone:
                served = self.served.pop(key, None)
                if served is not None:
                    served.abandon()
            self._changed.set()

    async def _settle(self) -> None:
        """Bring what is served to what is planned.

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
        owners, workers = self._owners, self._workers
        hosts = {name: record.region_host for name, record in workers.items()}
        plan = assign(regions, hosts, {**owners, **dict.fromkeys(self.served, self._name)})
        mine = {key for key, name in plan.items() if name == self._name}
        # What can't be located now is kept: its queue may be disabled for a moment.
        gone = self.served.keys() - (wanted.keys() - regions.keys()) - mine
        self._give_up(gone)
        free = {
            key
            for key in mine - self.served.keys() - self._leaving.keys()
            if owners.get(key, self._name) == self._name or owners[key] not in workers
        }
        if free and not self._closed:
            session = self._sessions
            claimed = await self._runtime.coordinate(
                lambda: self._coordination.owners.claim(self._name, free)
            )
            # The session may have been lost meanwhile: then nothing was claimed by this one. That
            # the lease holds may be the next session's.
            if session != self._sessions or self._closed or not self._lease.holds:
                self._changed.set()
                return
            for partition in sorted(claimed):
                self.served[partition] = self._serve(partition)
            if claimed:
                logger.info("claimed %d partitions, %d in all", len(claimed), len(self.served))
        for partition, served in self.served.items():
            served.region_host = regions.get(partition)
            served.assign(wanted.get(partition, {}))
        # Left over where it could not be released, or was not to be had any more once claimed.
        own = {key for key, name in owners.items() if name == self._name}
        left = own - mine - self.served.keys() - self._leaving.keys()
        if left:
            await self._runtime.coordinate(lambda: self._coordination.owners.release(left))

    def _give_up(self, keys: Iterable[PartitionKey]) -> None:
        for key in list(keys):
            served = self.served.pop(key)
            self._leaving[key] = (served, self._runtime.start(self._leave(key, served)))

    async def _leave(self, key: PartitionKey, served: _Served) -> None:
        """End what is under way, and only then let another claim the partition."""
        try:
            await served.stop()
            if self._lease.holds:
                await self._runtime.coordinate(lambda: self._coordination.owners.release([key]))
        except HQueueError as exc:  # It is released later, or disappears with the session.
            logger.warning("a claim was not released: %s", exc)
        finally:
            del self._leaving[key]
            self._changed.set()

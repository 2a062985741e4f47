"""Registers the HQueue cluster and its queues for consumers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from hqueue import HQueueError, SettingsError
from hqueue.metadata import BrokerRecord, Watch
from hqueue.metadata.brokers import BrokerGuard, Brokers
from hqueue.runtime.logs import Log
from hqueue_workers.node.runtime import Runtime

__all__ = ["BrokerRegistration"]

logger = Log(__name__)

LOOK_EVERY_MS = 1_000.0
REST_SHARE = 20
"""How many times as long as a look at the queues took it rests afterwards, at least."""
RETRY_MS = 5_000.0
GONE_AFTER_MS = 5_000.0
"""How long a queue is missing before it counts as deleted. What is truncated is for a moment."""


class BrokerRegistration:
    """Keeps the cluster and its queues registered whenever no other worker does.

    All workers of a cluster have such an object. One of them holds the registration; when it is
    gone, cleanly or not, another takes over at once. The holder lists the queues again and again,
    since queues are created and deleted without the workers. Used by the event loop's thread.

    Args:
        brokers: where clusters and queues are registered.
        runtime: the worker's runtime.
        broker: the cluster's logical ID.
        record: the cluster's record.
        queues: asks HBase for all queues, with their numbers of partitions.
        look_every_ms: the shortest pause between two lists of the queues.
    """

    def __init__(
        self,
        *,
        brokers: Brokers,
        runtime: Runtime,
        broker: int,
        record: BrokerRecord,
        queues: Callable[[], Mapping[str, int]],
        look_every_ms: float = LOOK_EVERY_MS,
    ) -> None:
        self.holds = False
        """Whether this worker holds the registration."""
        self._brokers = brokers
        self._runtime = runtime
        self._broker = broker
        self._record = record
        self._queues = queues
        self._look_every_ms = look_every_ms
        self._registered: dict[str, int] = {}
        self._missing_since_ms: dict[str, float] = {}
        self._sessions = 0
        self._changed = asyncio.Event()
        self._working = asyncio.Lock()
        self._released = False
        self._watch: Watch | None = None
        self._guard: BrokerGuard | None = None

    async def check(self) -> None:
        """Return if no other cluster has registered this ID.

        Raises:
            SettingsError: another cluster has registered it.
        """
        await self._brokers.check.in_loop(self._broker, self._record.cluster)

    async def run(self) -> None:
        """Register, and take over, until cancelled.

        Raises:
            SettingsError: another cluster has registered this ID meanwhile.
        """
        self._watch = await self._runtime.coordinate(lambda: self._brokers.watch(self._on_brokers))
        self._guard = await self._runtime.coordinate(
            lambda: self._brokers.guard(
                self._broker, self._record, lambda: self._runtime.call(self._changed.set)
            )
        )
        while not self._released:
            self._changed.clear()
            pause_ms = RETRY_MS
            try:
                async with self._working:
                    if await self._hold():
                        pause_ms = await self._look()
            except SettingsError:
                raise
            except HQueueError as exc:
                text = "the cluster's queues can't be registered now: %s"
                self._runtime.faults.met("broker", text, exc)
            else:
                self._runtime.faults.over("broker", "the cluster's queues can be registered again")
            await self._runtime.wait(self._changed, pause_ms)

    async def release(self) -> None:
        """Release the registration, and let another worker take over. Never raises."""
        self._released = True
        self._changed.set()
        async with self._working:
            if not self.holds:
                return
            self.holds = False
            queues = [*self._registered]
            try:
                await self._brokers.release_queues.in_loop(self._broker, queues)
                await self._brokers.release.in_loop(self._broker)
            except HQueueError as exc:
                logger.warning("the broker stays registered until the session ends: %s", exc)

    def revoke(self) -> None:
        """Note that the session is over, and its registrations with it."""
        self._sessions += 1
        self.holds = False
        self._registered.clear()
        self._changed.set()

    def close(self) -> None:
        """Stop watching the registrations."""
        if self._watch is not None:
            self._watch.close()
        if self._guard is not None:
            self._guard.close()

    def _on_brokers(self, brokers: Mapping[int, BrokerRecord]) -> None:
        """Called by a thread of the coordination service."""
        if self._broker not in brokers:
            self._runtime.call(self._changed.set)

    async def _hold(self) -> bool:
        """Take the registration if no other worker holds it."""
        await self._look_after()
        if not self.holds and not self._released:
            session = self._sessions
            claimed = await self._brokers.claim.in_loop(self._broker, self._record)
            if not claimed:
                await self.check()
            elif session == self._sessions:
                self.holds = True
                logger.info("registered as broker %d", self._broker)
            else:
                self._changed.set()  # Which session's it is, is not known.
        return self.holds

    async def _look_after(self) -> None:
        """Check whether another program removed registrations. If so, they are registered again,
        unless another worker was faster.
        """
        guard, session = self._guard, self._sessions
        if not self.holds or guard is None:
            return
        known = dict(self._registered)
        lost, gone = await guard.lost.in_loop(known)
        if session != self._sessions or not (lost or gone):
            return
        logger.warning("another program removed registrations of broker %d", self._broker)
        if lost:  # Its holder registers the queues.
            await self._brokers.release_queues.in_loop(self._broker, known.keys())
            self.revoke()
        for queue in gone:
            self._registered.pop(queue, None)

    async def _look(self) -> float:
        """Register the existing queues, and no others. Returns how long to pause."""
        began_ms = self._runtime.clock.monotonic_ms()
        there = await self._runtime.read(self._queues)
        now_ms = self._runtime.clock.monotonic_ms()
        session, known = self._sessions, self._registered
        self._missing_since_ms = {
            queue: self._missing_since_ms.get(queue, now_ms) for queue in known.keys() - there
        }
        gone = {
            queue
            for queue, since_ms in self._missing_since_ms.items()
            if now_ms - since_ms >= GONE_AFTER_MS
        }
        stale = gone | {queue for queue in known.keys() & there if known[queue] != there[queue]}
        if stale:
            await self._brokers.release_queues.in_loop(self._broker, stale)
            for queue in stale:
                known.pop(queue, None)
        missing = {queue: there[queue] for queue in there.keys() - known}
        if missing and session == self._sessions:
            registered = await self._brokers.claim_queues.in_loop(self._broker, missing)
            if session == self._sessions:
                known.update({queue: missing[queue] for queue in registered})
        return max(self._look_every_ms, REST_SHARE * (now_ms - began_ms))

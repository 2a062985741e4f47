"""A partition that this worker has claimed, and its delivery to subscribers."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

from hqueue import HQueueError
from hqueue.engine import OpenLog
from hqueue.metadata import Address, Checkpoints, PartitionKey, Presence, SubscriptionKey
from hqueue.metadata.access_rules import Operation
from hqueue.net.principals import ANONYMOUS
from hqueue.net.refusals import RefusedError
from hqueue.net.security import PortSecurity
from hqueue.runtime.logs import Log
from hqueue.settings.names import EVERYBODY
from hqueue_workers.delivery.checkpoint import CheckpointUpdater
from hqueue_workers.delivery.connection_pool import ConnectionPool
from hqueue_workers.delivery.cursor import SubscriberCursor
from hqueue_workers.delivery.poller import Poller
from hqueue_workers.delivery.scanner import MessageScanner, partition_opener
from hqueue_workers.delivery.segment import SubscriptionFilter
from hqueue_workers.delivery.sender import MessageSender
from hqueue_workers.node.access_control import AccessControl
from hqueue_workers.node.lease import Lease
from hqueue_workers.node.metrics import Metrics
from hqueue_workers.node.runtime import Runtime
from hqueue_workers.node.settings import WorkerSettings

__all__ = ["ConnectionPools", "Deliveries", "ServedPartition"]

logger = Log(__name__)

PAUSE_MS = 2_000.0


class _Endpoint(NamedTuple):
    """The subscriber of a connection pool, and the topics that it gets."""

    queue: str
    subscriber: str
    address: Address
    topics: frozenset[str] | None


class ConnectionPools:
    """The connections to all subscribers: a pool for each, for as long as anything uses it.

    Args:
        lease: whether the worker's session is certainly alive.
        connections: the most connections to one subscriber.
        security: the TLS settings of calls; calls are in clear if None.
        access: the access rules; None if they are not checked.
    """

    def __init__(
        self,
        lease: Lease,
        connections: int,
        security: PortSecurity | None = None,
        access: AccessControl | None = None,
    ) -> None:
        self._security = security
        self._access = access
        self._lease = lease
        self._connections = connections
        self._pools: dict[_Endpoint, tuple[ConnectionPool, set[SubscriptionKey]]] = {}

    def use(self, key: SubscriptionKey, presence: Presence) -> ConnectionPool:
        """The connections to a subscriber, to be used until `leave`."""
        endpoint = _endpoint(key, presence)
        if endpoint not in self._pools:
            security = self._security
            pool = ConnectionPool(
                presence.address,
                lambda: self._lease.holds,
                self._connections,
                tls=None if security is None else security.client,
                accepts=partial(self._check, endpoint),
            )
            self._pools[endpoint] = (pool, set())
        pool, users = self._pools[endpoint]
        users.add(key)
        return pool

    def leave(self, key: SubscriptionKey, presence: Presence) -> None:
        """Close the connections if nothing else uses them."""
        endpoint = _endpoint(key, presence)
        pool, users = self._pools[endpoint]
        users.discard(key)
        if not users:
            pool.close()
            del self._pools[endpoint]

    def renew(self) -> None:
        """Make each subscriber prove again that it may be called: the access rules changed."""
        for pool, _ in self._pools.values():
            pool.renew()

    def _check(self, to: _Endpoint, certificate: Mapping[str, Any] | None) -> None:
        """Return if a subscriber may have the messages that it has registered for.

        Raises:
            RefusedError: no rule allows it.
        """
        access, security = self._access, self._security
        if access is None or security is None:
            return
        principal, shown = ANONYMOUS, "it does not speak TLS"
        if certificate is not None:
            principal = security.rules.principal_of(certificate)
            shown = f"it has the certificate of {principal!r}"
        for topic in (EVERYBODY,) if to.topics is None else to.topics:
            if not access.allows(
                principal,
                Operation.CONSUME,
                to.queue,
                topic,
                to.subscriber,
                own=principal == to.subscriber,
            ):
                raise RefusedError(
                    f"{shown}, and no access rule allows it to consume {to.queue!r} as "
                    f"{to.subscriber!r}"
                )


def _endpoint(key: SubscriptionKey, presence: Presence) -> _Endpoint:
    return _Endpoint(key.queue, key.subscriber, presence.address, presence.topics)


@dataclasses.dataclass(frozen=True)
class Deliveries:
    """The objects that all partitions of a worker share."""

    runtime: Runtime
    lease: Lease
    checkpoints: Checkpoints
    pools: ConnectionPools
    metrics: Metrics
    settings: WorkerSettings


class ServedPartition:
    """Delivers a partition to those of its subscribers that are present.

    Each subscriber is started and stopped separately: none waits for another.

    Args:
        key: the partition.
        queue: its queue.
        poller: the poller of the ends of the queue's partitions.
        shared: the objects that all partitions share.
        share_bytes: gives the bytes that the partition may hold in memory now, and so may each
            subscriber that is behind.
    """

    def __init__(
        self,
        key: PartitionKey,
        queue: OpenLog,
        poller: Poller,
        shared: Deliveries,
        share_bytes: Callable[[], int],
    ) -> None:
        self.key = key
        self.queue = queue
        self._opener = partition_opener(queue.in_loop().reader, key.partition)
        self.scanner = MessageScanner(
            queue, self._opener, shared.runtime, share_bytes, poller=poller
        )
        self._shared = shared
        self._share_bytes = share_bytes
        self._wanted: Mapping[str, Presence] = {}
        self._running: dict[str, tuple[Presence, MessageSender]] = {}
        self._ending: dict[str, tuple[Presence, MessageSender]] = {}
        self._changing: dict[str, asyncio.Task[None]] = {}
        self._closed = self._stopping = False

    @property
    def region_host(self) -> str | None:
        """The host that serves its region, if that is known."""
        return self.scanner.region_host

    @region_host.setter
    def region_host(self, host: str | None) -> None:
        self.scanner.region_host = host

    @property
    def senders(self) -> Iterator[MessageSender]:
        """The senders that deliver now."""
        return (sender for _, sender in self._running.values())

    def assign(self, presences: Mapping[str, Presence]) -> None:
        """Deliver to these subscribers, and no others, from now on."""
        self._wanted = presences
        for subscriber in presences.keys() | self._running.keys():
            running = self._running.get(subscriber)
            if (running and running[0]) != presences.get(subscriber):
                self._change(subscriber)
        self.see_elsewhere(presences)

    def see_elsewhere(self, presences: Mapping[str, Presence]) -> None:
        """Stop waiting for the answers of processes that others have replaced as subscribers."""
        for subscriber, (presence, sender) in self._ending.items():
            if _elsewhere(presences.get(subscriber), presence):
                sender.cut_short()

    def look_after(self) -> None:
        """Restart the senders whose checkpoints another process has moved."""
        for subscriber, (_, sender) in self._running.items():
            if sender.checkpoint.moved_by_others:
                self._change(subscriber)

    async def stop(self) -> None:
        """End in order: calls under way have some time to end, and checkpoints are written."""
        self._wanted, self._stopping = {}, True
        for subscriber in self._running:
            self._change(subscriber)
        loop, drain_s = asyncio.get_running_loop(), self._shared.settings.drain_ms / 1e3
        for _, sender in self._ending.values():
            loop.call_later(drain_s, sender.cut_short)
        while self._changing:
            await asyncio.wait(self._changing.values())
        self._closed = True
        self.scanner.close()

    def abandon(self) -> None:
        """End at once, and write nothing: the claim is gone."""
        self._closed = True
        for _, sender in (*self._ending.values(), *self._running.values()):
            sender.abandon()
        for subscriber, (presence, _) in self._running.items():
            self._shared.pools.leave(self._key(subscriber), presence)
        self._running.clear()
        self.scanner.close()

    def _key(self, subscriber: str) -> SubscriptionKey:
        return SubscriptionKey(*self.key, subscriber)

    def _change(self, subscriber: str) -> None:
        if subscriber not in self._changing and not self._closed:
            self._changing[subscriber] = self._shared.runtime.start(self._settle(subscriber))

    async def _settle(self, subscriber: str) -> None:
        """Start, stop or restart one subscriber's delivery until it is as assigned."""
        try:
            while not self._closed and await self._step(subscriber):
                pass
        finally:
            del self._changing[subscriber]

    async def _step(self, subscriber: str) -> bool:
        """Take the next step for a subscriber. Returns whether there may be another."""
        wanted = self._wanted.get(subscriber)
        if subscriber not in self._running:
            return wanted is not None and await self._begin(subscriber, wanted)
        presence, sender = self._running[subscriber]
        if presence == wanted and not sender.checkpoint.moved_by_others:
            return False
        self._ending[subscriber] = self._running.pop(subscriber)
        await sender.stop(self._grace_ms(wanted, presence))
        del self._ending[subscriber]
        self._shared.pools.leave(self._key(subscriber), presence)
        return True

    def _grace_ms(self, wanted: Presence | None, presence: Presence) -> float:
        """How long a call under way may wait for its answer when delivery stops or restarts."""
        drain_ms = self._shared.settings.drain_ms
        if _elsewhere(wanted, presence):
            return 0.0
        if wanted is None and not self._stopping:
            # The subscriber's session may have ended because the call hangs: wait for the timeout.
            return max(drain_ms, presence.delivery.timeout_ms)
        return drain_ms

    async def _begin(self, subscriber: str, presence: Presence) -> bool:
        """Start delivering to a subscriber. Returns False if it has no checkpoint."""
        shared, key = self._shared, self._key(subscriber)
        try:
            known = await shared.checkpoints.read.in_loop(key)
        except HQueueError as exc:
            text = "checkpoints can't be read now: %s"
            shared.runtime.faults.met("reading checkpoints", text, exc)
            await shared.runtime.sleep_ms(PAUSE_MS)
            return True
        shared.runtime.faults.over("reading checkpoints", "checkpoints can be read again")
        if known is None:
            logger.warning(
                "a subscriber has no checkpoint, so its partition is not delivered: %s", key
            )
            return False
        if self._closed or self._wanted.get(subscriber) != presence:
            return True
        options = presence.delivery
        filter_ = SubscriptionFilter(
            subscriber, presence.topics, options.batch_messages_max, options.batch_bytes_max
        )
        sender = MessageSender(
            self.queue,
            cursor=SubscriberCursor(
                self.queue,
                filter_,
                int(known.next),
                shared=self.scanner,
                alone=self._scanner_for_one,
                runtime=shared.runtime,
            ),
            pool=shared.pools.use(key, presence),
            checkpoint=CheckpointUpdater(key, known, shared.checkpoints, shared.runtime),
            options=options,
            lease=shared.lease,
            runtime=shared.runtime,
            metrics=shared.metrics.of(key),
        )
        self._running[subscriber] = (presence, sender)
        return True

    def _scanner_for_one(self) -> MessageScanner:
        return MessageScanner(self.queue, self._opener, self._shared.runtime, self._share_bytes)


def _elsewhere(wanted: Presence | None, presence: Presence) -> bool:
    """Whether another process has replaced this one as the subscriber."""
    return wanted is not None and wanted.address != presence.address

"""Chooses the partitions of a queue for this hub's topics."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable, Mapping

from hqueue import Address, HQueueError
from hqueue.metadata import MetadataStore, Owners, PartitionKey
from hqueue.metadata.claimant import Claimant
from hqueue.metadata.managers import Hubs
from hqueue.runtime.logs import Log
from hqueue.runtime.seldom import FaultLog
from hqueue.settings.attributes import check_queue_name
from hqueue.settings.limits import PARTITIONS_MAX
from hqueue.settings.numbers import is_whole, whole_number
from hqueue_workers.node.assignment import assigned_to, claimed_by

__all__ = ["ClaimPaths", "HubPartitions"]

logger = Log(__name__)


class ClaimPaths:
    """The paths at which the hubs of a queue claim partitions."""

    def __init__(self, root: str, queue: str) -> None:
        self._queue = check_queue_name(queue)
        self.owners = f"{root}/regions/{self._queue}/claims"

    def owner(self, key: PartitionKey) -> str:
        return f"{self.owners}/partitions/{key.partition:d}"

    def partition_key(self, path: str) -> PartitionKey | None:
        kind, _, number = path[len(self.owners) + 1 :].partition("/")
        partition = whole_number(number)
        if kind != "partitions" or not is_whole(partition, 0, PARTITIONS_MAX - 1):
            return None
        return PartitionKey(self._queue, partition)


class HubPartitions:
    """The partitions that a hub has claimed. New topics go there, so that each partition has one
    writer.

    Hubs share the partitions evenly, nearest first, as workers do. If there are more hubs than
    partitions, hubs without a partition share one. Claims only serve speed: any number of hubs may
    write to a partition. So a hub gives a partition up at once, and needs no lease. Closed by
    `close`. Used by one thread, except for `choose` and `lose`.

    Args:
        store: the hub's session.
        root: the prefix of all keys.
        queue: the queue.
        count: the number of its partitions.
        hubs: the available hubs.
        me: this hub.
        hosts: the hosts of the partitions' regions.
    """

    def __init__(
        self,
        store: MetadataStore,
        root: str,
        queue: str,
        count: int,
        *,
        hubs: Hubs,
        me: Address,
        hosts: Callable[[], Mapping[int, str]],
    ) -> None:
        self._queue = queue
        self._count = count
        self._hubs = hubs
        self._me = me
        self._hosts = hosts
        self._held: tuple[int, ...] = ()
        self._faults = FaultLog(logger)
        self._owners = Owners(store, ClaimPaths(root, queue), "hub")
        self._lock = threading.Lock()
        # What is gone is looked for whenever this is settled.
        self._claimant = Claimant(self._owners, str(me), self._lock, lambda: None)

    def choose(self, topic: str) -> int:
        """The partition for a topic's messages."""
        held = self._held or (zlib.crc32(str(self._me).encode()) % self._count,)
        return held[zlib.crc32(topic.encode()) % len(held)]

    @property
    def held(self) -> tuple[int, ...]:
        """The claimed partitions."""
        return self._held

    def settle(self) -> None:
        """Claim and release partitions, according to the hubs that are available now. What fails is
        tried again later.
        """
        try:
            self._settle()
        except HQueueError as exc:
            text = "partitions of %s can't be claimed now: %s"
            self._faults.met("claims", text, self._queue, exc)
        else:
            self._faults.over("claims", "partitions of %s can be claimed again", self._queue)

    def lose(self) -> None:
        """Drop all claims, because the session was lost, and they with it."""
        with self._lock:
            self._claimant.claiming.lost()
            self._held = ()

    def close(self) -> None:
        """Stop looking after the claims, which end with the session. Never raises."""
        self._claimant.close()

    def _settle(self) -> None:
        me = str(self._me)
        hubs = {str(address): address.host for address in self._hubs.list()}
        if me not in hubs:
            return
        claimant, claiming = self._claimant, self._claimant.claiming
        claimant.look_after()
        claims = self._owners.list()
        hosts = self._hosts()
        keys = {PartitionKey(self._queue, n): hosts.get(n) for n in range(self._count)}
        with self._lock:
            owners = {**claims, **dict.fromkeys(claiming.owned, me)}
        # While that is planned no lock is held: the event loop takes it when the session is lost.
        mine = assigned_to(me, keys, hubs, owners)
        with self._lock:
            claiming.request(mine)
            claiming.doubt(claimed_by(me, claims) - claiming.held)
            steps = claiming.steps()
        try:
            claimant.carry_out(steps)
            with self._lock:
                excess = claiming.revoking
            claimant.release(excess)
        finally:
            with self._lock:
                self._held = tuple(sorted(key.partition for key in claiming.owned))

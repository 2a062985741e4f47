"""Which partitions of a queue this hub's topics go to."""

from __future__ import annotations

import logging
import zlib
from collections.abc import Callable, Mapping

from hqueue import Address, HQueueError
from hqueue.metadata import MetadataStore, Owners, PartitionKey
from hqueue.metadata.managers import Hubs
from hqueue.runtime.seldom import FaultLog
from hqueue.settings.attributes import check_queue_name
from hqueue.settings.limits import PARTITIONS_MAX
from hqueue.settings.numbers import is_whole, whole_number
from hqueue_workers.node.assignment import assign

__all__ = ["HubPartitions"]

logger = logging.getLogger(__name__)


class _ClaimPaths:
    """Where the hubs of a queue claim partitions."""

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
    """The partitions that a hub has claimed: new topics go there, so that one writer fills each.

    Hubs share the partitions evenly, nearest first, as workers do. Where there are more hubs than
    partitions, those without one share. Claims serve speed alone: any number of hubs may write to
    a partition. Used by one thread, but for `choose`.

    Args:
        store: the hub's session.
        root: what all keys begin with.
        queue: the queue.
        count: its partitions.
        hubs: which hubs are available.
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
        self._owners = Owners(store, _ClaimPaths(root, queue), "hub")
        self._queue = queue
        self._count = count
        self._hubs = hubs
        self._me = me
        self._hosts = hosts
        self._held: tuple[int, ...] = ()
        self._faults = FaultLog(logger)

    def choose(self, topic: str) -> int:
        """Where a topic's messages go."""
        held = self._held or (zlib.crc32(str(self._me).encode()) % self._count,)
        return held[zlib.crc32(topic.encode()) % len(held)]

    @property
    def held(self) -> tuple[int, ...]:
        """Those that are claimed."""
        return self._held

    def settle(self) -> None:
        """Claim and give up, by what hubs there are now. What can't be done now is done later."""
        try:
            self._settle()
        except HQueueError as exc:
            text = "partitions of %s can't be claimed now: %s"
            self._faults.met("claims", text, self._queue, exc)
        else:
            self._faults.over("claims", "partitions of %s can be claimed again", self._queue)

    def lose(self) -> None:
        """The session was lost, and all claims with it."""
        self._held = ()

    def _settle(self) -> None:
        me = str(self._me)
        hubs = {str(address): address.host for address in self._hubs.list()}
        if me not in hubs:
            return
        claims = self._owners.list()
        hosts = self._hosts()
        keys = {PartitionKey(self._queue, n): hosts.get(n) for n in range(self._count)}
        plan = assign(keys, hubs, claims)
        mine = {key for key, hub in plan.items() if hub == me}
        excess = {key for key, hub in claims.items() if hub == me} - mine
        if excess:
            self._owners.release(excess)
        claimed = self._owners.claim(me, mine) if mine else set()
        self._held = tuple(sorted(key.partition for key in claimed))

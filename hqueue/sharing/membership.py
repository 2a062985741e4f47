"""Joins a share group, and leaves it."""

from __future__ import annotations

import socket
import uuid
from collections.abc import Collection, Sequence
from functools import partial
from typing import Any

from hqueue.dead_letters.of_groups import GroupDeadLetters
from hqueue.errors import GroupActiveError, HQueueError
from hqueue.groups.kinds import SHARE, GroupKinds
from hqueue.groups.members import GroupMembers
from hqueue.groups.paths import GroupPaths
from hqueue.groups.positions import start_positions
from hqueue.handle import Cluster, QueueLog
from hqueue.metadata import Coordination, MetadataStore, PartitionKey
from hqueue.metadata.registration import Registration
from hqueue.runtime.clock import SYSTEM_CLOCK, Clock
from hqueue.runtime.logs import Log
from hqueue.runtime.program_loop import ProgramLoop
from hqueue.runtime.steps import Work
from hqueue.sharing.hands import Hands
from hqueue.sharing.partition_reading import PartitionReading
from hqueue.sharing.share_options import ShareSettings
from hqueue.sharing.shared_partition import SharedPartition

__all__ = ["ShareMembership"]

logger = Log(__name__)


class ShareMembership:
    """The membership of a consumer in its share group.

    Args:
        cluster: the cluster that has the queues.
        group: the group's name.
        queues: the queues' names.
        topics: the topics to read; all if empty.
        settings: the consumer's settings.
        loop: the event loop that the consumer belongs to; None if threads use it.
        clock: measures time.

    Raises:
        InvalidInputError: the group's name is not valid.
    """

    def __init__(
        self,
        cluster: Cluster,
        group: str,
        queues: Sequence[str],
        topics: Collection[str],
        settings: ShareSettings,
        *,
        loop: ProgramLoop | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        root, broker = cluster.settings.zookeeper_root, cluster.settings.broker_id
        self.consumer_id = f"{socket.gethostname()}:{uuid.uuid4()}"
        """The consumer's ID, which no other consumer has."""
        self.logs: dict[str, QueueLog] = {}
        """The queues' logs, once the consumer has joined."""
        self.operation_timeout_ms = cluster.settings.operation_timeout_ms
        self._paths = GroupPaths(root, group, broker)
        self._cluster = cluster
        self.group = group
        self._queues = queues
        self._topics = topics
        self.settings = settings
        self.clock = clock
        self._loop = loop
        self._coordination: Coordination | None = None
        self._registration: Registration | None = None

    @property
    def store(self) -> MetadataStore:
        """The store that has the group's records. The consumer has joined."""
        assert self._coordination is not None
        return self._coordination.store

    def join(self) -> Work[Any, dict[PartitionKey, Hands]]:
        """Join the group. Returns the partitions that the consumer consumes. After a failure it can
        be called again.

        Raises:
            QueueNotFoundError: one of the queues does not exist.
            GroupActiveError: the name belongs to a consumer group, which has offsets.
            SettingsError: another cluster has registered the ``broker_id``.
            StoreUnavailableError: HBase or ZooKeeper was unavailable.
        """
        for queue in self._queues:
            self.logs[queue] = yield self._cluster.log.asked(queue)
        if self._coordination is None:
            self._coordination = self._cluster.coordinate(self._loop)
        coordination = self._coordination
        own = self._cluster.cluster_id.asked()
        yield coordination.brokers.check.asked(self._cluster.settings.broker_id, own)
        registration = self._registration
        if registration is None:
            members = GroupMembers(coordination.store, self._paths, self.clock)
            streams = dict.fromkeys(self._queues, 1)
            registration = members.registration(self.consumer_id, streams, _on_failure, shares=True)
            yield registration.begin.asked()
            self._registration = registration
        try:
            yield GroupKinds(coordination.store, self._paths).check.asked(SHARE)
        except GroupActiveError:
            self._registration = None
            yield registration.close.asked()
            raise
        return {
            key: each for log in self.logs.values() for key, each in self._hands_of(log).items()
        }

    def look_at_queues(self) -> Work[Any, dict[str, dict[PartitionKey, Hands]]]:
        """Look whether queues were created again with another number of partitions. The consumer
        has joined. Returns the partitions of these queues, which replace the earlier ones, by the
        queues' names. A queue that can't be read now counts as unchanged. The master is not asked
        unless a number has changed: consumers go on without it.
        """
        changed: dict[str, QueueLog] = {}
        for queue, before in self.logs.items():
            try:
                partitions = yield self._cluster.recorded_partitions.asked(queue)
                if partitions not in (None, before.partitions):
                    changed[queue] = yield self._cluster.log.asked(queue)
            except HQueueError as exc:
                logger.debug("the partitions of %s can't be counted now: %s", queue, exc)
        self.logs |= changed
        return {queue: self._hands_of(log) for queue, log in changed.items()}

    def leave(self) -> Work[Any, None]:
        """Leave the group, and end the session with the store."""
        registration, self._registration = self._registration, None
        if registration is not None:
            yield registration.close.asked()
        coordination, self._coordination = self._coordination, None
        if coordination is not None:
            yield coordination.close.asked()

    def _hands_of(self, log: QueueLog) -> dict[PartitionKey, Hands]:
        keys = [PartitionKey(log.name, number) for number in range(log.partitions)]
        return {key: self._new_hands(self.store, log, key) for key in keys}

    def _new_hands(self, store: MetadataStore, log: QueueLog, key: PartitionKey) -> Hands:
        settings = self.settings
        letters = GroupDeadLetters(log, self.group)
        reading = PartitionReading(
            log, key.partition, self._topics, letters, by_key=settings.ordered_by_key
        )
        shared = SharedPartition(
            store,
            self._paths.share(key),
            reading,
            holder=self.consumer_id,
            lock_ms=settings.lock_ms,
            begin=partial(self._start, log, key.partition),
            deadline=log.deadline,
            clock=self.clock,
        )
        return Hands(shared, letters, settings.lock_ms, self.clock.monotonic_ms)

    def _start(self, log: QueueLog, partition: int) -> Work[Any, int]:
        found = yield from start_positions(log, self.settings.start, [partition])
        return int(found[partition].next)


def _on_failure(error: HQueueError) -> None:
    logger.warning("a share consumer is no longer listed among its group's members: %s", error)

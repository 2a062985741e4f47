"""The registered HQueue clusters and their queues, in the place of Kafka's brokers and topics."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from hqueue.errors import SettingsError
from hqueue.metadata.directory import Directory
from hqueue.metadata.encoding import (
    decode_broker,
    decode_broker_queue,
    encode_broker,
    encode_broker_queue,
)
from hqueue.metadata.own_keys import OwnKeys
from hqueue.metadata.paths import Paths
from hqueue.metadata.ports import ANY, MetadataStore, Record, Watch
from hqueue.metadata.records import BrokerRecord
from hqueue.metadata.steps import Claim, Delete, OnStore, Read, Release, Wait, Work
from hqueue.runtime.stepwise import stepwise
from hqueue.settings.numbers import whole_number

__all__ = ["BrokerGuard", "Brokers"]

BROKER_DEPTH = 1
QUEUE_DEPTH = 2


class Brokers(OnStore):
    """The registered HQueue clusters by their logical IDs, and their queues. Thread-safe.

    A worker's session registers both, and they end with it. Any worker of a cluster may register
    it, one at a time. After a session was lost, a registration is not made again by itself.

    Kafka's records were a bare ``host:port`` and a bare number. These records are JSON with a
    version, as all records of hqueue, so a field that must not be ignored can be added: a release
    that does not know it refuses the record. The cluster's ID is such a field. Without it, two
    clusters with the same logical ID would overwrite the offsets of each other's groups.
    """

    def __init__(self, store: MetadataStore, paths: Paths) -> None:
        super().__init__(store)
        self._paths = paths
        self._brokers = Directory(store, paths.brokers, BROKER_DEPTH, self._decode, "a broker")
        self._queues = Directory(
            store, paths.broker_queues, QUEUE_DEPTH, self._decode_queue, "a broker's queue"
        )

    @stepwise
    def claim(self, broker: int, record: BrokerRecord) -> Work[bool]:
        """Register a cluster, if no session has. Returns whether this session has it now."""
        path = self._paths.broker(broker)
        return path in (yield Claim({path: encode_broker(record)}))

    @stepwise
    def release(self, broker: int) -> Work[None]:
        """Remove this session's registration of a cluster, if there is one."""
        yield Release([self._paths.broker(broker)])

    @stepwise
    def check(self, broker: int, cluster: str | Wait) -> Work[None]:
        """Check that no other cluster has registered this ID.

        Args:
            broker: the ID.
            cluster: the caller's own cluster ID, or a request for it, which is made only if a
                cluster has registered this ID.

        Raises:
            SettingsError: another cluster has registered it.
            UnsupportedFormatError: there is a record that this release does not know.
        """
        path = self._paths.broker(broker)
        found = (yield Read([path])).get(path)
        if found is None:
            return
        registered = decode_broker(found.value, path)
        own = cluster if isinstance(cluster, str) else (yield cluster)
        if registered.cluster != own:
            raise SettingsError(
                "another HBase cluster has registered this broker_id; give each cluster below one"
                " zookeeper_root a broker_id of its own, or a root of its own",
                broker_id=broker,
                registered_cluster=registered.cluster,
                registered_by=str(registered.address),
                own_cluster=own,
                path=path,
            )

    @stepwise
    def claim_queues(self, broker: int, partitions: Mapping[str, int]) -> Work[set[str]]:
        """Register queues with their numbers of partitions. Returns the queues that this session
        has registered now, including earlier ones with any number.
        """
        wanted = {self._paths.broker_queue(queue, broker): queue for queue in partitions}
        claimed = yield Claim(
            {path: encode_broker_queue(partitions[queue]) for path, queue in wanted.items()}
        )
        return {wanted[path] for path in claimed}

    @stepwise
    def release_queues(self, broker: int, queues: Collection[str]) -> Work[None]:
        """Remove this session's registrations of queues. Missing ones count as removed."""
        paths = [self._paths.broker_queue(queue, broker) for queue in queues]
        yield Release(paths)
        # A queue's node that still has other brokers' registrations below it stays.
        yield Delete({path.rpartition("/")[0]: ANY for path in paths})

    def guard(
        self, broker: int, record: BrokerRecord, on_change: Callable[[], None]
    ) -> BrokerGuard:
        """Detect which of this session's registrations of a cluster are gone.

        Args:
            broker, record: as `claim` takes them.
            on_change: as `OwnKeys` takes it.
        """
        return BrokerGuard(OwnKeys(self._store, on_change), self._paths, broker, record)

    @stepwise
    def list(self) -> Work[Mapping[int, BrokerRecord]]:
        """The registered clusters, by ID."""
        return (yield from self._brokers.list())

    @stepwise
    def list_queues(self) -> Work[Mapping[tuple[str, int], int]]:
        """The number of partitions of every registered queue, by its name and its cluster's ID."""
        return (yield from self._queues.list())

    def watch(self, listener: Callable[[Mapping[int, BrokerRecord]], None]) -> Watch:
        """Report the registered clusters to a listener, as `MetadataStore.watch`."""
        return self._brokers.watch(listener)

    def watch_queues(self, listener: Callable[[Mapping[tuple[str, int], int]], None]) -> Watch:
        """Report the registered queues to a listener, as `MetadataStore.watch`."""
        return self._queues.watch(listener)

    @staticmethod
    def _decode(path: str, found: Mapping[str, Record]) -> tuple[int, BrokerRecord] | None:
        broker = whole_number(path.rpartition("/")[2])
        return None if broker is None else (broker, decode_broker(found[path].value, path))

    @staticmethod
    def _decode_queue(path: str, found: Mapping[str, Record]) -> tuple[tuple[str, int], int] | None:
        queue, name = path.split("/")[-2:]
        broker = whole_number(name)
        if broker is None:
            return None
        return (queue, broker), decode_broker_queue(found[path].value, path)


class BrokerGuard(OnStore):
    """Finds registrations of a cluster that another client removed although the session lives. Made
    by `Brokers.guard`. Thread-safe.
    """

    def __init__(self, own: OwnKeys, paths: Paths, broker: int, record: BrokerRecord) -> None:
        super().__init__(own.store)
        self._own = own
        self._paths = paths
        self._broker = broker
        self._record = record

    @stepwise
    def lost(self, partitions: Mapping[str, int]) -> Work[tuple[bool, set[str]]]:
        """Whether this session's registration of the cluster is gone, and which of these queues'
        registrations are. Records that another client overwrote are restored.

        Args:
            partitions: as `Brokers.claim_queues` took them.

        Raises:
            HQueueError: the store can't be read now.
        """
        queues = {self._paths.broker_queue(queue, self._broker): queue for queue in partitions}
        cluster = self._paths.broker(self._broker)
        values = {path: encode_broker_queue(partitions[queue]) for path, queue in queues.items()}
        missing = yield from self._own.missing({cluster: encode_broker(self._record), **values})
        return cluster in missing, {queues[path] for path in missing - {cluster}}

    def close(self) -> None:
        """Stop reporting. Never raises."""
        self._own.close()

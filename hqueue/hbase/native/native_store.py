"""HBase as a store, spoken to directly: region servers, the master, and who names both."""

from __future__ import annotations

from hqueue.format import rowkey
from hqueue.hbase.native.appends import TableAppends
from hqueue.hbase.native.async_servers import AsyncServers
from hqueue.hbase.native.cluster_question import ClusterQuestion
from hqueue.hbase.native.delegation_tokens import DelegationTokens
from hqueue.hbase.native.exchanges import Asking
from hqueue.hbase.native.faces import Via
from hqueue.hbase.native.masters_registry import MastersRegistry
from hqueue.hbase.native.opening import Opener, Route, direct
from hqueue.hbase.native.reads import TableReads
from hqueue.hbase.native.record_table import RecordTable
from hqueue.hbase.native.regions import Meta, RegionMap
from hqueue.hbase.native.registry import Registry
from hqueue.hbase.native.security import Security
from hqueue.hbase.native.servers import Servers
from hqueue.hbase.native.sizes import RegionSizes
from hqueue.hbase.native.snapshots import Snapshots
from hqueue.hbase.native.tables import Tables
from hqueue.hbase.native.zookeeper_registry import ReadNode, ZooKeeperRegistry
from hqueue.hbase.row_records import RowRecords
from hqueue.log.table_ports import PartitionLocation
from hqueue.runtime.clock import SYSTEM_CLOCK, Clock, Deadline
from hqueue.runtime.stepwise import OnPorts, stepwise
from hqueue.settings.addresses import Address
from hqueue.settings.connection import Settings

__all__ = ["NativeStore", "open_registry"]


def open_registry(settings: Settings, read_node: ReadNode) -> Registry:
    """What names the cluster's servers, by the settings: its masters, or ZooKeeper."""
    if settings.hbase_masters:
        return MastersRegistry(settings, settings.hbase_masters)
    return ZooKeeperRegistry(read_node, settings.hbase_znode_parent)


class TableLog(TableAppends[Via], TableReads[Via]):
    """The store's `LogPort` on one table, or its `AsyncLogPort`. Thread-safe."""


class PartitionLocations(OnPorts):
    """The store's `LocationPort`: what ``hbase:meta`` says now. Thread-safe.

    Args:
        servers, async_servers: region servers.
        meta: reads it.
        clock: where time comes from.
    """

    def __init__(
        self, servers: Servers, async_servers: AsyncServers, meta: Meta, clock: Clock
    ) -> None:
        super().__init__(servers, async_servers, clock)
        self._meta = meta

    @stepwise
    def locate(self, queue: str, partitions: int) -> Asking[list[PartitionLocation]]:
        """Like `LocationPort.locate`."""
        found = yield from self._meta.read(queue)
        found.check()
        located = []
        for partition in range(partitions):
            host, port = found.of(rowkey.first_of(partition)).address
            located.append(PartitionLocation(partition, host, port))
        return located


class NativeStore(OnPorts):
    """The `StorePort` on HBase itself. Connects when it is first used.

    Args:
        settings: the bounds.
        read_node: reads ZooKeeper's nodes, to find HBase's servers where no masters are given.
        clock: where time comes from.
        route: where servers are reached.
    """

    def __init__(
        self,
        settings: Settings,
        read_node: ReadNode,
        clock: Clock = SYSTEM_CLOCK,
        route: Route = direct,
    ) -> None:
        self._settings = settings
        self._registry = open_registry(settings, read_node)
        # As a registry masters answer only after a client has proved itself.
        asked = ClusterQuestion(settings, route).ask
        security = Security.of(
            settings, asked if settings.hbase_masters else self._registry.cluster_id
        )
        opener = Opener(security, route)
        self._servers = Servers(settings, opener.open)
        self._async_servers = AsyncServers(settings, opener.open_in_loop)
        self._meta = Meta(self._registry)
        both = self._servers, self._async_servers
        super().__init__(*both, clock)
        self.tables = Tables(*both, self._registry, clock)
        self.locations = PartitionLocations(*both, self._meta, clock)
        self.sizes = RegionSizes(*both, self._meta, clock)
        self.snapshots = Snapshots(*both, self._registry, clock)
        self.tokens = DelegationTokens(*both, self._registry, security, clock)
        table = settings.metadata_table
        rows = RecordTable(*both, table, self._regions(table), self.tables, clock=clock)
        self._fields = RowRecords(rows, clock, settings.operation_timeout_ms)

    @stepwise
    def cluster_id(self) -> Asking[str]:
        """Like `StorePort.cluster_id`: HBase's own, a UUID."""

        def ask() -> Asking[str]:
            self._servers.check_open()
            return (yield from self._registry.cluster_id())

        deadline = Deadline(self._clock, self._settings.operation_timeout_ms)
        return (yield from deadline.bound(deadline.insist(ask)))

    @stepwise
    def first_servers(self) -> Asking[tuple[Address, Address]]:
        """The active master, and the region server that has ``hbase:meta``, as the cluster names
        them.

        Raises:
            StoreUnavailableError: nothing named them within the operation's bound.
            RequestRefusedError: what names them does not let this client in.
        """

        def ask() -> Asking[tuple[Address, Address]]:
            self._servers.check_open()
            return (yield from self._registry.master()), (yield from self._registry.meta())

        deadline = Deadline(self._clock, self._settings.operation_timeout_ms)
        return (yield from deadline.bound(deadline.insist(ask)))

    def log(self, queue: str) -> TableLog[Servers]:
        """Like `StorePort.log`."""
        return TableLog(self._servers, queue, self._regions(queue), self._clock)

    def async_log(self, queue: str) -> TableLog[AsyncServers]:
        """Like `StorePort.async_log`: each loop has connections of its own."""
        return TableLog(self._async_servers, queue, self._regions(queue), self._clock)

    def fields(self) -> RowRecords:
        """Like `StorePort.fields`: rows of ``metadata_table``, which is created if it is
        missing.
        """
        return self._fields

    def _regions(self, table: str) -> RegionMap:
        return RegionMap(self._meta, table, self._settings.request_timeout_ms)

    def close(self) -> None:
        """Like `StorePort.close`."""
        self._fields.close()
        self._servers.close()
        self._async_servers.close()

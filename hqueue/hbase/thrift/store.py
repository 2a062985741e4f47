"""HBase as a store, reached through its Thrift gateways."""

from __future__ import annotations

from hqueue.hbase.thrift.appends import TableAppends
from hqueue.hbase.thrift.gateways import Gateways
from hqueue.hbase.thrift.locations import Locations, PartitionLocations
from hqueue.hbase.thrift.reads import TableReads
from hqueue.hbase.thrift.tables import Tables
from hqueue.runtime.clock import SYSTEM_CLOCK, Clock
from hqueue.settings.connection import Settings

__all__ = ["GatewayStore"]


class TableLog(TableAppends, TableReads):
    """The store's `LogPort` on one table. Thread-safe."""


class GatewayStore:
    """The `StorePort` behind Thrift gateways. Connects when it is first used.

    Args:
        settings: where the gateways are, and the bounds.
        clock: where time comes from.
    """

    def __init__(self, settings: Settings, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._gateways = Gateways(settings, clock)
        self.tables = Tables(self._gateways, clock)
        self.locations = PartitionLocations(self._gateways)

    def log(self, queue: str) -> TableLog:
        """As `StorePort.log`."""
        locations = Locations(self._gateways, queue, self._clock)
        return TableLog(self._gateways, queue, locations, self._clock)

    def close(self) -> None:
        """As `StorePort.close`."""
        self._gateways.close()

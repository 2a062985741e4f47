"""HBase as a store, reached through its Thrift gateways."""

from __future__ import annotations

from functools import partial
from typing import Any

from hqueue.hbase.row_records import RowRecords
from hqueue.hbase.thrift.appends import TableAppends
from hqueue.hbase.thrift.connection import Service
from hqueue.hbase.thrift.gateways import Gateways
from hqueue.hbase.thrift.locations import Locations, PartitionLocations
from hqueue.hbase.thrift.reads import TableReads
from hqueue.hbase.thrift.record_table import RecordTable
from hqueue.hbase.thrift.tables import Tables
from hqueue.hbase.thrift.translation import present, reads_answer
from hqueue.log.in_threads import LogInThreads
from hqueue.runtime.clock import SYSTEM_CLOCK, Clock, Deadline
from hqueue.runtime.steps import Work
from hqueue.runtime.stepwise import Stepwise, stepwise
from hqueue.settings.connection import Settings

__all__ = ["GatewayStore"]


class TableLog(TableAppends, TableReads):
    """The store's `LogPort` on one table. Thread-safe."""


class GatewayStore(Stepwise):
    """The `StorePort` behind Thrift gateways. Connects when it is first used.

    Args:
        settings: where the gateways are, and the bounds.
        clock: where time comes from.
    """

    tokens = None
    snapshots = None
    sizes = None

    def __init__(self, settings: Settings, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._gateways = Gateways(settings, clock)
        self.tables = Tables(self._gateways, clock)
        self.locations = PartitionLocations(self._gateways)
        table = settings.metadata_table
        rows = RecordTable(
            self._gateways, table, Locations(self._gateways, table, clock), self.tables, clock
        )
        self._fields = RowRecords(rows, clock, settings.operation_timeout_ms)

    @stepwise
    def cluster_id(self) -> Work[Any, str]:
        """Like `StorePort.cluster_id`: HBase's own, a UUID. A thread asks for an event loop."""
        deadline = Deadline(self._clock, self._gateways.settings.operation_timeout_ms)
        found: str = yield self._gateways.blocking(partial(deadline.run, self._cluster_id))
        return found

    def log(self, queue: str) -> TableLog:
        """Like `StorePort.log`."""
        locations = Locations(self._gateways, queue, self._clock)
        return TableLog(self._gateways, queue, locations, self._clock)

    def async_log(self, queue: str) -> LogInThreads:
        """Like `StorePort.async_log`: threads make the requests."""
        return LogInThreads(self.log(queue), self._gateways.in_thread)

    def fields(self) -> RowRecords:
        """Like `StorePort.fields`: rows of ``metadata_table``, which is created if it is
        missing.
        """
        return self._fields

    def close(self) -> None:
        """Like `StorePort.close`."""
        self._fields.close()
        self._gateways.close()

    @reads_answer
    def _cluster_id(self) -> str:
        answer = present(self._gateways.call(Service.THRIFT2, "getClusterId", ""))
        return answer.decode() if isinstance(answer, bytes) else str(answer)

"""The table of topics' metadata: its rows as `RowRecords` need them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from hqueue.errors import HQueueError, QueueNotFoundError, StoreUnavailableError
from hqueue.hbase.native.async_servers import AsyncServers
from hqueue.hbase.native.cells import Cell
from hqueue.hbase.native.exchanges import Asking
from hqueue.hbase.native.protocol import pb
from hqueue.hbase.native.regions import RegionMap
from hqueue.hbase.native.requests import deletion
from hqueue.hbase.native.servers import Servers
from hqueue.hbase.native.tables import Tables
from hqueue.hbase.native.updates import TableUpdates
from hqueue.hbase.record_cells import HISTORY, RECORD, Cells
from hqueue.hbase.record_rows import Answer, RowUpdate
from hqueue.runtime.clock import Clock
from hqueue.runtime.steps import Work
from hqueue.runtime.stepwise import OnPorts, stepwise

__all__ = ["RecordTable"]

READ_TOGETHER = 128
"""Rows of a request that reads: they may be large."""

_RECORD = [pb.Column(family=RECORD)]
_ALL = [*_RECORD, pb.Column(family=HISTORY)]


class RecordTable(TableUpdates[Servers], OnPorts):
    """The `RowPort` on one table. Thread-safe, and usable in a forked child.

    Args:
        servers, async_servers: region servers.
        table: the table's name.
        regions: where its regions are.
        tables: creates it.
        clock: where time comes from.
    """

    def __init__(
        self,
        servers: Servers,
        async_servers: AsyncServers,
        table: str,
        regions: RegionMap,
        tables: Tables,
        *,
        clock: Clock,
    ) -> None:
        TableUpdates.__init__(self, servers, table, regions)
        OnPorts.__init__(self, servers, async_servers, clock)
        self._tables = tables
        self._prepared = False

    @stepwise
    def prepare(self) -> Work[Any, None]:
        """Like `RowPort.prepare`."""
        if not self._prepared:
            yield from self._tables.ensure_records.steps(self._table)
            self._prepared = True

    @stepwise
    def exists(self) -> Work[Any, bool]:
        """Like `RowPort.exists`."""
        return self._prepared or (yield from self._tables.has_records.steps(self._table))

    @stepwise
    def read(
        self, keys: Sequence[bytes], *, history: bool = False
    ) -> Asking[list[tuple[bytes, Cells]]]:
        """Like `RowPort.read`."""
        if not keys:
            return []
        with self._present():
            columns = _ALL if history else _RECORD
            found = yield from self._get_all(keys, columns, READ_TOGETHER)
        return [(key, _cells(cells)) for key, cells in zip(keys, found, strict=True) if cells]

    @stepwise
    def scan(self, first: bytes, beyond: bytes, limit: int) -> Asking[list[tuple[bytes, Cells]]]:
        """Like `RowPort.scan`."""
        with self._present():
            found = yield from self._scan_on(first, beyond, _RECORD, limit)
        return [(cells[0].row, _cells(cells)) for cells in found]

    @stepwise
    def update(self, updates: Sequence[RowUpdate]) -> Asking[list[Answer | HQueueError]]:
        """Like `RowPort.update`."""
        found = yield from self.updating(updates)
        return [
            self._gone(each) if isinstance(each, QueueNotFoundError) else each for each in found
        ]

    @stepwise
    def delete(self, keys: Sequence[bytes]) -> Asking[None]:
        """Like `RowPort.delete`."""
        with self._present():
            yield from self._delete_all([deletion(key) for key in keys])

    def close(self) -> None:
        """Nothing: the servers are the store's."""

    @contextlib.contextmanager
    def _present(self) -> Iterator[None]:
        try:
            yield
        except QueueNotFoundError as exc:
            raise self._gone(exc) from exc

    def _gone(self, error: QueueNotFoundError) -> StoreUnavailableError:
        """The table was dropped: the next try creates it."""
        self._prepared = False
        gone = StoreUnavailableError(
            "the table of topics' metadata is gone",
            outcome=error.outcome,
            table=self._table,
        )
        gone.__cause__ = error
        return gone


def _cells(cells: Sequence[Cell]) -> Cells:
    return {cell.family + b":" + cell.qualifier: bytes(cell.value) for cell in cells}

"""The table of topics' metadata: its rows as `RowRecords` need them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from hqueue.errors import HQueueError, QueueNotFoundError, StoreUnavailableError
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

__all__ = ["RecordTable"]

READ_TOGETHER = 128
"""Rows of a request that reads: they may be large."""

_RECORD = [pb.Column(family=RECORD)]
_ALL = [*_RECORD, pb.Column(family=HISTORY)]


class RecordTable(TableUpdates[Servers]):
    """The `RowPort` on one table. Thread-safe, and usable in a forked child.

    Args:
        servers: to region servers.
        table: the table's name.
        regions: where its regions are.
        tables: creates it.
    """

    def __init__(self, servers: Servers, table: str, regions: RegionMap, tables: Tables) -> None:
        super().__init__(servers, table, regions)
        self._tables = tables
        self._prepared = False

    def prepare(self) -> None:
        if not self._prepared:
            self._tables.ensure_records(self._table)
            self._prepared = True

    def exists(self) -> bool:
        return self._prepared or self._tables.has_records(self._table)

    def read(self, keys: Sequence[bytes], *, history: bool = False) -> list[tuple[bytes, Cells]]:
        if not keys:
            return []
        with self._present():
            columns = _ALL if history else _RECORD
            found = self.servers.carry_out(self._get_all(keys, columns, READ_TOGETHER))
        return [(key, _cells(cells)) for key, cells in zip(keys, found, strict=True) if cells]

    def scan(self, first: bytes, beyond: bytes, limit: int) -> list[tuple[bytes, Cells]]:
        with self._present():
            found = self.servers.carry_out(self._scan_on(first, beyond, _RECORD, limit))
        return [(cells[0].row, _cells(cells)) for cells in found]

    def _update(self, updates: Sequence[RowUpdate]) -> Asking[list[Answer | HQueueError]]:
        found = yield from super()._update(updates)
        return [
            self._gone(each) if isinstance(each, QueueNotFoundError) else each for each in found
        ]

    def delete(self, keys: Sequence[bytes]) -> None:
        with self._present():
            self.servers.carry_out(self._delete_all([deletion(key) for key in keys]))

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

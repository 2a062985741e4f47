"""The table of topics' metadata: its rows as `RowRecords` need them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from hqueue.errors import Outcome, QueueNotFoundError, StoreUnavailableError
from hqueue.hbase.native.cells import Cell
from hqueue.hbase.native.protocol import pb
from hqueue.hbase.native.regions import RegionMap
from hqueue.hbase.native.requests import TableRequests, deletion, has_value
from hqueue.hbase.native.servers import Servers
from hqueue.hbase.native.tables import Tables
from hqueue.hbase.record_cells import HISTORY, RECORD, VERSION, Cells

__all__ = ["RecordTable"]

_RECORD = [pb.Column(family=RECORD)]
_ALL = [*_RECORD, pb.Column(family=HISTORY)]


class RecordTable(TableRequests):
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
            found = self._get_all(keys, _ALL if history else _RECORD)
        return [(key, _cells(cells)) for key, cells in zip(keys, found, strict=True) if cells]

    def scan(self, first: bytes, beyond: bytes, limit: int) -> list[tuple[bytes, Cells]]:
        with self._present():
            found = self._scan_on(first, beyond, _RECORD, limit)
        return [(cells[0].row, _cells(cells)) for cells in found]

    def check_and_put(self, key: bytes, version: bytes | None, cells: Cells) -> bool:
        values = [(*_split(column), value) for column, value in cells.items()]
        with self._present():
            return self._put(key, values, _has_version(key, version))

    def check_and_delete(self, key: bytes, version: bytes) -> bool:
        with self._present():
            return self._delete(key, deletion(key), _has_version(key, version))

    def delete(self, keys: Sequence[bytes]) -> None:
        with self._present():
            self._delete_all([deletion(key) for key in keys])

    @contextlib.contextmanager
    def _present(self) -> Iterator[None]:
        try:
            yield
        except QueueNotFoundError as exc:
            self._prepared = False  # It was dropped: the next try creates it.
            raise StoreUnavailableError(
                "the table of topics' metadata is gone",
                outcome=Outcome.NOT_APPLIED,
                table=self._table,
            ) from exc


def _split(column: bytes) -> tuple[bytes, bytes]:
    family, _, qualifier = column.partition(b":")
    return family, qualifier


def _has_version(key: bytes, version: bytes | None) -> Any:
    return has_value(key, _split(VERSION), version)


def _cells(cells: Sequence[Cell]) -> Cells:
    return {cell.family + b":" + cell.qualifier: bytes(cell.value) for cell in cells}

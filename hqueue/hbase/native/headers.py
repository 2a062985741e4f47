"""Reading headers alone."""

from __future__ import annotations

from collections.abc import Sequence

from hqueue.format import rowkey
from hqueue.hbase.native.cells import Cell
from hqueue.hbase.native.exchanges import Asking
from hqueue.hbase.native.faces import Via, carried_out
from hqueue.hbase.native.protocol import pb
from hqueue.hbase.native.requests import TableRequests
from hqueue.hbase.native.scanning import Range
from hqueue.hbase.schema import BATCH, LOG
from hqueue.log.ports import Row

__all__ = ["HEADER", "TableHeaders"]

HEADER = pb.Column(family=LOG, qualifier=[BATCH])


class TableHeaders(TableRequests[Via]):
    """The log's `HeaderPort` on one table. Thread-safe."""

    @carried_out
    def newest(self, partition: int, at_or_below: int) -> Asking[Row | None]:
        rows = yield from self._backwards(partition, at_or_below, 1)
        return rows[0] if rows else None

    @carried_out
    def backwards(self, partition: int, at_or_below: int, limit: int) -> Asking[list[Row]]:
        return (yield from self._backwards(partition, at_or_below, limit))

    @carried_out
    def headers(self, partition: int, start: int, limit: int) -> Asking[list[Row]]:
        rows = Range(rowkey.encode(partition, start), rowkey.first_of(partition + 1))
        return (yield from self._headers(partition, rows, limit))

    @carried_out
    def header(self, partition: int, slot: int) -> Asking[bytes | None]:
        cells = yield from self._get(rowkey.encode(partition, slot), [HEADER])
        return bytes(cells[0].value) if cells else None

    def _backwards(self, partition: int, at_or_below: int, limit: int) -> Asking[list[Row]]:
        rows = Range(rowkey.encode(partition, at_or_below), rowkey.before_first_of(partition), True)
        return (yield from self._headers(partition, rows, limit))

    def _headers(self, partition: int, rows: Range, limit: int) -> Asking[list[Row]]:
        found = yield from self._scan(partition, rows, [HEADER], limit)
        return [_row(cells) for cells in found]


def _row(cells: Sequence[Cell]) -> Row:
    key = cells[0].row
    return Row(key, *rowkey.decode(key), bytes(cells[0].value), {})

"""Reading rows of a queue's table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from hqueue.errors import CorruptLogError, StoreUnavailableError
from hqueue.format import rowkey
from hqueue.hbase.native.cells import Cell
from hqueue.hbase.native.headers import HEADER, TableHeaders
from hqueue.hbase.native.protocol import pb
from hqueue.hbase.native.scanning import Range
from hqueue.hbase.schema import LOG, MESSAGE
from hqueue.log.ports import Row, RowStream
from hqueue.message import topic_bytes

__all__ = ["TableReads"]


class TableReads(TableHeaders):
    """The log's `ReadPort` on one table. Thread-safe."""

    def get(self, slots: Sequence[tuple[int, int]], topics: Iterable[str] | None) -> list[Row]:
        keys = [rowkey.encode(partition, slot) for partition, slot in slots]
        found = self._servers.carry_out(self._get_all(keys, _columns(topics)))
        return [_row(cells) for cells in found if cells]

    def open(
        self, partition: int, start: int, stop: int, topics: Iterable[str] | None
    ) -> RowStream:
        rows = Range(rowkey.encode(partition, start), rowkey.encode(partition, stop))
        return _Stream(self, partition, rows, _columns(topics))

    def read_range(
        self, partition: int, rows: Range, columns: Sequence[Any], limit: int
    ) -> list[Row]:
        """The first rows of a range of one partition."""
        found = self._servers.carry_out(self._scan(partition, rows, columns, limit))
        return [_row(cells) for cells in found]


class _Stream:
    """A scan that is a request of its own each time: nothing is open between two."""

    def __init__(
        self, reads: TableReads, partition: int, rows: Range, columns: Sequence[Any]
    ) -> None:
        self._reads = reads
        self._partition = partition
        self._range = rows
        self._columns = columns
        self._closed = False

    def read(self, rows: int) -> list[Row]:
        if self._closed:
            raise StoreUnavailableError("the scan is gone")
        found = self._reads.read_range(self._partition, self._range, self._columns, rows)
        if found:
            self._range = self._range._replace(start=found[-1].key + b"\0")
        return found

    def close(self) -> None:
        self._closed = True


def _columns(topics: Iterable[str] | None) -> list[Any]:
    if topics is None:
        return [HEADER, pb.Column(family=MESSAGE)]
    qualifiers = [topic_bytes(topic) for topic in sorted(topics)]
    # A family without qualifiers would be all of it.
    return [HEADER, pb.Column(family=MESSAGE, qualifier=qualifiers)] if qualifiers else [HEADER]


def _row(cells: Sequence[Cell]) -> Row:
    key = cells[0].row
    header = None
    bodies = {}
    for cell in cells:
        if cell.family == LOG:
            header = bytes(cell.value)
        else:
            bodies[_topic(cell)] = bytes(cell.value)
    return Row(key, *rowkey.decode(key), header, bodies)


def _topic(cell: Cell) -> str:
    try:
        return cell.qualifier.decode()
    except UnicodeDecodeError as exc:
        raise CorruptLogError("a topic is no UTF-8", row=cell.row.hex()) from exc

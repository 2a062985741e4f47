"""Reading rows of a queue's table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from hqueue.errors import CorruptLogError, Outcome, StoreUnavailableError
from hqueue.format import rowkey
from hqueue.hbase.native.cells import Cell
from hqueue.hbase.native.exchanges import Asking
from hqueue.hbase.native.faces import Asker, Via, carried_out
from hqueue.hbase.native.headers import HEADER, TableHeaders
from hqueue.hbase.native.protocol import pb
from hqueue.hbase.native.scanning import Range
from hqueue.hbase.schema import LOG, MESSAGE
from hqueue.log.ports import Row
from hqueue.message import topic_bytes

__all__ = ["TableReads"]


class TableReads(TableHeaders[Via]):
    """The log's `ReadPort` on one table. Thread-safe."""

    @carried_out
    def get(
        self, slots: Sequence[tuple[int, int]], topics: Iterable[str] | None
    ) -> Asking[list[Row]]:
        keys = [rowkey.encode(partition, slot) for partition, slot in slots]
        found = yield from self._get_all(keys, _columns(topics))
        return [_row(cells) for cells in found if cells]

    @carried_out
    def open(
        self, partition: int, start: int, stop: int, topics: Iterable[str] | None
    ) -> Asking[Any]:  # A `Stream` by way of the same servers: a decorator can't say so.
        rows = Range(rowkey.encode(partition, start), rowkey.encode(partition, stop))
        return Stream(self.servers, partial(self._read, partition, _columns(topics)), rows)
        yield

    def _read(
        self, partition: int, columns: Sequence[Any], rows: Range, limit: int
    ) -> Asking[list[Row]]:
        found = yield from self._scan(partition, rows, columns, limit)
        return [_row(cells) for cells in found]


class Stream(Asker[Via]):
    """The log's `RowStream`: a scan that is a request of its own each time, with nothing open
    between two.

    Args:
        servers: to region servers; see `Asker`.
        read: reads the first rows of a range.
        rows: the range.
    """

    def __init__(
        self, servers: Via, read: Callable[[Range, int], Asking[list[Row]]], rows: Range
    ) -> None:
        super().__init__(servers)
        self._read = read
        self._range = rows
        self._closed = False

    @carried_out
    def read(self, rows: int) -> Asking[list[Row]]:
        if self._closed:
            raise StoreUnavailableError(
                "the scan was closed or interrupted", outcome=Outcome.NOT_APPLIED
            )
        found = yield from self._read(self._range, rows)
        if found:
            self._range = self._range._replace(start=found[-1].key + b"\0")
        return found

    @carried_out
    def close(self) -> Asking[None]:
        self._closed = True
        yield from ()


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
        raise CorruptLogError("a topic is not UTF-8", row=cell.row.hex()) from exc

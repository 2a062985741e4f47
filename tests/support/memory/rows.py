"""Rows in memory, as a table of HBase keeps them."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from hqueue.format import rowkey
from hqueue.hbase.schema import (
    HEADER_COLUMN,
    LOG,
    MESSAGE,
    RECORD,
    RECORD_ROW_PREFIX,
    columns,
    topic_of,
)
from hqueue.log.ports import Row

__all__ = ["Cell", "Rows"]

RECORD_COLUMN = LOG + b":" + RECORD


class Cell(NamedTuple):
    """A value, and when it was written: it expires by that."""

    value: bytes
    written_ms: int


class Rows:
    """Rows in the order of their keys: each some cells, by ``family:qualifier``.

    A row is there while one of its cells is. Everything of `hqueue.log.ports` that one server does
    at once; each method is atomic if its caller lets no other run beside it.

    Args:
        now_ms: the time of the server.
        ttl_ms: for how long bodies can be seen; None for ever. Headers and records never expire.
    """

    def __init__(self, now_ms: Callable[[], int], ttl_ms: int | None = None) -> None:
        self.ttl_ms = ttl_ms
        self._now_ms = now_ms
        self._keys: list[bytes] = []
        self._cells: dict[bytes, dict[bytes, Cell]] = {}

    # Cells as they are.

    def put(self, key: bytes, cells: Mapping[bytes, bytes], written_ms: int | None = None) -> None:
        """Write cells of a row, as if at a time of choice."""
        now_ms = self._now_ms() if written_ms is None else written_ms
        if key not in self._cells:
            bisect.insort(self._keys, key)
            self._cells[key] = {}
        self._cells[key] |= {column: Cell(value, now_ms) for column, value in cells.items()}

    def delete(
        self, key: bytes, wanted: Iterable[bytes] | None = None, until_ms: int | None = None
    ) -> None:
        """Delete these cells of a row; all if None. What isn't there counts as done, and so does
        what was written after a moment of choice.
        """
        cells = self._cells.get(key)
        if cells is None:
            return
        for column in list(cells) if wanted is None else wanted:
            if column in cells and (until_ms is None or cells[column].written_ms <= until_ms):
                del cells[column]
        if not cells:
            del self._cells[key]
            del self._keys[bisect.bisect_left(self._keys, key)]

    def clear(self) -> None:
        """Delete all rows."""
        self._keys.clear()
        self._cells.clear()

    def copied(self) -> Rows:
        """The same rows, which change by themselves from now on."""
        rows = Rows(self._now_ms, self.ttl_ms)
        rows._keys = list(self._keys)
        rows._cells = {key: dict(cells) for key, cells in self._cells.items()}
        return rows

    def visible(self, key: bytes) -> dict[bytes, Cell]:
        """The cells of a row that have not expired."""
        cells = self._cells.get(key, {})
        if self.ttl_ms is None:
            return dict(cells)
        oldest_ms = self._now_ms() - self.ttl_ms
        return {
            column: cell
            for column, cell in cells.items()
            if not column.startswith(MESSAGE + b":") or cell.written_ms >= oldest_ms
        }

    def between(
        self, first: bytes = b"", beyond: bytes | None = None, *, backwards: bool = False
    ) -> Iterator[bytes]:
        """The keys of rows in ``[first, beyond)``; also of those that have expired."""
        stop = len(self._keys) if beyond is None else bisect.bisect_left(self._keys, beyond)
        span = range(bisect.bisect_left(self._keys, first), stop)
        return (self._keys[at] for at in (reversed(span) if backwards else span))

    # The ports.

    def newest(self, partition: int, at_or_below: int) -> Row | None:
        rows = self.backwards(partition, at_or_below, 1)
        return rows[0] if rows else None

    def backwards(self, partition: int, at_or_below: int, limit: int) -> list[Row]:
        beyond = rowkey.encode(partition, at_or_below) + b"\0"
        found = self.between(rowkey.first_of(partition), beyond, backwards=True)
        return self._rows(found, [HEADER_COLUMN], limit)

    def headers(self, partition: int, start: int, limit: int) -> list[Row]:
        found = self.between(rowkey.encode(partition, start), rowkey.first_of(partition + 1))
        return self._rows(found, [HEADER_COLUMN], limit)

    def header(self, partition: int, slot: int) -> bytes | None:
        cell = self._cells.get(rowkey.encode(partition, slot), {}).get(HEADER_COLUMN)
        return cell.value if cell else None

    def get(self, slots: Sequence[tuple[int, int]], topics: Iterable[str] | None) -> list[Row]:
        keys = [rowkey.encode(partition, slot) for partition, slot in slots]
        return self._rows(keys, columns(topics), len(keys))

    def scan(
        self, first: bytes, beyond: bytes | None, limit: int, topics: Iterable[str] | None
    ) -> list[Row]:
        """The first rows of ``[first, beyond)`` that have a header or one of these topics."""
        return self._rows(self.between(first, beyond), columns(topics), limit)

    def put_if_absent(
        self, partition: int, slot: int, header: bytes, cells: Mapping[bytes, bytes]
    ) -> bool:
        key = rowkey.encode(partition, slot)
        if HEADER_COLUMN in self._cells.get(key, {}):
            return False
        bodies = {MESSAGE + b":" + topic: bytes(cell) for topic, cell in cells.items()}
        self.put(key, {HEADER_COLUMN: header, **bodies})
        return True

    def delete_headers(self, partition: int, slots: Sequence[int], until_ms: int) -> None:
        for slot in slots:
            self.delete(rowkey.encode(partition, slot), [HEADER_COLUMN], until_ms)

    def delete_row(self, partition: int, slot: int, topics: Iterable[bytes]) -> None:
        bodies = (MESSAGE + b":" + topic for topic in topics)
        self.delete(rowkey.encode(partition, slot), [HEADER_COLUMN, *bodies])

    def record(self, name: str) -> bytes | None:
        cell = self._cells.get(_record_key(name), {}).get(RECORD_COLUMN)
        return cell.value if cell else None

    def replace_record(self, name: str, old: bytes | None, new: bytes) -> bool:
        if self.record(name) != old:
            return False
        self.put(_record_key(name), {RECORD_COLUMN: new})
        return True

    def _rows(self, keys: Iterable[bytes], wanted: Sequence[bytes], limit: int) -> list[Row]:
        """The first of these rows with something visible that is wanted."""
        rows: list[Row] = []
        for key in keys:
            if len(rows) == limit:
                break
            row = _row(key, self.visible(key), wanted)
            if row is not None:
                rows.append(row)
        return rows


def _row(key: bytes, cells: Mapping[bytes, Cell], wanted: Sequence[bytes]) -> Row | None:
    """A row with what is wanted of it; None if none of that is there. A family means all of it."""
    found = {
        column: cell.value
        for column, cell in cells.items()
        if column in wanted or column.partition(b":")[0] in wanted
    }
    if not found:
        return None
    header = found.pop(HEADER_COLUMN, None)
    bodies = {topic_of(column, key): value for column, value in found.items()}
    return Row(key, *rowkey.decode(key), header, bodies)


def _record_key(name: str) -> bytes:
    return RECORD_ROW_PREFIX + name.encode()

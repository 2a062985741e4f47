"""A store that holds what it was given and answers as it likes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from hqueue.errors import Outcome, StoreUnavailableError
from hqueue.format import rowkey
from hqueue.hbase.schema import HEADER_COLUMN, MESSAGE
from hqueue.log.ports import Row
from tests.support.memory import rows as memory

from .rows import Stored

__all__ = ["WHIMS", "Rows", "SteppedClock"]

CALLS_MAX = 5_000

WHIMS = ("nothing", "first missing", "last missing", "reversed", "doubled", "others", "silent")
"""What an answer can be instead of the truth. A put whose answer is "silent" or "reversed", which
is a denial, is applied nevertheless."""


class SteppedClock:
    """A clock that stands, but for a step at each look and for the sleeps."""

    def __init__(self, wall_ms: int) -> None:
        self._wall_ms = wall_ms
        self._now_ms = 0.0

    def wall_ms(self) -> int:
        return self._wall_ms + int(self._now_ms)

    def monotonic_ms(self) -> float:
        self._now_ms += 0.1
        return self._now_ms

    def sleep_ms(self, duration_ms: float) -> None:
        self._now_ms += duration_ms


class Rows:
    """All of `hqueue.log.ports` over some rows, which may be such as no writer writes.

    Args:
        rows: what the table holds.
        whims: call number to the whim of that call's answer.
    """

    def __init__(self, rows: Iterable[Stored], whims: Mapping[int, str] | None = None) -> None:
        self._rows = memory.Rows(lambda: 0)
        for row in rows:
            bodies = {MESSAGE + b":" + topic: cell for topic, cell in row.cells.items()}
            self._rows.put(row.key, {HEADER_COLUMN: row.header, **bodies})
        self._whims = whims or {}
        self._calls = 0

    def newest(self, partition: int, at_or_below: int) -> Row | None:
        rows = self.backwards(partition, at_or_below, 1)
        return rows[0] if rows else None

    def backwards(self, partition: int, at_or_below: int, limit: int) -> list[Row]:
        return self._answer(self._rows.backwards(partition, at_or_below, limit))

    def headers(self, partition: int, start: int, limit: int) -> list[Row]:
        return self._answer(self._rows.headers(partition, start, limit))

    def header(self, partition: int, slot: int) -> bytes | None:
        rows = self._answer(self._rows.get([(partition, slot)], ()))
        return rows[0].header if rows else None

    def get(self, slots: Sequence[tuple[int, int]], topics: Iterable[str] | None) -> list[Row]:
        return self._answer(self._rows.get(slots, topics))

    def open(self, partition: int, start: int, stop: int, topics: Iterable[str] | None) -> Stream:
        keys = rowkey.encode(partition, start), rowkey.encode(partition, stop)
        return Stream(self, *keys, topics)

    def put_if_absent(
        self, partition: int, slot: int, header: bytes, cells: Mapping[bytes, bytes]
    ) -> bool:
        absent = self._rows.put_if_absent(partition, slot, header, cells)
        self._answer([])
        return absent and self._whims.get(self._calls) != "reversed"

    def delete_headers(self, partition: int, slots: Sequence[int], until_ms: int) -> None:
        self._rows.delete_headers(partition, slots, until_ms)

    def delete_row(self, partition: int, slot: int, topics: Iterable[bytes]) -> None:
        self._rows.delete_row(partition, slot, topics)

    def clock_offset_ms(self) -> tuple[float, float]:
        return 0.0, 0.0

    def page(
        self, first: bytes, beyond: bytes, rows: int, topics: Iterable[str] | None
    ) -> list[Row]:
        return self._answer(self._rows.scan(first, beyond, rows, topics))

    def _answer(self, found: Sequence[Row]) -> list[Row]:
        self._calls += 1
        assert self._calls < CALLS_MAX, "it asks for ever"
        match self._whims.get(self._calls):
            case "nothing":
                found = []
            case "first missing":
                found = found[1:]
            case "last missing":
                found = found[:-1]
            case "reversed":
                found = found[::-1]
            case "doubled":
                found = [row for row in found for _ in range(2)]
            case "others":
                found = self._rows.scan(b"", None, CALLS_MAX, None)
            case "silent":
                raise StoreUnavailableError("no answer", outcome=Outcome.UNKNOWN)
        return list(found)


class Stream:
    """An open scan."""

    def __init__(
        self, rows: Rows, first: bytes, beyond: bytes, topics: Iterable[str] | None
    ) -> None:
        self._rows, self._first, self._beyond, self._topics = rows, first, beyond, topics

    def read(self, rows: int) -> list[Row]:
        found = self._rows.page(self._first, self._beyond, rows, self._topics)
        if found:
            self._first = max(row.key for row in found) + b"\0"
        return found

    def close(self) -> None:
        """Nothing is held."""

"""What tests without servers stand on: time that is stepped, and a store of rows in memory."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence, Set
from typing import Any

from hqueue.errors import HQueueError
from hqueue.format.cells import encode_bodies
from hqueue.format.header import decode_header, encode_header
from hqueue.format.rowkey import encode
from hqueue.log.ports import Row
from hqueue.message import Message

__all__ = ["Rows", "SteppedClock", "Stream"]


class SteppedClock:
    """A clock that stands still until it is moved."""

    def __init__(self, now_ms: float = 0.0) -> None:
        self.now_ms = now_ms

    def wall_ms(self) -> int:
        return int(self.now_ms)

    def monotonic_ms(self) -> float:
        return self.now_ms

    def sleep_ms(self, duration_ms: float) -> None:
        self.now_ms += duration_ms


class Rows:
    """A store of rows in memory that fails when it is told to."""

    def __init__(self) -> None:
        self.rows: dict[int, list[Row]] = {}
        self.failure: Callable[[str], HQueueError | None] = lambda method: None
        self.asked: list[tuple[int, int]] = []
        """For each multi-get: the rows asked for, and the bytes of bodies that came."""

    def append(
        self,
        partition: int,
        value: bytes,
        times: int = 1,
        base: int | None = None,
        topic: str = "t",
    ) -> None:
        rows = self.rows.setdefault(partition, [])
        slot = ordinal = 0
        if rows:
            last = decode_header(rows[-1].key, rows[-1].header or b"")
            slot, ordinal = last.end, last.next_ordinal
        bodies = encode_bodies([Message(topic, value)] * times)
        key = encode(partition, slot)
        if base is None:
            base = slot + 1_000 - times  # So the slots are multiples of 1,000.
        header = encode_header(
            key, bodies, base=base, ordinal=ordinal, nonce=b"12345678", published_ms=0
        )
        cells = {topic.decode(): cell for topic, cell in bodies.cells.items()}
        rows.append(Row(key, partition, slot, header, cells))

    def _check(self, method: str) -> None:
        error = self.failure(method)
        if error is not None:
            raise error

    def newest(self, partition: int, at_or_below: int) -> Row | None:
        self._check("newest")
        found = [row for row in self.rows.get(partition, []) if row.slot <= at_or_below]
        return found[-1] if found else None

    def headers(self, partition: int, start: int, limit: int) -> list[Row]:
        self._check("headers")
        return [row for row in self.rows.get(partition, []) if row.slot >= start][:limit]

    def get(self, slots: Sequence[tuple[int, int]], topics: Iterable[str] | None) -> list[Row]:
        self._check("get")
        wanted = None if topics is None else set(topics)
        found = [
            _only(wanted, row)
            for partition, slot in slots
            for row in self.rows.get(partition, [])
            if row.slot == slot
        ]
        self.asked.append((len(slots), sum(len(c) for r in found for c in r.cells.values())))
        return found

    def open(self, partition: int, start: int, stop: int, topics: frozenset[str] | None) -> Any:
        self._check("open")
        rows = [row for row in self.rows.get(partition, []) if start <= row.slot < stop]
        return Stream([_only(topics, row) for row in rows])


class Stream:
    def __init__(self, rows: list[Row]) -> None:
        self._rows = rows

    def read(self, rows: int) -> list[Row]:
        read, self._rows = self._rows[:rows], self._rows[rows:]
        return read

    def close(self) -> None:
        pass


def _only(topics: Set[str] | None, row: Row) -> Row:
    """A row with the cells of these topics; None for all."""
    cells = {t: c for t, c in row.cells.items() if topics is None or t in topics}
    return dataclasses.replace(row, cells=cells)

"""A store in memory that does what the ports promise, and no more."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from hqueue.errors import QueueDisabledError
from hqueue.format import rowkey
from hqueue.log.ports import Row

__all__ = ["PARTITION", "Call", "ModelStore"]

PARTITION = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Call:
    """One request of a participant: it is put before the explorer, which decides its fate."""

    name: str
    arguments: tuple[object, ...]
    sent_ms: int

    @property
    def is_write(self) -> bool:
        return self.name in ("put_if_absent", "delete_headers", "delete_row")


@dataclasses.dataclass(slots=True)
class Cells:
    """What lies in a row."""

    header: bytes | None
    bodies: dict[bytes, bytes]
    written_ms: int


class ModelStore:
    """One partition's rows. Each row is atomic; nothing else is.

    Args:
        ttl_ms: how long bodies can be seen after they were written.
    """

    def __init__(self, ttl_ms: int) -> None:
        self.rows: dict[int, Cells] = {}
        self.disabled = False
        self.changes = 0
        self._ttl_ms = ttl_ms

    def key(self) -> object:
        """Everything that what happens next depends on, hashable."""
        return self.disabled, tuple(
            sorted((slot, cells.header, cells.written_ms) for slot, cells in self.rows.items())
        )

    def require_enabled(self) -> None:
        if self.disabled:
            raise QueueDisabledError("the queue is disabled")

    def put_if_absent(
        self, slot: int, header: bytes, bodies: dict[bytes, bytes], now_ms: int
    ) -> bool:
        cells = self.rows.get(slot)
        if cells is not None and cells.header is not None:
            return False
        self.rows[slot] = Cells(header, dict(bodies), now_ms)
        self.changes += 1
        return True

    def delete_header(self, slot: int, until_ms: int) -> bool:
        """Whether there was none that was written later."""
        cells = self.rows.get(slot)
        if cells is None:
            return True
        if cells.written_ms > until_ms:
            return False
        cells.header = None
        self.changes += 1
        return True

    def delete_row(self, slot: int) -> None:
        if self.rows.pop(slot, None) is not None:
            self.changes += 1

    def truncate(self) -> None:
        self.rows.clear()
        self.changes += 1

    def header(self, slot: int) -> bytes | None:
        cells = self.rows.get(slot)
        return cells.header if cells else None

    def slots(self, start: int = 0, stop: int | None = None) -> list[int]:
        """The slots that have a header, ascending."""
        return sorted(
            slot
            for slot, cells in self.rows.items()
            if cells.header is not None and start <= slot and (stop is None or slot < stop)
        )

    def newest(self, at_or_below: int) -> Row | None:
        rows = self.backwards(at_or_below, 1)
        return rows[0] if rows else None

    def backwards(self, at_or_below: int, limit: int) -> list[Row]:
        slots = self.slots(0, at_or_below + 1)
        return [self.row(slot, None, 0, bodies=False) for slot in slots[: -limit - 1 : -1]]

    def headers(self, start: int, limit: int) -> list[Row]:
        return [self.row(slot, None, 0, bodies=False) for slot in self.slots(start)[:limit]]

    def row(
        self, slot: int, topics: Iterable[str] | None, now_ms: int, *, bodies: bool = True
    ) -> Row:
        """A row as the store shows it now: bodies that expired are gone."""
        cells = self.rows[slot]
        alive = bodies and not self.is_expired(slot, now_ms)
        wanted = None if topics is None else {topic.encode() for topic in topics}
        return Row(
            rowkey.encode(PARTITION, slot),
            PARTITION,
            slot,
            cells.header,
            {
                topic.decode(): cell
                for topic, cell in cells.bodies.items()
                if alive and (wanted is None or topic in wanted)
            },
        )

    def is_expired(self, slot: int, now_ms: int) -> bool:
        return now_ms - self.rows[slot].written_ms >= self._ttl_ms

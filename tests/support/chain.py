"""A partition's headers in memory, as a port that counts what it gives."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from hqueue.format import rowkey
from hqueue.format.header import Bodies, encode_header
from hqueue.log import LogPosition
from hqueue.log.ports import Row

__all__ = ["Chain"]

NONCE = bytes(8)


class Chain:
    """One partition's headers. Bodies are not kept."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.given = 0
        """How many headers were read."""
        self.end = LogPosition(0, 0)
        self._now = 0

    def truncate(self, now: int) -> None:
        """Take all away; what comes has later IDs."""
        self.rows, self.end, self._now = [], LogPosition(0, 0), now

    def collect(self, rows: int) -> None:
        """Take the oldest away, as when they have expired."""
        del self.rows[:rows]

    def append(self, bodies: Bodies, nonce: bytes = NONCE) -> int:
        """Append a batch, some IDs behind the one before; the ID of its first message."""
        slot, ordinal = self.end
        key = rowkey.encode(0, slot)
        base = max(slot, self._now) + 3
        header = encode_header(key, bodies, base=base, ordinal=ordinal, nonce=nonce, published_ms=1)
        self.rows.append(Row(key, 0, slot, header, {}))
        self.end = LogPosition(base + bodies.span, ordinal + bodies.count)
        return base

    def newest(self, partition: int, at_or_below: int) -> Row | None:
        """As `HeaderPort`."""
        at = bisect_right(self.rows, at_or_below, key=lambda row: row.slot)
        return self.rows[at - 1] if at else None

    def headers(self, partition: int, start: int, limit: int) -> list[Row]:
        """As `HeaderPort`."""
        at = bisect_left(self.rows, start, key=lambda row: row.slot)
        self.given += len(self.rows[at : at + limit])
        return self.rows[at : at + limit]

"""How far somebody is behind in a partition, without reading its messages."""

from __future__ import annotations

import dataclasses

from hqueue.batch import decode_header
from hqueue.clock import Clock, Deadline
from hqueue.limits import MESSAGE_ID_MAX, SEQUENCE_BITS
from hqueue.ports import HeaderPort, Row

__all__ = ["PartitionLag", "lag_at"]


@dataclasses.dataclass(frozen=True, slots=True)
class PartitionLag:
    """What lies between an ID and the end of a partition."""

    messages: int
    """Messages from the ID on, of all topics; exact, by the log's ordinals."""
    age_ms: int
    """How long ago the first of them was written; 0 if there is none."""
    passed: int
    """Messages that the partition ever had before the ID, expired ones too."""


def lag_at(
    partition: int, place: int, port: HeaderPort, deadline: Deadline, clock: Clock
) -> PartitionLag:
    """How far behind somebody is who goes on from this ID. Three small requests."""

    def look() -> tuple[Row | None, list[Row | None]]:
        newest = port.newest(partition, MESSAGE_ID_MAX)
        return newest, [port.newest(partition, place), *port.headers(partition, place, 1)]

    newest, rows = deadline.run(look)
    if newest is None:
        return PartitionLag(0, 0, 0)
    end = decode_header(newest.key, newest.header or b"")
    for row in rows:
        header = None if row is None else decode_header(row.key, row.header or b"")
        if header is not None and header.end > place:
            first = max(place, header.base)
            passed = header.ordinal + min(first - header.base, header.count)
            age_ms = clock.wall_ms() - (first >> SEQUENCE_BITS)
            messages = end.next_ordinal - passed
            return PartitionLag(max(0, messages), max(0, age_ms) if messages > 0 else 0, passed)
    return PartitionLag(0, 0, end.next_ordinal)

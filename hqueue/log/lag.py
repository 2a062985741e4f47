"""How far somebody is behind in a partition, without reading its messages."""

from __future__ import annotations

import dataclasses

from hqueue.batch import Header, decode_header
from hqueue.clock import Clock, Deadline
from hqueue.limits import MESSAGE_ID_MAX, SEQUENCE_BITS
from hqueue.log.ends import batch_at, passed_by
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
    """How far behind somebody is who goes on from this ID. Two small requests, or three where
    headers were collected.
    """

    def look() -> tuple[Row | None, Header | None]:
        return port.newest(partition, MESSAGE_ID_MAX), batch_at(partition, place, port)

    newest, header = deadline.run(look)
    if newest is None or header is None:
        return PartitionLag(0, 0, 0)
    passed = passed_by(header, place)
    messages = decode_header(newest.key, newest.header or b"").next_ordinal - passed
    if messages <= 0:
        return PartitionLag(0, 0, passed)
    age_ms = clock.wall_ms() - (max(place, header.base) >> SEQUENCE_BITS)
    return PartitionLag(messages, max(0, age_ms), passed)

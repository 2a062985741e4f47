"""How far somebody is behind in a partition, without reading its messages."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING

from hqueue.batch import decode_header
from hqueue.clock import SYSTEM_CLOCK, Clock
from hqueue.limits import MESSAGE_ID_MAX, SEQUENCE_BITS
from hqueue.message import MessageID

if TYPE_CHECKING:
    from hqueue.queue import Queue

__all__ = ["PartitionLag", "lag_of"]


@dataclasses.dataclass(frozen=True, slots=True)
class PartitionLag:
    """What lies between an ID and the end of a partition."""

    messages: int
    """Messages from the ID on, of all topics; exact, by the log's ordinals."""
    age_ms: int
    """How long ago the first of them was written; 0 if there is none."""
    passed: int
    """Messages that the partition had before the ID."""


def lag_of(
    queue: Queue, places: Mapping[int, MessageID], clock: Clock = SYSTEM_CLOCK
) -> dict[int, PartitionLag]:
    """How far behind somebody is who goes on from these IDs.

    Two or three small requests a partition. Messages that have expired count as long as their
    headers are kept.

    Args:
        queue: the queue.
        places: for each partition the first ID that was not read yet.
        clock: where time comes from.

    Raises:
        StoreUnavailableError: HBase stayed away for ``operation_timeout_ms``.
        CorruptLogError: a header can't be read.
    """
    return {
        partition: _lag(queue, partition, int(place), clock) for partition, place in places.items()
    }


def _lag(queue: Queue, partition: int, place: int, clock: Clock) -> PartitionLag:
    for attempt in queue.deadline().retrying():
        with attempt:
            newest = queue.reads.newest(partition, MESSAGE_ID_MAX)
            rows = [queue.reads.newest(partition, place)]
            rows += queue.reads.headers(partition, place, 1)
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

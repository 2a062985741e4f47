"""How far a reader is behind in a partition, without reading its messages."""

from __future__ import annotations

import dataclasses

from hqueue.format.header import Header
from hqueue.log.offsets import batch_at, passed_by
from hqueue.log.ports import Row, header_of
from hqueue.log.steps import Newest, Work
from hqueue.message_id import timestamp_of
from hqueue.runtime.clock import Clock, Deadline
from hqueue.settings.limits import MESSAGE_ID_MAX

__all__ = ["PartitionLag", "age_ms_of", "lag_at"]


@dataclasses.dataclass(frozen=True, slots=True)
class PartitionLag:
    """The lag of a reader in a partition: the messages between an ID and the end."""

    messages: int
    """The exact number of messages from the ID to the end, of all topics."""
    age_ms: int
    """How long ago the first of them was written, by this machine's clock; if that clock is behind
    the newest message, by that message's time. 0 if there is none.
    """
    passed: int
    """How many messages the partition ever had before the ID, expired ones included."""


def lag_at(partition: int, message_id: int, clock: Clock, deadline: Deadline) -> Work[PartitionLag]:
    """How far behind a reader is that goes on from this ID. Two small requests, or three where
    headers were deleted.
    """

    def look() -> Work[tuple[Row | None, Header | None]]:
        newest: Row | None = yield Newest(partition, MESSAGE_ID_MAX)
        return newest, (yield from batch_at(partition, message_id))

    newest, header = yield from deadline.insist(look)
    if newest is None or header is None:
        return PartitionLag(0, 0, 0)
    passed = passed_by(header, message_id)
    last = header_of(newest)
    messages = last.next_ordinal - passed
    if messages <= 0:
        return PartitionLag(0, 0, passed)
    age_ms = age_ms_of(max(message_id, header.base), last.base, clock)
    return PartitionLag(messages, age_ms, passed)


def age_ms_of(message_id: int, newest: int, clock: Clock) -> int:
    """How long ago a message was written: by this machine's clock or, if that is behind, by the
    time of the newest message.
    """
    now_ms = max(clock.wall_ms(), timestamp_of(newest))
    return max(0, now_ms - timestamp_of(message_id))

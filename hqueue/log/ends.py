"""Where a partition begins and ends, and how many messages lie between."""

from __future__ import annotations

import dataclasses

from hqueue.batch import CONTROL, decode_header
from hqueue.clock import Deadline
from hqueue.limits import MESSAGE_ID_MAX
from hqueue.message import MessageID
from hqueue.ports import HeaderPort

__all__ = ["PartitionEnds", "count_before", "ends_of"]


@dataclasses.dataclass(frozen=True, slots=True)
class PartitionEnds:
    """The two ends of a partition's log.

    Args:
        partition: the partition.
        first: the ID of the oldest batch whose header is kept; None if there is none.
        first_ordinal: messages that the partition had before that.
        next: the ID from which on nothing is written yet.
        next_ordinal: messages that the partition ever had, expired ones too.
    """

    partition: int
    first: MessageID | None
    first_ordinal: int
    next: MessageID
    next_ordinal: int

    @property
    def messages(self) -> int:
        """Messages that the partition ever had, expired ones too."""
        return self.next_ordinal


def ends_of(partition: int, port: HeaderPort, deadline: Deadline) -> PartitionEnds:
    """Where a partition begins and ends now. Two small requests."""
    for attempt in deadline.retrying():
        with attempt:
            newest = port.newest(partition, MESSAGE_ID_MAX)
            oldest = port.headers(partition, 0, 1)
    if newest is None or not oldest:
        return PartitionEnds(partition, None, 0, MessageID(0), 0)
    first = decode_header(oldest[0].key, oldest[0].header or b"")
    last = decode_header(newest.key, newest.header or b"")
    return PartitionEnds(
        partition,
        MessageID.from_int(first.base),
        first.ordinal,
        MessageID.from_int(last.end),
        last.next_ordinal,
    )


def count_before(
    partition: int, message_id: MessageID, port: HeaderPort, deadline: Deadline
) -> int:
    """How many messages a partition ever had before an ID, expired ones too. One small request,
    and another where the headers before the ID were collected.
    """
    for attempt in deadline.retrying():
        with attempt:
            row = port.newest(partition, message_id)
            later = [] if row is not None else port.headers(partition, message_id, 1)
    if row is None:
        return decode_header(later[0].key, later[0].header or b"").ordinal if later else 0
    header = decode_header(row.key, row.header or b"")
    if header.kind == CONTROL or message_id >= header.end:
        return header.next_ordinal
    return header.ordinal + max(0, message_id - header.base)

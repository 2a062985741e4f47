"""Where a partition begins and ends, and how many messages lie between."""

from __future__ import annotations

import dataclasses

from hqueue.batch import decode_header
from hqueue.clock import Deadline
from hqueue.limits import MESSAGE_ID_MAX
from hqueue.message import MessageID
from hqueue.ports import HeaderPort

__all__ = ["PartitionEnds", "ends_of"]


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
    newest, oldest = deadline.run(
        lambda: (port.newest(partition, MESSAGE_ID_MAX), port.headers(partition, 0, 1))
    )
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

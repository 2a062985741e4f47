"""Where a partition begins and ends, and how many messages lie between."""

from __future__ import annotations

import dataclasses
from functools import partial

from hqueue.batch import CONTROL, Header, decode_header
from hqueue.clock import Deadline
from hqueue.limits import MESSAGE_ID_MAX
from hqueue.message import MessageID
from hqueue.ports import HeaderPort, Row

__all__ = ["PartitionEnds", "count_before", "ends_of", "id_at"]


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
    first = _header_of(oldest[0])
    last = _header_of(newest)
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
        return _header_of(later[0]).ordinal if later else 0
    header = _header_of(row)
    if header.kind == CONTROL or message_id >= header.end:
        return header.next_ordinal
    return header.ordinal + max(0, message_id - header.base)


def id_at(partition: int, ordinal: int, port: HeaderPort, deadline: Deadline) -> MessageID:
    """An ID that a partition had so many messages before: the inverse of `count_before`.

    That is an ID of the first message still known where those before it were collected, and the
    end of the log where there were never so many. Some tens of small requests at most: messages
    come at about the same rate for a while, so most of them are found by proportion, and halving
    bounds the search where they don't.
    """
    newest = deadline.run(lambda: port.newest(partition, MESSAGE_ID_MAX))
    if newest is None:
        return MessageID(0)
    last = _header_of(newest)
    if ordinal >= last.next_ordinal:
        return MessageID.from_int(last.end)
    oldest = deadline.run(lambda: port.headers(partition, 0, 1))
    first = _header_of(oldest[0]) if oldest else last
    # Messages with lower ordinals lie below `low`, and those with this or a higher at `high` or
    # above, or in the batch that covers it.
    low, low_ordinal = int(first.base), first.ordinal
    high, high_ordinal = int(last.end), last.next_ordinal
    proportional = True
    while ordinal > low_ordinal and low < high:
        share = (ordinal - low_ordinal) / (high_ordinal - low_ordinal) if proportional else 0.5
        probe = min(high - 1, low + int((high - low) * share))
        proportional = not proportional
        row = deadline.run(partial(port.newest, partition, probe))
        header = None if row is None else _header_of(row)
        if row is None or header is None or header.end <= low:
            low = probe + 1  # Nothing lies between them.
        elif ordinal < header.ordinal:
            high, high_ordinal = row.slot, header.ordinal
        elif ordinal >= header.next_ordinal:
            low, low_ordinal = max(probe + 1, header.end), header.next_ordinal
        else:
            return MessageID.from_int(header.base + ordinal - header.ordinal)
    return MessageID.from_int(low)


def _header_of(row: Row) -> Header:
    return decode_header(row.key, row.header or b"")

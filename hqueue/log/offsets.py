"""The beginning and end offsets of a partition, and how many messages lie between."""

from __future__ import annotations

import dataclasses
from functools import partial

from hqueue.format.header import Header
from hqueue.log.ports import Row, header_of
from hqueue.log.steps import Headers, Newest, Work, ask
from hqueue.message_id import MessageID
from hqueue.runtime.clock import Deadline
from hqueue.settings.limits import MESSAGE_ID_MAX

__all__ = [
    "PartitionOffsets",
    "batch_at",
    "count_before",
    "ends_of",
    "id_at",
    "offsets_of",
    "passed_by",
]


@dataclasses.dataclass(frozen=True, slots=True)
class PartitionOffsets:
    """The beginning and the end of a partition's log.

    Args:
        partition: the partition.
        beginning: the ID of the oldest batch whose header is kept; None if there is none.
        beginning_ordinal: how many messages the partition had before that.
        end: the ID after the newest batch, where the next batch begins at the earliest.
        end_ordinal: how many messages the partition ever had, expired ones included.
    """

    partition: int
    beginning: MessageID | None
    beginning_ordinal: int
    end: MessageID
    end_ordinal: int

    @property
    def count(self) -> int:
        """How many messages the partition ever had, expired ones included."""
        return self.end_ordinal


def ends_of(partition: int) -> Work[tuple[list[Row], Row | None]]:
    """The oldest row of a partition, if there is one, and the newest."""
    newest: Row | None = yield Newest(partition, MESSAGE_ID_MAX)
    return (yield Headers(partition, 0, 1)), newest


def offsets_of(partition: int, deadline: Deadline) -> Work[PartitionOffsets]:
    """Where a partition begins and ends now. Two small requests."""
    oldest, newest = yield from deadline.insist(lambda: ends_of(partition))
    if newest is None or not oldest:
        return PartitionOffsets(partition, None, 0, MessageID(0), 0)
    first = header_of(oldest[0])
    last = header_of(newest)
    return PartitionOffsets(
        partition,
        MessageID.from_int(first.base),
        first.ordinal,
        MessageID.from_int(last.end),
        last.next_ordinal,
    )


def batch_at(partition: int, message_id: int) -> Work[Header | None]:
    """The batch that covers an ID, or the first after it where those before were collected.

    Beyond the end of the log it is the last one, and None in an empty log. One small request, or
    two where headers were collected.
    """
    row: Row | None = yield Newest(partition, message_id)
    if row is None:
        rows: list[Row] = yield Headers(partition, message_id, 1)
        row = rows[0] if rows else None
    return None if row is None else header_of(row)


def passed_by(header: Header | None, message_id: int) -> int:
    """How many messages a partition ever had before an ID, by what `batch_at` gave for it."""
    if header is None:
        return 0
    return header.ordinal + min(max(0, int(message_id) - header.base), header.count)


def count_before(partition: int, message_id: int, deadline: Deadline) -> Work[int]:
    """How many messages a partition ever had before an ID, expired ones too."""
    header = yield from deadline.insist(partial(batch_at, partition, message_id))
    return passed_by(header, message_id)


def id_at(partition: int, ordinal: int, deadline: Deadline) -> Work[MessageID]:
    """An ID that a partition had this many messages before: the inverse of `count_before`.

    That is an ID of the first message still known where those before it were collected, and the
    end of the log where there were never this many. Some tens of small requests at most: messages
    come at about the same rate for a while, so most of them are found by proportion, and halving
    bounds the search where they don't.
    """

    def newest_below(message_id: int) -> Work[Row | None]:
        return deadline.insist(partial(ask, Newest(partition, message_id)))

    newest = yield from newest_below(MESSAGE_ID_MAX)
    if newest is None:
        return MessageID(0)
    last = header_of(newest)
    if ordinal >= last.next_ordinal:
        return MessageID.from_int(last.end)
    oldest: list[Row] = yield from deadline.insist(partial(ask, Headers(partition, 0, 1)))
    first = header_of(oldest[0]) if oldest else last
    # Messages with lower ordinals lie below `low`, and those with this or a higher at `high` or
    # above, or in the batch that covers it.
    low, low_ordinal = int(first.base), first.ordinal
    high, high_ordinal = int(last.end), last.next_ordinal
    proportional = True
    while ordinal > low_ordinal and low < high:
        share = (ordinal - low_ordinal) / (high_ordinal - low_ordinal) if proportional else 0.5
        probe = min(high - 1, low + int((high - low) * share))
        proportional = not proportional
        row = yield from newest_below(probe)
        header = None if row is None else header_of(row)
        if row is None or header is None or header.end <= low:
            low = probe + 1  # Nothing lies between them.
        elif ordinal < header.ordinal:
            high, high_ordinal = row.slot, header.ordinal
        elif ordinal >= header.next_ordinal:
            low, low_ordinal = max(probe + 1, header.end), header.next_ordinal
        else:
            return MessageID.from_int(header.base + ordinal - header.ordinal)
    return MessageID.from_int(low)

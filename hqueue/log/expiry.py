"""Up to where a partition's messages have expired, judged by the stored messages and not by a
clock.
"""

from __future__ import annotations

import dataclasses
from functools import partial

from hqueue.format.header import MESSAGES
from hqueue.log.offsets import ends_of
from hqueue.log.ports import Row, header_of
from hqueue.log.steps import Get, Headers, Newest, Work, ask
from hqueue.message_id import MessageID, id_of
from hqueue.runtime.clock import Deadline

__all__ = ["PartitionExpiry", "expiry_of"]

HEADERS_READ = 10
"""This many batches are looked through for one with messages, where control records lie."""


@dataclasses.dataclass(frozen=True, slots=True)
class PartitionExpiry:
    """The two IDs between which the oldest message that is still there lies.

    Args:
        gone: all messages below this ID have expired; 0 if none is known to have expired.
        kept: the ID of a message that is still there, like all later ones; the end of the log if
            all have expired.
    """

    gone: MessageID
    kept: MessageID


def expiry_of(
    partition: int, guess: int, exact_ms: int, deadline: Deadline
) -> Work[PartitionExpiry]:
    """Up to where a partition's messages have expired.

    They expire in the order in which they were written, while their headers stay for a while. So
    whether a batch is there says the same of all before it, or of all after it; and the place where
    that changes is found by halving what lies between. A guess that is good saves most of that, and
    one that is wrong costs some requests more: about thirty at most.

    Args:
        partition: the partition.
        guess: an ID near that place.
        exact_ms: how far apart the two IDs may be, in the time of IDs.
        deadline: the bound.
    """
    oldest, newest = yield from deadline.insist(lambda: ends_of(partition))
    if not oldest or newest is None:
        return PartitionExpiry(MessageID(0), MessageID(0))
    first, last = header_of(oldest[0]), header_of(newest)
    if (yield from _is_there(oldest[0], deadline)):
        return PartitionExpiry(MessageID(0), MessageID.from_int(first.base))
    gone, kept_slot, kept = first.end, last.end, last.end
    guesses = [guess - id_of(exact_ms) // 2, guess + id_of(exact_ms) // 2]
    while gone < kept_slot and (guesses or kept_slot - gone > id_of(exact_ms)):
        probe = guesses.pop() if guesses else (gone + kept_slot) // 2
        if not gone <= probe < kept_slot:
            continue
        row: Row | None = yield from deadline.insist(partial(ask, Newest(partition, probe)))
        if row is None:
            return PartitionExpiry(MessageID(0), MessageID(0))  # It was truncated.
        header = header_of(row)
        if (yield from _is_there(row, deadline)):
            kept_slot, kept = max(gone, row.slot), header.base
        else:
            gone = max(gone, header.end)
    return PartitionExpiry(MessageID.from_int(gone), MessageID.from_int(kept))


def _is_there(row: Row, deadline: Deadline) -> Work[bool]:
    """Whether the messages of a batch have not expired. A control record has none, and is as the
    next batch that has some; where there is none near it nothing says that anything has expired.
    """
    rows, header = [row], header_of(row)
    if header.kind != MESSAGES:
        headers = Headers(row.partition, row.slot, HEADERS_READ)
        rows = yield from deadline.insist(lambda: ask(headers))
    for each in rows:
        header = header_of(each)
        if header.kind == MESSAGES and header.topics:
            place = [(each.partition, each.slot)]
            smallest = min(header.topics, key=lambda entry: entry.size).topic
            found: list[Row] = yield from deadline.insist(partial(ask, Get(place, [smallest])))
            return not found or bool(found[0].cells)
    return True

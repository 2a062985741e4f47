"""Batches as messages."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice, repeat
from operator import attrgetter
from typing import TypeVar

from hqueue.errors import CorruptLogError
from hqueue.format.cells import decode_bodies, decode_headers, decode_keys, positions
from hqueue.format.header import SCATTERED, TopicEntry
from hqueue.log import Batch
from hqueue.message import DELIVER_AT, ConsumedMessage, ReceivedMessage
from hqueue.message_id import MessageID
from hqueue.runtime.pieces import freed_by_piece, freed_in_pieces

__all__ = [
    "consumed_messages_of",
    "each_message_of",
    "ids_of",
    "may_be_delayed",
    "messages_and_ids_of",
    "messages_of",
]

_id_of = attrgetter("id")

MessageT = TypeVar("MessageT", bound=ReceivedMessage)

SORTED_TOGETHER = 1_024
PIECES_MAX = 64
"""A batch has up to 65,536 messages: to sort them at once takes many milliseconds."""

FREED_TOGETHER = 100
"""Of what was decoded before it is taken, so many are freed together: the memory of what was used
is used again, while it is in the processor's cache, and nobody has to free all of it at once."""


def may_be_delayed(batch: Batch) -> bool:
    """Whether a batch may have a delayed message. Decodes nothing."""
    return any(entry.header_bytes and DELIVER_AT.encode() in cell for entry, cell in batch.cells)


def messages_of(batch: Batch) -> list[ReceivedMessage]:
    """The messages of a batch that its reader selected, in the order of IDs.

    Raises:
        CorruptLogError: as `each_message_of`.
    """
    return list(each_message_of(batch))


def each_message_of(batch: Batch) -> Iterator[ReceivedMessage]:
    """Iterate over the messages of a batch that its reader selected, in the order of IDs. Each
    message is created when it is requested.

    A new message reuses the memory of one that is no longer referenced, which is in the processor's
    cache. With thousands of messages this takes half the time of creating a list of them.

    Raises:
        CorruptLogError: the offsets or positions in a cell are impossible, although its checksum
            fits: a faulty writer wrote it. The error is raised before the first message. If an
            operator chose to skip the batch, there is no error, and that cell's messages are
            skipped.
        StoreUnavailableError: the operator's decision can't be read now.
    """
    return _decoded(batch, ReceivedMessage)[0]


def messages_and_ids_of(batch: Batch) -> tuple[Iterator[ReceivedMessage], Iterator[MessageID]]:
    """Like `each_message_of`, and the IDs of those that were not taken. Where a signal's handler
    has raised in the middle of a message, the others seem to be used up, and their IDs are left.
    """
    return _decoded(batch, ReceivedMessage)


def consumed_messages_of(batch: Batch, queue: str) -> Iterator[ConsumedMessage]:
    """Like `each_message_of`, with the queue's name in each."""
    return _decoded(batch, ConsumedMessage, queue)[0]


def ids_of(batch: Batch) -> Sequence[int]:
    """The IDs of the messages of a batch that its reader selected, in ascending order. Decodes no
    message.

    Raises:
        CorruptLogError: the positions in a cell are impossible.
    """
    parts = [_ids_of_cell(batch, entry, cell)[0] for entry, cell in batch.cells]
    return parts[0] if len(parts) == 1 else sorted(chain.from_iterable(parts))


def _decoded(
    batch: Batch, kind: type[MessageT], *more: object
) -> tuple[Iterator[MessageT], Iterator[MessageID]]:
    parts = []
    for entry, cell in batch.cells:
        try:
            parts.append(_messages_of_cell(batch, entry, cell, kind, more))
        except CorruptLogError as exc:
            exc.facts["row"] = batch.key.hex()
            batch.skips.skip(batch.key, batch.header, entry, exc)
    if len(parts) == 1:
        messages, left, _ = parts[0]
        return messages, left
    return _sorted([(messages, ids) for messages, _, ids in parts if ids]), iter(())


def _sorted(parts: Sequence[tuple[Iterator[MessageT], Sequence[int]]]) -> Iterator[MessageT]:
    """The messages of several cells in the order of IDs, in pieces of about a thousand."""
    start = min((ids[0] for _, ids in parts), default=0)
    stop = max((ids[-1] + 1 for _, ids in parts), default=0)
    step = max(SORTED_TOGETHER, (stop - start) // PIECES_MAX + 1)
    pieces: list[list[MessageT] | None] = []
    for first in range(start, stop, step):
        piece: list[MessageT] = []
        for messages, ids in parts:
            piece += islice(messages, bisect_left(ids, first + step) - bisect_left(ids, first))
        piece.sort(key=_id_of)
        pieces.append(piece)
    return freed_by_piece(pieces)


def _messages_of_cell(
    batch: Batch, entry: TopicEntry, cell: bytes, kind: type[MessageT], more: Iterable[object]
) -> tuple[Iterator[MessageT], Iterator[MessageID], Sequence[int]]:
    """The messages of a cell, the IDs of those that were not taken, and all their IDs."""
    bodies = decode_bodies(entry, cell)
    keys = decode_keys(entry, cell)
    headers = decode_headers(entry, cell)
    ids, wanted = _ids_of_cell(batch, entry, cell)
    if wanted is not None:
        bodies = islice(bodies, wanted.start, wanted.stop)
        keys, headers = keys and keys[wanted], headers and headers[wanted]
    left = map(int.__new__, repeat(MessageID), ids)
    # The tuples are built without a call in Python for each: this is where a scan's time goes.
    messages: Iterator[MessageT] = map(
        tuple.__new__,
        repeat(kind),
        zip(
            repeat(entry.topic),
            bodies,
            repeat(None) if keys is None else freed_in_pieces(keys, FREED_TOGETHER),
            repeat(()) if headers is None else freed_in_pieces(headers, FREED_TOGETHER),
            left,
            repeat(batch.partition),
            *map(repeat, more),
        ),
    )
    return messages, left, ids


def _ids_of_cell(
    batch: Batch, entry: TopicEntry, cell: bytes
) -> tuple[Sequence[int], slice | None]:
    """The IDs of a cell's messages that the reader selected, and the slice of the cell that they
    are; None instead of the slice if they are all.
    """
    base = batch.header.base
    ids: Sequence[int]
    if entry.layout == SCATTERED:
        ids = [base + position for position in positions(batch.header, entry, cell)]
    else:
        ids = range(base + entry.first, base + entry.first + entry.count)
    if batch.start <= base and batch.stop >= batch.header.end:
        return ids, None
    wanted = slice(bisect_left(ids, batch.start), bisect_left(ids, batch.stop))
    return ids[wanted], wanted

"""Batches as messages."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import repeat
from operator import itemgetter

from hqueue.batch import SCATTERED, decode_bodies, positions
from hqueue.errors import CorruptLogError
from hqueue.log import Batch
from hqueue.message import Message, MessageID

__all__ = ["messages_of"]

_id_of = itemgetter(2)


def messages_of(batch: Batch) -> list[Message]:
    """The wanted messages of a batch, by ID.

    Raises:
        CorruptLogError: the offsets or positions in a cell make no sense, although its checksum
            fits: a writer with a fault wrote it.
    """
    try:
        if len(batch.cells) == 1:
            return _messages_of_cell(batch, 0)
        parts = [_messages_of_cell(batch, index) for index in range(len(batch.cells))]
    except CorruptLogError as exc:
        exc.facts["row"] = batch.key.hex()
        raise
    return sorted((message for part in parts for message in part), key=_id_of)


def _messages_of_cell(batch: Batch, index: int) -> list[Message]:
    entry, cell = batch.cells[index]
    base = batch.header.base
    bodies: list[bytes] = decode_bodies(entry, cell)
    if entry.layout == SCATTERED:
        ids: Iterable[int] = [base + position for position in positions(batch.header, entry, cell)]
    else:
        ids = range(base + entry.first, base + entry.first + entry.count)
    # The tuples are built without a call in Python for each: this is where a scan's time goes.
    messages: list[Message] = list(
        map(
            tuple.__new__,
            repeat(Message),
            zip(
                repeat(entry.topic),
                bodies,
                map(int.__new__, repeat(MessageID), ids),
                repeat(batch.partition),
            ),
        )
    )
    if batch.start > base or batch.stop < batch.header.end:
        return [m for m in messages if batch.start <= _id_of(m) < batch.stop]
    return messages

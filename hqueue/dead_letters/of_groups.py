"""The dead letters of a group, for its members: putting them, and reading those put back."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Sequence
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

from hqueue.consume.decode import messages_of
from hqueue.dead_letters.originals import Originals, message_at
from hqueue.dead_letters.putting import put_each, put_in
from hqueue.dead_letters.topics import DeadLetterOwner, is_delivered_unasked
from hqueue.dead_letters.wrapping import DeadLetter, wrapped_dead_letter
from hqueue.errors import InvalidInputError
from hqueue.format.cells import encode_bodies
from hqueue.format.header import TopicEntry, decode_header, encode_header
from hqueue.handle import QueueLog
from hqueue.log import Batch
from hqueue.message import Message, ReceivedMessage
from hqueue.runtime.steps import Wait, Work
from hqueue.runtime.stepwise import Stepwise, stepwise
from hqueue.settings.limits import REASON_LENGTH_MAX

__all__ = ["GroupDeadLetters", "Rejection", "check_reason", "delivered_unasked"]

_NOTHING = "hqueue.redrive."
"""The topic of the placeholder for a redrive that puts nothing back. No message has this topic."""


class Rejection(NamedTuple):
    """A message of a queue that a group can't process."""

    message: ReceivedMessage
    reason: str
    deliveries: int
    """How often the message was delivered; 1 if deliveries were not counted."""
    exhausted: bool = False
    """Whether the message failed too often. If not, the program rejected it."""


class GroupDeadLetters(Stepwise):
    """The dead letters of a group in a queue, for the group's members.

    Args:
        log: the queue's log.
        group: the group's name.

    Raises:
        InvalidInputError: the group's name is not valid.
    """

    def __init__(self, log: QueueLog, group: str) -> None:
        self._log = log
        self._group = group
        self._topic = DeadLetterOwner.of(None, group).redrive_topic
        self._originals = Originals(partial(message_at, log))

    @stepwise
    def put(self, rejections: Iterable[Rejection]) -> Work[Any, None]:
        """Make messages dead letters of the group, in their order. The dead letters are durable
        when the call returns. A message that is put again, because it was delivered again, is still
        one dead letter, until that is redriven or deleted.

        Raises:
            InvalidInputError: a reason is not valid. Nothing was put.
            As `Queue.put`. Some dead letters may have been put; put all of them again.
        """
        letters = [
            DeadLetter(message, None, check_reason(reason), deliveries, group=self._group)
            for message, reason, deliveries, _ in rejections
        ]
        wrapped = [(letter, wrapped_dead_letter(letter)) for letter in letters]
        yield from put_each(partial(put_in, self._log), wrapped)

    def read_topics(self, topics: Collection[str]) -> Collection[str]:
        """The topics that a member of the group must read to get messages of these topics: these,
        and that of the group's redrives. Empty means all topics.
        """
        return {*topics, self._topic} if topics else topics

    def delivered(
        self, batches: Sequence[Batch], topics: Collection[str]
    ) -> Work[Any, Sequence[Batch]]:
        """Batches as a member of the group gets them: a redrive to the group is replaced by the
        original under the redrive's ID, and dead letters and other redrives are left out.

        Args:
            batches: the batches, as they were read.
            topics: the topics that the group reads; all if empty.

        Raises:
            As `Queue.scan`, if an original can't be read now.
        """
        delivered = []
        for batch in batches:
            if any(map(_is_of_system, batch.cells)):
                kept = batch if topics else _kept(batch, self._topic)
                if any(entry.topic == self._topic for entry, _ in kept.cells):
                    kept = yield from self._with_originals(kept)
                if kept.cells:
                    delivered.append(kept)
            else:
                delivered.append(batch)
        return delivered

    def _with_originals(self, batch: Batch) -> Work[Any, Batch]:
        """A batch whose redrives are replaced by their originals."""
        header = batch.header
        in_loop = partial(self._log.loop_reader.decoded, batch, messages_of)
        messages: list[Message] = [Message(_NOTHING, b"")] * header.count
        for each in (yield Wait(partial(messages_of, batch), in_loop)):
            put_back: Message | None = each
            if each.topic == self._topic:
                put_back = yield from self._originals.redriven.steps(each)
            if put_back is not None:
                messages[each.id - header.base] = put_back
        bodies = encode_bodies(messages)
        data = encode_header(
            batch.key,
            bodies,
            base=header.base,
            ordinal=header.ordinal,
            nonce=header.nonce,
            published_ms=header.published_ms,
        )
        cells = [
            (entry, bodies.cells[entry.topic.encode()])
            for entry in decode_header(batch.key, data).topics
            if entry.topic != _NOTHING
        ]
        return dataclasses.replace(batch, cells=tuple(cells))


def check_reason(reason: str) -> str:
    """Check the reason for a rejection, and return it.

    Raises:
        InvalidInputError: the reason is not a string, is longer than 1,000 characters, or can't be
            encoded as UTF-8.
    """
    if not isinstance(reason, str) or len(reason) > REASON_LENGTH_MAX:
        raise InvalidInputError(
            "the reason for a rejection must be a string of at most 1,000 characters: shorten it",
            reason=reason[:80] if isinstance(reason, str) else reason,
        )
    try:
        reason.encode()
    except UnicodeEncodeError as exc:
        raise InvalidInputError(
            "the reason for a rejection can't be encoded as UTF-8: leave surrogates out",
            reason=reason[:80],
        ) from exc
    return reason


def delivered_unasked(batches: Sequence[Batch]) -> Sequence[Batch]:
    """Batches of all topics as a consumer without a group gets them: without dead letters and
    redrives.
    """
    if not any(map(_is_of_system, chain.from_iterable(each.cells for each in batches))):
        return batches
    return [kept for kept in map(_kept, batches) if kept.cells]


def _is_of_system(cell: tuple[TopicEntry, bytes]) -> bool:
    """Whether a cell contains dead letters or redrives."""
    return not is_delivered_unasked(cell[0].topic)


def _kept(batch: Batch, redrives: str | None = None) -> Batch:
    """A batch without dead letters, and without redrives except those under one topic."""
    cells = [
        (entry, cell)
        for entry, cell in batch.cells
        if entry.topic == redrives or is_delivered_unasked(entry.topic)
    ]
    return dataclasses.replace(batch, cells=tuple(cells))

"""Dead letters, and how they, redrives and deletions are encoded as messages in the log."""

from __future__ import annotations

import dataclasses
import json
from typing import Any, NamedTuple

from hqueue.dead_letters.topics import GROUP, SUBSCRIBER, DeadLetterOwner
from hqueue.errors import MessageTooLargeError, UnsupportedFormatError
from hqueue.format.cells import encode_message
from hqueue.message import Message, ReceivedMessage, topic_bytes
from hqueue.message_id import MessageID
from hqueue.metadata.encoding import decode_fields, text_of
from hqueue.settings.limits import REASON_LENGTH_MAX
from hqueue.settings.numbers import check_whole

__all__ = [
    "DeadLetter",
    "Wrapping",
    "unreadable",
    "wrapped_dead_letter",
    "wrapped_deletion",
    "wrapped_redrive",
    "wrapping_of",
]

VERSION = 1
LINE_BYTES_MAX = 64 * 1024
"""The longest first line: its reason has a thousand characters at most."""
ATTEMPTS_MAX = 2**63 - 1

_IN_THE_LOG = "in the log"


@dataclasses.dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that a subscriber or a group failed to process. It lies in the queue and in the
    partition of the original.

    Args:
        message: the original, with its key, headers, ID and partition. Its ID has the time at which
            it was written.
        subscriber: the subscriber's name; None if this is a group's dead letter.
        reason: the reason in a few words, with the exception if a listener raised one.
        attempts: how often the message was delivered; 1 if deliveries were not counted.
        id: the ID of the dead letter itself, in the same partition; its time is that of the
            rejection. None if the dead letter was not put yet.
        expired: whether the value, key and headers are lost: this dead letter only refers to the
            original in the log, which has expired.
        group: the group's name; None if this is a subscriber's dead letter.
        queue: the queue that the dead letter was read from; other queues refuse it. None if a
            program made the dead letter.
    """

    message: ReceivedMessage
    subscriber: str | None
    reason: str
    attempts: int
    id: MessageID | None = None
    expired: bool = False
    group: str | None = None
    queue: str | None = dataclasses.field(default=None, compare=False)

    @property
    def owner(self) -> DeadLetterOwner:
        """The subscriber or the group.

        Raises:
            InvalidInputError: the dead letter has both names, or none, or one that is not valid.
        """
        return DeadLetterOwner.of(self.subscriber, self.group)


def wrapped_dead_letter(letter: DeadLetter) -> Message:
    """The message for the log that is this dead letter."""
    return _wrap(letter, letter.owner.dead_letter_topic)


def wrapped_redrive(letter: DeadLetter) -> Message:
    """The message for the log that redrives a dead letter."""
    return _wrap(letter, letter.owner.redrive_topic)


def wrapped_deletion(letter: DeadLetter) -> Message:
    """The message for the log that deletes a dead letter. A program of a version without deletions
    takes it for an invalid redrive, and skips it.
    """
    owner = letter.owner
    fields = {
        "version": VERSION,
        "id": str(letter.message.id),
        owner.kind: owner.name,
        "deleted": str(letter.id),
    }
    return Message(owner.redrive_topic, _line(fields))


def _wrap(letter: DeadLetter, topic: str) -> Message:
    owner = letter.owner
    fields: dict[str, object] = {
        "version": VERSION,
        "id": str(letter.message.id),
        "topic": letter.message.topic,
        owner.kind: owner.name,
        "reason": letter.reason[:REASON_LENGTH_MAX],
        "attempts": letter.attempts,
        "dead_letter": None if letter.id is None else str(letter.id),
    }
    original = letter.message
    try:
        wrapped = Message(topic, _line(fields) + original.value, original.key, original.headers)
        encode_message(wrapped)
    except MessageTooLargeError:
        return Message(topic, _line({**fields, "value": _IN_THE_LOG}))
    return wrapped


def _line(fields: dict[str, object]) -> bytes:
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


class Wrapping(NamedTuple):
    """The first line of a dead letter's or a redrive's value."""

    id: MessageID
    topic: str
    owner: DeadLetterOwner
    reason: str
    attempts: int
    dead_letter: MessageID | None
    in_the_log: bool
    value_at: int
    """Where the original's value begins, if it is not left in the log."""
    deletes: bool = False
    """Whether the message deletes the dead letter. If so, only the ID and the owner count."""


def wrapping_of(message: ReceivedMessage) -> Wrapping:
    """Decode the first line of a message. Any program may have written it before such topics were
    reserved, so each field is checked.

    Raises:
        UnsupportedFormatError: the message is not a dead letter, redrive or deletion of its topic's
            owner.
    """
    end = message.value.find(b"\n", 0, LINE_BYTES_MAX)
    if end < 0:
        raise unreadable(message, "it does not begin with a line of JSON")

    def read(fields: dict[str, Any]) -> Wrapping:
        owner = DeadLetterOwner.of(fields.get(SUBSCRIBER), fields.get(GROUP))
        if message.topic not in (owner.dead_letter_topic, owner.redrive_topic):
            raise ValueError("the message and its topic name different owners")
        original = MessageID.parse(text_of(fields["id"]))
        if "deleted" in fields and message.topic == owner.redrive_topic:
            deleted = MessageID.parse(text_of(fields["deleted"]))
            return Wrapping(original, "", owner, "", 0, deleted, False, end + 1, deletes=True)
        letter = fields.get("dead_letter")
        wrapping = Wrapping(
            original,
            text_of(fields["topic"]),
            owner,
            text_of(fields["reason"]),
            check_whole(fields["attempts"], 0, ATTEMPTS_MAX),
            None if letter is None else MessageID.parse(text_of(letter)),
            fields.get("value") == _IN_THE_LOG,
            end + 1,
        )
        topic_bytes(wrapping.topic)
        return wrapping

    return decode_fields(message.value[:end], _position_of(message), read)


def _position_of(message: ReceivedMessage) -> str:
    return f"{message.topic}, partition {message.partition}, {message.id}"


def unreadable(message: ReceivedMessage, reason: str) -> UnsupportedFormatError:
    return UnsupportedFormatError(
        "this message is not a valid dead letter", path=_position_of(message), reason=reason
    )

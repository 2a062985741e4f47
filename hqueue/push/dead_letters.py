"""Dead letters: messages that a subscriber did not take, and putting them back to it.

They lie in the queue itself, in the partition that they came from, under a topic of the
subscriber's own; so they are as durable as everything else, and expire with the queue's TTL. A
redrive is a message as well, under another topic, which is delivered to that subscriber alone.
Nobody gets either of them unasked: a subscription to all topics does not mean these.

The key and the headers of both are the original's. The value: a JSON object in UTF-8 on the first
line, and the original value behind it.

    {"version":1,"id":"1700000000000-0","topic":"clicks","subscriber":"s","reason":"rejected",
     "attempts":1,"dead_letter":null}

``id`` and ``topic`` are the original's; ``dead_letter`` is the ID of the dead letter that a
redrive puts back. A value that fits no batch together with this line, the key and the headers stays
where it was, and so do they: ``"value":"in the log"`` says so, and all three are read from there as
long as they have not expired.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator

from hqueue.consume.scan import Scan
from hqueue.consume.scanners import PartitionScanner, QueueScanner, open_scanner
from hqueue.errors import InvalidInputError, MessageTooLargeError, UnsupportedFormatError
from hqueue.format import encode_message
from hqueue.handle import QueueLog
from hqueue.message import Message, ReceivedMessage
from hqueue.message_id import MessageID
from hqueue.settings.limits import BATCH_BYTES_MAX, REASON_LENGTH_MAX

__all__ = [
    "DeadLetter",
    "DeadLetters",
    "dead_letter_topic",
    "is_delivered_unasked",
    "redrive_topic",
    "wrapped_dead_letter",
    "wrapped_redrive",
]

VERSION = 1
_DEAD = "hqueue.dead-letters."
_REDRIVE = "hqueue.redrive."
_IN_THE_LOG = "in the log"
_PUT_BYTES_MAX = BATCH_BYTES_MAX // 2
_PUT_MESSAGES_MAX = 1_000


def dead_letter_topic(subscriber: str) -> str:
    """The topic of a subscriber's dead letters."""
    return _DEAD + subscriber


def redrive_topic(subscriber: str) -> str:
    """The topic of what is put back to a subscriber."""
    return _REDRIVE + subscriber


def is_delivered_unasked(topic: str) -> bool:
    """Whether a subscription to all topics includes this one."""
    return not topic.startswith((_DEAD, _REDRIVE))


@dataclasses.dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that a subscriber did not take.

    Args:
        message: the original, with its key, headers, ID and partition.
        subscriber: who did not take it.
        reason: why, in a few words; of a listener that raised an exception, also what that was.
        attempts: how often it was delivered.
        id: where the dead letter itself lies, in the same partition; None if it was not put yet.
        expired: whether the value, key and headers are gone: they were left in the log, and have
            expired.
    """

    message: ReceivedMessage
    subscriber: str
    reason: str
    attempts: int
    id: MessageID | None = None
    expired: bool = False


class DeadLetters:
    """The dead letters in a queue. Made by `Queue.dead_letters`.

    Args:
        log: the queue's.
    """

    def __init__(self, log: QueueLog) -> None:
        self._log = log

    def waiting(self, subscriber: str, partition: int | None = None) -> Iterator[DeadLetter]:
        """A subscriber's dead letters that were not put back yet; each partition in its order.

        Args:
            subscriber: the subscriber's name.
            partition: which; all if None.

        Raises:
            As `Queue.scan`, and UnsupportedFormatError.
        """
        with self._scanner(partition, Scan(topics=[redrive_topic(subscriber)])) as scanner:
            redriven = {(each.partition, _fields(each).get("dead_letter")) for each in scanner}
        with self._scanner(partition, Scan(topics=[dead_letter_topic(subscriber)])) as scanner:
            for message in scanner:
                if (message.partition, str(message.id)) not in redriven:
                    yield self._letter(message)

    def put(self, letters: Iterable[DeadLetter]) -> None:
        """Write dead letters, in their order, each into its message's partition. Durable on return.

        Raises:
            As `Queue.put`. Some of them may be written then.
        """
        self._put((letter, wrapped_dead_letter(letter)) for letter in letters)

    def redrive(self, letters: Iterable[DeadLetter]) -> int:
        """Put dead letters back to their subscriber, and to no other; how many.

        They are delivered like new messages: after what its partition has already, with new IDs.

        Raises:
            InvalidInputError: a value has expired.
            As `Queue.put`. Some of them may be put back then.
        """

        def wrapped() -> Iterator[tuple[DeadLetter, Message]]:
            for letter in letters:
                if letter.expired:
                    raise InvalidInputError(
                        "the value of this dead letter has expired", id=letter.id
                    )
                yield letter, wrapped_redrive(letter)

        return self._put(wrapped())

    def unwrap(self, message: ReceivedMessage) -> ReceivedMessage | None:
        """What a redrive delivers: the original under the redrive's ID; None if it has expired.

        Raises:
            UnsupportedFormatError: this message is no redrive.
        """
        letter = self._letter(message)
        if letter.expired:
            return None
        original = letter.message
        return ReceivedMessage(
            original.topic,
            original.value,
            message.id,
            message.partition,
            key=original.key,
            headers=original.headers,
        )

    def _scanner(self, partition: int | None, scan: Scan) -> PartitionScanner | QueueScanner:
        return open_scanner(self._log.reader, partition, scan)

    def _put(self, wrapped: Iterable[tuple[DeadLetter, Message]]) -> int:
        """Put messages into their letters' partitions, in batches."""
        count = size = 0
        open_for: int | None = None
        batch: list[Message] = []

        def flush() -> None:
            nonlocal size
            if batch:
                self._log.appender.put(batch, partition=open_for)
            batch.clear()
            size = 0

        for letter, message in wrapped:
            bytes_ = encode_message(message).size
            full = size + bytes_ > _PUT_BYTES_MAX or len(batch) >= _PUT_MESSAGES_MAX
            if full or letter.message.partition != open_for:
                flush()
            open_for = letter.message.partition
            batch.append(message)
            size += bytes_
            count += 1
        flush()
        return count

    def _letter(self, message: ReceivedMessage) -> DeadLetter:
        """Read a dead letter or a redrive."""
        fields = _fields(message)
        try:
            original_id = MessageID.parse(str(fields["id"]))
            topic = str(fields["topic"])
            value = message.value[message.value.index(b"\n") + 1 :]
            held: Message | None = message
            if fields.get("value") == _IN_THE_LOG:
                held = self._in_log(message.partition, original_id)
                value = b"" if held is None else held.value
            return DeadLetter(
                ReceivedMessage(
                    topic,
                    value,
                    original_id,
                    message.partition,
                    key=None if held is None else held.key,
                    headers=() if held is None else held.headers,
                ),
                str(fields["subscriber"]),
                str(fields["reason"]),
                int(str(fields["attempts"])),
                message.id,
                expired=held is None,
            )
        except (KeyError, ValueError) as exc:
            raise UnsupportedFormatError(
                "a dead letter lacks a field, or has a wrong one", id=message.id
            ) from exc

    def _in_log(self, partition: int, message_id: MessageID) -> ReceivedMessage | None:
        """The original, where it was; None if it has expired."""
        with self._scanner(partition, Scan(message_id, message_id.next())) as scanner:
            message = scanner.next()
        if message is not None and message.topic.startswith(_REDRIVE):
            return self.unwrap(message)
        return message


def wrapped_dead_letter(letter: DeadLetter) -> Message:
    """A dead letter as the message that it is in the log."""
    return _wrap(letter, dead_letter_topic(letter.subscriber))


def wrapped_redrive(letter: DeadLetter) -> Message:
    """What puts a dead letter back, as a message."""
    return _wrap(letter, redrive_topic(letter.subscriber))


def _wrap(letter: DeadLetter, topic: str) -> Message:
    fields: dict[str, object] = {
        "version": VERSION,
        "id": str(letter.message.id),
        "topic": letter.message.topic,
        "subscriber": letter.subscriber,
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


def _fields(message: ReceivedMessage) -> dict[str, object]:
    """The first line of a dead letter's or a redrive's value."""
    try:
        fields = json.loads(message.value[: message.value.index(b"\n")])
        version = fields["version"]
    except (ValueError, KeyError, TypeError) as exc:
        raise UnsupportedFormatError(
            "this is no dead letter", topic=message.topic, id=message.id
        ) from exc
    if version != VERSION:
        raise UnsupportedFormatError(
            "a dead letter has a version that this release does not know",
            id=message.id,
            version=version,
        )
    return dict(fields)

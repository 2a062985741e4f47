"""Dead letters: messages that a subscriber did not take, and putting them back to it.

They lie in the queue itself, in the partition that they came from, under a topic of the
subscriber's own; so they are as durable as everything else, and expire with the queue's TTL. A
redrive is a message as well, under another topic, which is delivered to that subscriber alone.
Nobody gets either of them unasked: a subscription to all topics does not mean these. Both topics
are the system's own (`hqueue.settings.reserved`): what else lies under them is named, and passed
over.

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

import contextlib
import dataclasses
import json
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple

from hqueue.consume.scan import Scan
from hqueue.consume.scanners import Scanner, open_scanner
from hqueue.errors import (
    CorruptLogError,
    InvalidInputError,
    MessageTooLargeError,
    UnsupportedFormatError,
)
from hqueue.format.cells import encode_message
from hqueue.handle import QueueLog
from hqueue.message import Message, ReceivedMessage, topic_bytes
from hqueue.message_id import MessageID
from hqueue.metadata import check_name
from hqueue.metadata.encoding import decode_fields, text_of
from hqueue.runtime.logs import Log
from hqueue.runtime.loop import blocking
from hqueue.runtime.seldom import SeldomLog
from hqueue.runtime.steps import Give, Wait, Work, each_given
from hqueue.runtime.stepwise import Stepwise, stepwise
from hqueue.settings.kinds import check_callback, check_kind
from hqueue.settings.limits import BATCH_BYTES_MAX, HEADER_ROOM_BYTES, REASON_LENGTH_MAX
from hqueue.settings.numbers import check_whole

__all__ = [
    "DeadLetter",
    "DeadLetterSteps",
    "DeadLetters",
    "dead_letter_topic",
    "is_delivered_unasked",
    "redrive_topic",
    "wrapped_dead_letter",
    "wrapped_redrive",
]

_log = SeldomLog(Log(__name__))

VERSION = 1
LINE_BYTES_MAX = 64 * 1024
"""The first line, at most: its reason has a thousand characters."""
ATTEMPTS_MAX = 2**63 - 1
LINKS_MAX = 1_000

_DEAD = "hqueue.dead-letters."
_REDRIVE = "hqueue.redrive."
_IN_THE_LOG = "in the log"
_PUT_BYTES_MAX = BATCH_BYTES_MAX // 2
_PUT_MESSAGES_MAX = 1_000

OnUnreadable = Callable[[ReceivedMessage, CorruptLogError], object]


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
    """A message that a subscriber failed to process.

    Args:
        message: the original, with its key, headers, ID and partition.
        subscriber: the subscriber's name.
        reason: the reason in a few words, with the exception if a listener raised one.
        attempts: how often it was delivered.
        id: the ID of the dead letter itself, in the same partition; None if it was not put yet.
        expired: whether the value, key and headers are lost, since they were left in the log and
            have expired.
    """

    message: ReceivedMessage
    subscriber: str
    reason: str
    attempts: int
    id: MessageID | None = None
    expired: bool = False


class DeadLetterSteps(Stepwise):
    """What is done with dead letters, in steps: for threads, and for event loops.

    Args:
        open_scan: opens a scanner of a partition, or of all if it is None. Its `next` and `close`
            are called in threads, or awaited in a loop.
        put: asks for messages of the system's own to be put into a partition.
        links_max: how often a message that was left in the log may have been put back.
        seldom_log: names messages that are no valid dead letters.
    """

    def __init__(
        self,
        open_scan: Callable[[int | None, Scan], Any],
        put: Callable[[list[Message], int], Wait],
        *,
        links_max: int = LINKS_MAX,
        seldom_log: SeldomLog = _log,
    ) -> None:
        self._open_scan = open_scan
        self._put_messages = put
        self._links_max = links_max
        self._seldom_log = seldom_log

    def waiting(
        self, subscriber: str, partition: int | None, on_unreadable: OnUnreadable | None
    ) -> Work[Any, None]:
        """Gives what `DeadLetters.waiting` iterates over. The arguments are checked at once."""
        check_name(subscriber)
        check_callback(on_unreadable, "on_unreadable")
        report = self._log_unreadable if on_unreadable is None else on_unreadable
        return self._waiting(subscriber, partition, report)

    def _waiting(
        self, subscriber: str, partition: int | None, report: OnUnreadable
    ) -> Work[Any, None]:
        redriven: set[tuple[int, MessageID | None]] = set()

        def note(message: ReceivedMessage, wrapping: _Wrapping) -> Work[Any, None]:
            redriven.add((message.partition, wrapping.dead_letter))
            yield from ()

        def give(message: ReceivedMessage, wrapping: _Wrapping) -> Work[Any, None]:
            if (message.partition, message.id) in redriven:
                return
            try:
                letter = yield from self._letter(message, wrapping)
            except CorruptLogError as exc:  # Also where the original lies, in the log.
                report(message, exc)
            else:
                yield Give(letter)

        yield from self._each(partition, redrive_topic(subscriber), report, note)
        yield from self._each(partition, dead_letter_topic(subscriber), report, give)

    def _each(
        self,
        partition: int | None,
        topic: str,
        report: OnUnreadable,
        take: Callable[[ReceivedMessage, _Wrapping], Work[Any, None]],
    ) -> Work[Any, None]:
        """Take what can be read under a topic."""
        scanner = self._open_scan(partition, Scan(topics=[topic]))
        while (message := (yield Wait(scanner.next, scanner.next))) is not None:
            try:
                wrapping = _wrapping_of(message)
            except UnsupportedFormatError as exc:
                report(message, exc)
            else:
                yield from take(message, wrapping)
        yield Wait(scanner.close, scanner.close)

    @stepwise
    def put(self, letters: Iterable[DeadLetter]) -> Work[Any, None]:
        """As `DeadLetters.put`."""
        yield from self._put((letter, wrapped_dead_letter(letter)) for letter in _letters(letters))

    @stepwise
    def redrive(self, letters: Iterable[DeadLetter]) -> Work[Any, int]:
        """As `DeadLetters.redrive`."""

        def wrapped() -> Iterator[tuple[DeadLetter, Message]]:
            for letter in _letters(letters):
                if letter.expired:
                    raise InvalidInputError(
                        "the value of this dead letter has expired", id=letter.id
                    )
                yield letter, wrapped_redrive(letter)

        return (yield from self._put(wrapped()))

    @stepwise
    def redriven(self, message: ReceivedMessage) -> Work[Any, ReceivedMessage | None]:
        """As `DeadLetters.redriven`."""
        try:
            return (yield from self.unwrap.steps(message))
        except UnsupportedFormatError as exc:
            self._log_unreadable(message, exc)
            return None

    @stepwise
    def unwrap(self, message: ReceivedMessage) -> Work[Any, ReceivedMessage | None]:
        """As `DeadLetters.unwrap`."""
        check_kind(message, ReceivedMessage, "message")
        letter = yield from self._letter(message, _wrapping_of(message))
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

    def _put(self, wrapped: Iterable[tuple[DeadLetter, Message]]) -> Work[Any, int]:
        """Put messages into their letters' partitions, in batches."""
        count = size = 0
        open_for: int | None = None
        batch: list[Message] = []

        def flush() -> Work[Any, None]:
            nonlocal size
            if batch:
                assert open_for is not None
                yield self._put_messages(list(batch), open_for)
            batch.clear()
            size = 0

        for letter, message in wrapped:
            bytes_ = encode_message(message).size + HEADER_ROOM_BYTES * len(message.headers)
            full = size + bytes_ > _PUT_BYTES_MAX or len(batch) >= _PUT_MESSAGES_MAX
            if full or letter.message.partition != open_for:
                yield from flush()
            open_for = letter.message.partition
            batch.append(message)
            size += bytes_
            count += 1
        yield from flush()
        return count

    def _letter(self, message: ReceivedMessage, wrapping: _Wrapping) -> Work[Any, DeadLetter]:
        """A dead letter or a redrive, with the original's value, key and headers."""
        value: bytes
        held: Message | None = message
        if wrapping.in_the_log:
            held = yield from self._in_log(message, wrapping)
            value = b"" if held is None else held.value
        else:
            value = message.value[wrapping.value_at :]
        try:
            original = ReceivedMessage(
                wrapping.topic,
                value,
                wrapping.id,
                message.partition,
                key=None if held is None else held.key,
                headers=() if held is None else held.headers,
            )
        except InvalidInputError as exc:
            raise _unreadable(message, "it names a topic that no message can have") from exc
        return DeadLetter(
            original,
            wrapping.subscriber,
            wrapping.reason,
            wrapping.attempts,
            message.id,
            expired=held is None,
        )

    def _in_log(self, message: ReceivedMessage, wrapping: _Wrapping) -> Work[Any, Message | None]:
        """What holds the value, key and headers, where it was; None if it has expired. The original
        may be a redrive that left them in the log itself: each lies before the one that names it.
        """
        named_by = message
        for _ in range(self._links_max):
            if wrapping.id >= named_by.id:
                raise _unreadable(message, "what it stands for does not lie before it")
            scanner = self._open_scan(message.partition, Scan(wrapping.id, wrapping.id.next()))
            found: ReceivedMessage | None = yield Wait(scanner.next, scanner.next)
            yield Wait(scanner.close, scanner.close)
            if found is None or not found.topic.startswith(_REDRIVE):
                return found
            named_by, wrapping = found, _wrapping_of(found)
            if not wrapping.in_the_log:
                value = found.value[wrapping.value_at :]
                return Message(wrapping.topic, value, found.key, found.headers)
        raise _unreadable(message, "the message that it stands for was put back too often")

    def _log_unreadable(self, message: ReceivedMessage, error: CorruptLogError) -> None:
        self._seldom_log.warning(
            "skipped a message that is not a valid dead letter: partition %d, %s: %s",
            message.partition,
            message.id,
            error,
        )


class DeadLetters:
    """The dead letters in a queue, to read and to redrive. Made by `Queue.dead_letters`.

    Args:
        log: the queue's log.
    """

    def __init__(self, log: QueueLog) -> None:
        self._log = log

    def waiting(
        self,
        subscriber: str,
        partition: int | None = None,
        *,
        on_unreadable: OnUnreadable | None = None,
    ) -> Iterator[DeadLetter]:
        """Iterate over a subscriber's dead letters that were not redriven yet, each partition in
        its order.

        Args:
            subscriber: the subscriber's name.
            partition: the partition; all if None.
            on_unreadable: called with each message under the subscriber's topics that is neither a
                dead letter nor a redrive, or whose original can't be read, and with the reason. The
                iteration continues after it. If None, such messages are logged, at most once a
                second.

        Raises:
            As `Queue.scan`.
        """
        opened: list[Scanner] = []
        work = self._steps(opened).waiting(subscriber, partition, on_unreadable)
        return self._each(work, opened)

    def _each(self, work: Work[Any, None], opened: list[Scanner]) -> Iterator[DeadLetter]:
        with _closing(opened):
            yield from each_given(work, _nothing)

    def put(self, letters: Iterable[DeadLetter]) -> None:
        """Write dead letters, in their order, each into its message's partition. They are durable
        when the call returns.

        Raises:
            As `Queue.put`. Some of the dead letters may have been written.
        """
        self._steps([]).put(letters)

    def redrive(self, letters: Iterable[DeadLetter]) -> int:
        """Deliver dead letters to their subscriber again, and to no other. Returns how many.

        They are delivered like new messages: with new IDs, after the messages that the partition
        has already.

        Raises:
            InvalidInputError: the value of a dead letter has expired.
            As `Queue.put`. Some of the dead letters may have been redriven.
        """
        return self._steps([]).redrive(letters)

    def redriven(self, message: ReceivedMessage) -> ReceivedMessage | None:
        """The message that a redrive delivers, like `unwrap`. A message under a subscriber's topic
        of redrives that is not a redrive is logged, and the result is None.

        Raises:
            As `Queue.scan`, if the original can't be read now.
        """
        opened: list[Scanner] = []
        with _closing(opened):
            return self._steps(opened).redriven(message)

    def unwrap(self, message: ReceivedMessage) -> ReceivedMessage | None:
        """The message that a redrive delivers: the original under the redrive's ID; None if the
        original has expired.

        Raises:
            UnsupportedFormatError: the message is not a redrive.
        """
        opened: list[Scanner] = []
        with _closing(opened):
            return self._steps(opened).unwrap(message)

    def _steps(self, opened: list[Scanner]) -> DeadLetterSteps:
        """The steps of one call, that note which scanners they open."""

        def open_scan(partition: int | None, scan: Scan) -> Scanner:
            scanner = open_scanner(self._log.reader, partition, scan)
            opened.append(scanner)
            return scanner

        def put(messages: list[Message], partition: int) -> Wait:
            return blocking(partial(self._log.appender.put_system, messages, partition))

        return DeadLetterSteps(open_scan, put)


@contextlib.contextmanager
def _closing(scanners: list[Scanner]) -> Iterator[None]:
    """Close what is opened in a block."""
    try:
        yield
    finally:
        for scanner in scanners:
            scanner.close()


def _nothing(step: object) -> None:
    """There are no steps but those that wait."""


def _letters(letters: Iterable[DeadLetter]) -> Iterator[DeadLetter]:
    """Those that must be put, one by one.

    Raises:
        InvalidInputError: one is not a dead letter.
    """
    check_kind(letters, Iterable, "letters")
    for letter in letters:
        yield check_kind(letter, DeadLetter, "letters")


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


class _Wrapping(NamedTuple):
    """The first line of a dead letter's or a redrive's value."""

    id: MessageID
    topic: str
    subscriber: str
    reason: str
    attempts: int
    dead_letter: MessageID | None
    in_the_log: bool
    value_at: int
    """Where the original's value begins, if it is not left in the log."""


def _wrapping_of(message: ReceivedMessage) -> _Wrapping:
    """Read the first line. Anybody may have written it before such topics were the system's own:
    so nothing of it is believed that can't be.

    Raises:
        UnsupportedFormatError: this is not a dead letter and not a redrive of its topic's
            subscriber.
    """
    end = message.value.find(b"\n", 0, LINE_BYTES_MAX)
    if end < 0:
        raise _unreadable(message, "it does not begin with a line of JSON")

    def read(fields: dict[str, Any]) -> _Wrapping:
        letter = fields.get("dead_letter")
        wrapping = _Wrapping(
            MessageID.parse(text_of(fields["id"])),
            text_of(fields["topic"]),
            check_name(fields["subscriber"]),
            text_of(fields["reason"]),
            check_whole(fields["attempts"], 0, ATTEMPTS_MAX),
            None if letter is None else MessageID.parse(text_of(letter)),
            fields.get("value") == _IN_THE_LOG,
            end + 1,
        )
        topic_bytes(wrapping.topic)
        wrapping.reason.encode()  # One half of a surrogate pair could be shown and written nowhere.
        name = wrapping.subscriber
        if message.topic not in (dead_letter_topic(name), redrive_topic(name)):
            raise ValueError("the message names another subscriber than its topic does")
        return wrapping

    return decode_fields(message.value[:end], _position_of(message), read)


def _position_of(message: ReceivedMessage) -> str:
    return f"{message.topic}, partition {message.partition}, {message.id}"


def _unreadable(message: ReceivedMessage, reason: str) -> UnsupportedFormatError:
    return UnsupportedFormatError(
        "this message is not a valid dead letter", path=_position_of(message), reason=reason
    )

"""What is done with dead letters, in steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from hqueue.consume.scan import Scan
from hqueue.dead_letters.topics import dead_letter_topic, is_redrive, redrive_topic
from hqueue.dead_letters.wrapping import (
    DeadLetter,
    Wrapping,
    unreadable,
    wrapped_dead_letter,
    wrapped_redrive,
    wrapping_of,
)
from hqueue.errors import CorruptLogError, InvalidInputError, UnsupportedFormatError
from hqueue.format.cells import encode_message
from hqueue.message import Message, ReceivedMessage
from hqueue.message_id import MessageID
from hqueue.metadata import check_name
from hqueue.runtime.logs import Log
from hqueue.runtime.seldom import SeldomLog
from hqueue.runtime.steps import Give, Wait, Work
from hqueue.runtime.stepwise import Stepwise, stepwise
from hqueue.settings.kinds import check_callback, check_kind
from hqueue.settings.limits import BATCH_BYTES_MAX, HEADER_ROOM_BYTES

__all__ = ["DeadLetterSteps", "OnUnreadable"]

_log = SeldomLog(Log(__name__))

LINKS_MAX = 1_000

_PUT_BYTES_MAX = BATCH_BYTES_MAX // 2
_PUT_MESSAGES_MAX = 1_000

OnUnreadable = Callable[[ReceivedMessage, CorruptLogError], object]


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

        def note(message: ReceivedMessage, wrapping: Wrapping) -> Work[Any, None]:
            redriven.add((message.partition, wrapping.dead_letter))
            yield from ()

        def give(message: ReceivedMessage, wrapping: Wrapping) -> Work[Any, None]:
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
        take: Callable[[ReceivedMessage, Wrapping], Work[Any, None]],
    ) -> Work[Any, None]:
        """Take what can be read under a topic."""
        scanner = self._open_scan(partition, Scan(topics=[topic]))
        while (message := (yield Wait(scanner.next, scanner.next))) is not None:
            try:
                wrapping = wrapping_of(message)
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
        letter = yield from self._letter(message, wrapping_of(message))
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

    def _letter(self, message: ReceivedMessage, wrapping: Wrapping) -> Work[Any, DeadLetter]:
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
            raise unreadable(message, "it names a topic that no message can have") from exc
        return DeadLetter(
            original,
            wrapping.subscriber,
            wrapping.reason,
            wrapping.attempts,
            message.id,
            expired=held is None,
        )

    def _in_log(self, message: ReceivedMessage, wrapping: Wrapping) -> Work[Any, Message | None]:
        """What holds the value, key and headers, where it was; None if it has expired. The original
        may be a redrive that left them in the log itself: each lies before the one that names it.
        """
        named_by = message
        for _ in range(self._links_max):
            if wrapping.id >= named_by.id:
                raise unreadable(message, "what it stands for does not lie before it")
            scanner = self._open_scan(message.partition, Scan(wrapping.id, wrapping.id.next()))
            found: ReceivedMessage | None = yield Wait(scanner.next, scanner.next)
            yield Wait(scanner.close, scanner.close)
            if found is None or not is_redrive(found.topic):
                return found
            named_by, wrapping = found, wrapping_of(found)
            if not wrapping.in_the_log:
                value = found.value[wrapping.value_at :]
                return Message(wrapping.topic, value, found.key, found.headers)
        raise unreadable(message, "the message that it stands for was put back too often")

    def _log_unreadable(self, message: ReceivedMessage, error: CorruptLogError) -> None:
        self._seldom_log.warning(
            "skipped a message that is not a valid dead letter: partition %d, %s: %s",
            message.partition,
            message.id,
            error,
        )


def _letters(letters: Iterable[DeadLetter]) -> Iterator[DeadLetter]:
    """Those that must be put, one by one.

    Raises:
        InvalidInputError: one is not a dead letter.
    """
    check_kind(letters, Iterable, "letters")
    for letter in letters:
        yield check_kind(letter, DeadLetter, "letters")

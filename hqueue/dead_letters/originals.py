"""Finds the originals of dead letters and redrives, which may have been left in the log."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from hqueue.consume.decode import messages_of
from hqueue.consume.scan import Scan
from hqueue.dead_letters.topics import GROUP, SUBSCRIBER, is_redrive
from hqueue.dead_letters.wrapping import DeadLetter, Wrapping, unreadable, wrapping_of
from hqueue.errors import (
    CorruptLogError,
    HQueueError,
    InvalidInputError,
    UnsupportedFormatError,
)
from hqueue.handle import QueueLog
from hqueue.log import Batch, PartitionCursor
from hqueue.log.steps import Work as LogWork
from hqueue.message import Message, ReceivedMessage
from hqueue.message_id import MessageID
from hqueue.runtime.clock import Deadline
from hqueue.runtime.logs import Log
from hqueue.runtime.seldom import SeldomLog
from hqueue.runtime.steps import Wait, Work
from hqueue.runtime.stepwise import Stepwise, stepwise
from hqueue.settings.kinds import check_kind

__all__ = ["Originals", "message_at"]

_log = SeldomLog(Log(__name__))

LINKS_MAX = 1_000
_ONE_BYTES = 1


class Originals(Stepwise):
    """Finds the originals of dead letters and redrives, in steps.

    Args:
        read_one: asks for the message with an ID in a partition. The answer is None if the message
            has expired.
        queue: the queue of both, which the dead letters name; None if they name none.
        links_max: how often a message that was left in the log may have been redriven.
        seldom_log: reports messages that are not valid dead letters.
    """

    def __init__(
        self,
        read_one: Callable[[int, MessageID], Wait],
        *,
        queue: str | None = None,
        links_max: int = LINKS_MAX,
        seldom_log: SeldomLog = _log,
    ) -> None:
        self._read_one = read_one
        self._queue = queue
        self._links_max = links_max
        self._seldom_log = seldom_log

    @stepwise
    def redriven(self, message: ReceivedMessage) -> Work[Any, ReceivedMessage | None]:
        """As `DeadLetters.redriven`."""
        try:
            return (yield from self.unwrap.steps(message))
        except UnsupportedFormatError as exc:
            self.log_unreadable(message, exc)
            return None

    @stepwise
    def unwrap(self, message: ReceivedMessage) -> Work[Any, ReceivedMessage | None]:
        """As `DeadLetters.unwrap`."""
        check_kind(message, ReceivedMessage, "message")
        wrapping = wrapping_of(message)
        if wrapping.deletes:
            return None
        letter = yield from self.letter(message, wrapping)
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

    def letter(self, message: ReceivedMessage, wrapping: Wrapping) -> Work[Any, DeadLetter]:
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
        kind, name = wrapping.owner
        return DeadLetter(
            original,
            name if kind == SUBSCRIBER else None,
            wrapping.reason,
            wrapping.attempts,
            message.id,
            expired=held is None,
            group=name if kind == GROUP else None,
            queue=self._queue,
        )

    def _in_log(self, message: ReceivedMessage, wrapping: Wrapping) -> Work[Any, Message | None]:
        """The message in the log that has the value, key and headers; None if it has expired. The
        original may be a redrive that itself left them in the log: then the search goes on with
        that redrive's original, which lies before it.
        """
        named_by = message
        for _ in range(self._links_max):
            if wrapping.id >= named_by.id:
                raise unreadable(message, "its original does not come before it in the log")
            found: ReceivedMessage | None
            found = yield self._read_one(message.partition, wrapping.id)
            if found is None or not is_redrive(found.topic):
                return found
            named_by, wrapping = found, wrapping_of(found)
            if wrapping.deletes:
                raise unreadable(message, "its original is the deletion of a dead letter")
            if not wrapping.in_the_log:
                value = found.value[wrapping.value_at :]
                return Message(wrapping.topic, value, found.key, found.headers)
        raise unreadable(message, "its original was redriven too often")

    def log_unreadable(self, message: ReceivedMessage, error: CorruptLogError) -> None:
        """Log a message that is not a valid dead letter, at most once a second."""
        self._seldom_log.warning(
            "skipped a message that is not a valid dead letter: partition %d, %s: %s",
            message.partition,
            message.id,
            error,
        )


def message_at(log: QueueLog, partition: int, message_id: MessageID) -> Wait:
    """Asks for the message with an ID. The answer is None if the message has expired."""
    scan = Scan(message_id, message_id.next())

    def cursor() -> PartitionCursor:
        return log.reader.reading.cursor(partition, scan, _ONE_BYTES, None)

    def read(cursor: PartitionCursor, deadline: Deadline) -> LogWork[list[Batch]]:
        try:
            batches = yield from cursor.read(deadline)
        except HQueueError:
            yield from cursor.release()
            raise
        yield from cursor.release()
        return batches

    def first(batches: Sequence[Batch]) -> ReceivedMessage | None:
        return next((each for batch in batches for each in messages_of(batch)), None)

    def here() -> ReceivedMessage | None:
        return first(log.reader.do(partial(read, cursor())))

    async def in_loop() -> ReceivedMessage | None:
        batches = await log.loop_reader.do(partial(read, cursor()))
        return await log.loop_reader.decoded_together(batches, first)

    return Wait(here, in_loop)

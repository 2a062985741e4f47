"""The answers of listeners: one for all messages of a call, or one for each message."""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from hqueue.errors import InvalidInputError
from hqueue.message import ReceivedMessage
from hqueue.message_id import MessageID
from hqueue.settings.limits import REASON_LENGTH_MAX
from hqueue.settings.numbers import check_whole

__all__ = [
    "REJECTED_MAX",
    "RETRY_DELAY_MS_MAX",
    "Answer",
    "CombinedAnswer",
    "DeliveryAnswer",
    "MessageAnswers",
    "Status",
    "reason_of",
    "status_of",
]

REJECTED_MAX = 1_000
"""The most messages that one answer rejects. A worker treats an answer with more as an error."""
RETRY_DELAY_MS_MAX = 86_400_000
REASONS_LENGTH_MAX = 16_000
"""The most characters in all reasons of an answer: it has far fewer bytes than a worker reads."""


class Status(enum.IntEnum):
    """A listener's answer: what happens to the messages that it was given."""

    DONE = 0
    """The messages are acknowledged; the next ones follow."""

    RETRY = 1
    """A negative acknowledgement: the same messages are delivered again after a pause, before any
    later ones of their partition."""

    DEAD_LETTER = 2
    """A negative acknowledgement without a retry: the messages become dead letters, and the next
    ones follow."""


class DeliveryAnswer:
    """A listener's answer for each message of a delivery. Messages that it does not name are done.

    answer = hqueue.DeliveryAnswer()
    for message in messages:
        try:
            index(message)
        except ValueError as exc:
            answer.reject(message, str(exc))
        except ConnectionError:
            return answer.retry_from(message, delay_ms=5_000)
    return answer
    """

    def __init__(self) -> None:
        self._rejected: dict[MessageID, str] = {}
        self._again: _Again | None = None

    def reject(self, message: ReceivedMessage, reason: str = "") -> DeliveryAnswer:
        """Make only this message a dead letter. Returns the answer itself.

        Args:
            message: a message of the delivery.
            reason: why the message is rejected, for the dead letter. Cut off after 1,000
                characters.

        Raises:
            InvalidInputError: an argument is of the wrong type.
        """
        if not isinstance(reason, str):
            raise InvalidInputError("a reason must be a str", type=type(reason).__name__)
        self._rejected[_id_of(message)] = _short(reason)
        return self

    def retry_from(
        self, message: ReceivedMessage, reason: str = "", *, delay_ms: int | None = None
    ) -> DeliveryAnswer:
        """Have this message, and all that follow it in the delivery, delivered again after a pause,
        before any later messages. The messages before it are done, or rejected. Returns the answer
        itself.

        Args:
            message: a message of the delivery.
            reason: why the message must be delivered again, for the dead letter if the attempts are
                used up.
            delay_ms: the pause, in milliseconds; if None, the back-off of `DeliveryOptions`. A
                worker that restarts during the pause does not wait for its end.

        Raises:
            InvalidInputError: an argument is of the wrong type, or out of range.
        """
        if not isinstance(reason, str):
            raise InvalidInputError("a reason must be a str", type=type(reason).__name__)
        if delay_ms is not None:
            delay_ms = check_whole(delay_ms, 0, RETRY_DELAY_MS_MAX, option="delay_ms")
        self._again = _Again(_id_of(message), _short(reason), delay_ms)
        return self


class _Again(NamedTuple):
    """The first message that is delivered again, with all that follow it."""

    message_id: MessageID
    reason: str
    delay_ms: int | None


class MessageAnswers(NamedTuple):
    """An answer for each message of a call. Messages are counted from 0, in the call's order.

    Args:
        rejected: the messages that become dead letters, and why.
        retry_from: the first message that is delivered again, with all that follow it; None if none
            is. No message from there on is rejected.
        retry_delay_ms: the pause before the retry; None for the back-off of the subscription.
    """

    rejected: Mapping[int, str] = {}
    retry_from: int | None = None
    retry_delay_ms: int | None = None


class Answer(NamedTuple):
    """The combined answer of all listeners."""

    status: Status
    reason: str = ""
    """Why messages are not done or are delivered again: a listener's exception or reason. Empty if
    there is neither."""
    each: MessageAnswers | None = None
    """An answer for each message, in place of the status."""


class CombinedAnswer:
    """Combines the answers of a call's listeners, which are called one after another. Each gets the
    messages that are done for all listeners before it.

    Args:
        messages: the messages of the call.
    """

    def __init__(self, messages: Sequence[ReceivedMessage]) -> None:
        self.left = messages
        """The messages for the next listener."""
        self._messages = messages
        self._rejected: dict[MessageID, str] = {}
        self._again: _Again | None = None
        self._status = Status.DONE
        self._reason = ""
        self._is_for_all = True

    def add(self, returned: object) -> bool:
        """Add what the next listener returned. Returns whether another listener must be called.

        Raises:
            InvalidInputError: the listener returned something that is not an answer.
        """
        if isinstance(returned, DeliveryAnswer):
            self._add_each(returned)
        else:
            self._add_status(status_of(returned), "")
        return bool(self.left)

    def failed(self, error: BaseException) -> None:
        """Note that the next listener raised an error: its messages are delivered again."""
        self._add_status(Status.RETRY, reason_of(error))

    def result(self) -> Answer:
        """The combined answer."""
        if self._is_for_all:
            return Answer(self._status, self._reason)
        if not self._rejected and self._again is None:
            return Answer(Status.DONE)
        rejected: dict[int, str] = {}
        length = 0
        for index, message in enumerate(self._messages):
            if self._again is not None and message.id == self._again.message_id:
                again = self._again
                each = MessageAnswers(rejected, index, again.delay_ms)
                return Answer(Status.RETRY, again.reason, each)
            reason = self._rejected.get(message.id)
            if reason is not None:
                if len(rejected) == REJECTED_MAX:  # A second delivery rejects the others.
                    return Answer(Status.RETRY, "", MessageAnswers(rejected, index, 0))
                rejected[index] = reason[: max(0, REASONS_LENGTH_MAX - length)]
                length += len(reason)
        return Answer(Status.RETRY, "", MessageAnswers(rejected))

    def _add_status(self, status: Status, reason: str) -> None:
        if status is Status.DONE:
            return
        self._status, self._reason = status, reason
        if not self._is_for_all and status is Status.DEAD_LETTER:
            self._rejected.update((message.id, reason) for message in self.left)
        elif not self._is_for_all:
            self._again = _Again(self.left[0].id, reason, None)
        self.left = ()

    def _add_each(self, answer: DeliveryAnswer) -> None:
        given = {message.id for message in self.left}
        again, rejected = answer._again, answer._rejected
        if not given.issuperset(rejected) or (again and again.message_id not in given):
            raise InvalidInputError(
                "a listener's answer names a message that the listener was not given: name only "
                "messages of the delivery"
            )
        self._is_for_all = False
        self._rejected.update(rejected)
        if again is not None:
            self._again = again
        self.left = [
            message
            for message in self.left
            if message.id not in rejected and (again is None or message.id < again.message_id)
        ]


def status_of(answer: object) -> Status:
    """The status that a listener's return value means.

    Raises:
        InvalidInputError: the value is not an answer.
    """
    if answer is None:
        return Status.DONE
    if not isinstance(answer, bool):  # As numbers, True would mean retry.
        with contextlib.suppress(ValueError):
            return Status(answer)  # type: ignore[arg-type]
    shown = answer if isinstance(answer, int) else type(answer).__name__  # It may be a payload.
    raise InvalidInputError(
        "a listener must return a Status, a DeliveryAnswer or None", returned=shown
    )


def reason_of(error: BaseException) -> str:
    """An exception as a short text that can be encoded as UTF-8."""
    name = type(error).__name__
    try:
        text = str(error)
    except BaseException:  # Its class is the listener's own.
        text = ""
    return _short(f"{name}: {text}" if text else name)


def _short(text: str) -> str:
    """The beginning of a text, changed where it can't be encoded as UTF-8."""
    return text[:REASON_LENGTH_MAX].encode(errors="replace").decode()


def _id_of(message: ReceivedMessage) -> MessageID:
    if not isinstance(message, ReceivedMessage):
        raise InvalidInputError(
            "an answer must name a message of the delivery: give the message itself",
            type=type(message).__name__,
        )
    return message.id

"""The subscriber's side of ``HQueueSubscriberService``."""

from __future__ import annotations

import abc
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from hqueue.errors import InvalidInputError
from hqueue.message import Headers, ReceivedMessage
from hqueue.message_id import MessageID
from hqueue.push.answers import Answer, Status
from hqueue.push.listener import Listeners
from hqueue.push.worker_call import known_topic
from hqueue.rpc.messages import Reasoned, RefusedCallError
from hqueue.rpc.services import load
from hqueue.runtime.held import Held, NotHeldError
from hqueue.runtime.steps import Wait

__all__ = [
    "Admit",
    "Consumption",
    "SubscriberHandler",
    "admit_all",
    "received_message",
    "received_messages",
    "reply_of",
    "subscriber_service",
]

Admit = Callable[[int], AbstractContextManager[Wait]]
"""Entered with the partition of a call; gives what asks whether the call may be handled."""

NOT_ADMITTED = "this member of the subscriber does not have the partition"


def subscriber_service() -> Any:
    """The service of the IDL. Reading the IDL takes a while, the first time."""
    return load("subscriber").HQueueSubscriberService


class SubscriberHandler(abc.ABC):
    """The service's handler. It converts the messages of a call for `consume`."""

    def consumeMessages(self, messages: Sequence[Any] | None) -> Reasoned:  # noqa: N802  (the IDL's)
        """As the IDL has it.

        Raises:
            RefusedCallError: no queue can hold one of the messages, the list of messages is
                missing, or they are not for this subscriber.
            TDeliveryAnswer: the exception of the IDL that has an answer for each message.
        """
        if messages is None:
            raise RefusedCallError("the argument 'messages' is missing")
        try:
            received = [received_message(message) for message in messages]
        except (InvalidInputError, UnicodeDecodeError) as exc:
            raise RefusedCallError("a queue can't hold this message") from exc
        return reply_of(self.consume(received))

    @abc.abstractmethod
    def consume(self, messages: Sequence[ReceivedMessage]) -> Answer:
        """Give messages of one partition to the listeners that they are for.

        Raises:
            RefusedCallError: no listener here takes them.
        """


class Consumption(SubscriberHandler):
    """Gives the messages of each call to the listeners.

    Calls for one partition are handled one after another, also when a caller gave up waiting and
    calls again. A call that can't be handled in time is answered with *retry*.

    Args:
        listeners: get the messages.
        calls_max: how many calls the listeners handle at a time.
        timeout_ms: how long a call may wait for its turn.
        admit: entered with the partition of a call while the call is handled; gives a step that
            asks whether the call may be handled. If None, all calls may.
    """

    def __init__(
        self,
        listeners: Listeners,
        calls_max: int,
        timeout_ms: int,
        admit: Admit | None = None,
    ) -> None:
        self._listeners = listeners
        self._admit = admit or admit_all
        self._timeout_ms = timeout_ms
        self._turn = threading.BoundedSemaphore(calls_max)
        self._partitions: dict[int, threading.Lock] = {}
        self._lock = threading.RLock()

    def consume(self, messages: Sequence[ReceivedMessage]) -> Answer:
        """Give messages of one partition to the listeners, when it is their turn.

        Raises:
            RefusedCallError: another member has the partition, or may have it. A worker does not
                count that as an attempt, and calls again.
        """
        if not messages:
            return Answer(Status.DONE)
        number = messages[0].partition
        with self._admit(number) as asked:  # A call for another member's partition needs not wait.
            if not asked.here():
                raise RefusedCallError(NOT_ADMITTED)
        with self._lock:
            partition = self._partitions.setdefault(number, threading.Lock())
        wait_s = self._timeout_ms / 1e3
        try:
            with Held(partition, wait_s), Held(self._turn, wait_s), self._admit(number) as asked:
                if not asked.here():
                    raise RefusedCallError(NOT_ADMITTED)
                return self._listeners.consume(messages)
        except NotHeldError:
            return Answer(Status.RETRY)


def reply_of(answer: Answer) -> Reasoned:
    """The reply to a call, with one answer for all of its messages.

    Raises:
        TDeliveryAnswer: the exception of the IDL that has an answer for each message.
    """
    each = answer.each
    if each is None:
        return Reasoned(answer.status, answer.reason)
    raise load("subscriber").TDeliveryAnswer(
        each.rejected or None, each.retry_from, answer.reason or None, each.retry_delay_ms
    )


async def _true() -> bool:
    return True


_ADMITTED = nullcontext(Wait(lambda: True, _true))


def admit_all(partition: int) -> AbstractContextManager[Wait]:
    """Admits each call."""
    return _ADMITTED


def received_messages(messages: Sequence[Any] | None) -> list[ReceivedMessage]:
    """The messages of a call as the library has them.

    Raises:
        RefusedCallError: no queue can hold one of the messages, or their list is missing.
    """
    if messages is None:
        raise RefusedCallError("the argument 'messages' is missing")
    try:
        return [received_message(message) for message in messages]
    except (InvalidInputError, UnicodeDecodeError) as exc:
        raise RefusedCallError("one of the messages is not valid: no queue can hold it") from exc


def received_message(message: Any) -> ReceivedMessage:
    """A message as the library has it.

    Raises:
        InvalidInputError, UnicodeDecodeError: no queue can hold the message.
    """
    if message.id is None or message.partitionID is None:
        raise InvalidInputError("a delivered message needs an ID and a partition")
    message_id = MessageID(message.id.timestamp, message.id.sequenceID)
    # Built without a call in Python: its value is bounded with the call, and its topic is checked.
    return tuple.__new__(
        ReceivedMessage,
        (
            known_topic(message.topic or b""),
            message.value or b"",
            message.key,
            _headers(message.headers),
            message_id,
            message.partitionID,
        ),
    )


def _headers(headers: Sequence[Any] | None) -> Headers:
    """Headers as the library has them, likewise."""
    if not headers:
        return ()
    if any(header.name is None or header.value is None for header in headers):
        raise InvalidInputError("a header needs a name and a value")
    return tuple([(header.name.decode(), header.value) for header in headers])

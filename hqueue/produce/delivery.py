"""Messages that were sent through a `Producer`, and their outcomes."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar, cast

from hqueue.errors import ClosedError, InvalidInputError, Outcome
from hqueue.format.cells import encode_values
from hqueue.format.header import Bodies
from hqueue.message import Headers
from hqueue.message_id import MessageID, MessageIDs
from hqueue.runtime.interrupts import is_interruption
from hqueue.runtime.pieces import drop_in_pieces
from hqueue.runtime.turn import OWN_TURN
from hqueue.runtime.waiting import Condition, InterruptibleFuture
from hqueue.settings.kinds import check_timeout_s

__all__ = ["BatchFuture", "Delivery", "DeliveryCallback", "PendingBatch", "Taken", "Target"]

DeliveryCallback = Callable[[MessageID | None, BaseException | None], object]
"""A callback of a producer, called with (ID, None) or (None, error)."""

Extra = tuple[bytes | None, Headers]
"""A message's key and headers."""

# No `Message` is kept: those are what Python's garbage collection looks through.
Taken = tuple[str, bytes, Extra | None, DeliveryCallback | None]
"""A message's topic and value, what it has besides, and what is called in the end."""

Target = TypeVar("Target")
_IDs = TypeVar("_IDs", MessageID, Sequence[MessageID])


class BatchFuture(InterruptibleFuture[MessageIDs]):
    """The outcome of a batch: the IDs of its messages, or an error."""

    inherited = False
    """Whether it was not known yet when this process was forked: its parent alone learns it."""
    changed: Condition | None = None
    """What its writer needs the lock of."""


class PendingBatch(Generic[Target]):
    """Messages that will be appended together: gathered one by one, or encoded already.

    Args:
        target: where they go; None if anywhere.
        opened_ms: when it was begun.
        room: how many bytes of messages it may take, about.
    """

    __slots__ = (
        "bodies", "buffered", "calls_back", "future", "kinds", "left", "opened_ms", "outcome",
        "room", "taken", "target", "to_call",
    )  # fmt: skip

    def __init__(self, target: Target | None, opened_ms: float, room: int) -> None:
        self.target = target
        self.opened_ms = opened_ms
        self.room = room
        """How many bytes of messages it may still take, about."""
        self.left = 0
        """How many messages it may still take."""
        self.buffered = 0
        """How many of the buffer's bytes are its own, about."""
        self.taken: list[Taken] = []
        """What it has of each message, in one piece: a sender may be interrupted anywhere."""
        self.kinds: set[str] = set()
        """The topics, each once."""
        self.bodies: Bodies | None = None
        self.calls_back = False
        """Whether some message has a callback."""
        self.outcome: tuple[MessageIDs, BaseException | None] | None = None
        """The outcome, once it was written or failed."""
        self.to_call: Iterator[tuple[int, Taken]] | None = None
        """The messages whose callbacks were not called yet, since it is time to."""
        self.future = BatchFuture(carried=True)

    def encoded(self) -> Bodies:
        """Its messages as a batch.

        Raises:
            InvalidInputError, MessageTooLargeError: as `encode_values`.
        """
        if self.bodies is not None:
            return self.bodies
        topics = [topic for topic, _, _, _ in self.taken]
        values = [value for _, value, _, _ in self.taken]
        extras = [extra for _, _, extra, _ in self.taken]
        if not any(extras):
            return encode_values(topics, values)
        keys = [None if extra is None else extra[0] for extra in extras]
        headers: list[Headers] = [() if extra is None else extra[1] for extra in extras]
        return encode_values(topics, values, keys, headers)

    def encode_once(self) -> Bodies:
        """As `encoded`. If no message has a callback, they are not kept beside the result."""
        self.bodies = self.encoded()
        if not self.calls_back:
            drop_in_pieces(self.taken)
        return self.bodies


class Delivery(Generic[_IDs]):
    """The pending result of one message or one batch that was sent through a `Producer`.

    Made by `Producer.send`, `Producer.send_batch` and `HubProducer.send`. In a forked child each
    call raises `ClosedError` if the result was not known yet at the fork.
    """

    __slots__ = ("_future", "_index")

    def __init__(self, future: BatchFuture, index: int | None = None) -> None:
        self._future = future
        self._index = index

    def done(self) -> bool:
        """Whether the message or batch is in the log or failed."""
        return self._known().done()

    def result(self, timeout_s: float | None = None) -> _IDs:
        """Wait until the message is durable, and return its ID; for a batch the IDs, in the
        messages' order.

        Raises:
            HQueueError: the message could not be written. The error's outcome says whether it may
                be in the log.
            InvalidInputError: a signal handler called it in the middle of a `send`.
            TimeoutError: the result was not known in time. The message may still be written.
        """
        try:
            ids = self._awaited().result(check_timeout_s(timeout_s))
        except concurrent.futures.TimeoutError as exc:  # A class of its own before Python 3.11.
            if is_interruption(exc):
                raise
            raise TimeoutError("the outcome of the delivery is not known yet") from exc
        return cast("_IDs", ids if self._index is None else ids[self._index])

    def exception(self, timeout_s: float | None = None) -> BaseException | None:
        """Wait for the result, and return the error; None if the message is durable.

        Raises:
            InvalidInputError, TimeoutError: as `result`.
        """
        try:
            return self._awaited().exception(check_timeout_s(timeout_s))
        except concurrent.futures.TimeoutError as exc:
            if is_interruption(exc):
                raise
            raise TimeoutError("the outcome of the delivery is not known yet") from exc

    def _awaited(self) -> BatchFuture:
        """The outcome, if the caller may wait for it: not in the middle of a call of its producer,
        which continues only after the wait.
        """
        future = self._known()
        if future.changed is not None and future.changed.is_held() and not future.done():
            raise InvalidInputError(OWN_TURN)
        return future

    def _known(self) -> BatchFuture:
        """The outcome, if this process learns it."""
        if self._future.inherited:
            raise ClosedError(
                "the message was sent before the fork: the parent process learns its outcome",
                outcome=Outcome.UNKNOWN,
            )
        return self._future

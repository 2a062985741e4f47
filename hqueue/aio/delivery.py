"""The result of a message that was sent through a producer in an event loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Generator, Sequence
from typing import Any, Generic, TypeVar, cast

from hqueue.errors import HQueueError, Outcome
from hqueue.message_id import MessageID
from hqueue.produce.delivery import BatchFuture

__all__ = ["Delivery"]

_IDs = TypeVar("_IDs", MessageID, Sequence[MessageID])


class Delivery(Generic[_IDs]):
    """The pending result of one message or one batch that was sent through a `Producer`.

    Await it for the message's ID, or for the IDs of a batch in the messages' order. It may be
    awaited several times and by several tasks. Cancelling a task that awaits it does not cancel the
    send. The producer logs errors, whether or not a task awaits them. Made by `Producer.send` and
    `Producer.send_batch`.
    """

    __slots__ = ("_future", "_index")

    def __init__(self, future: BatchFuture, index: int | None = None) -> None:
        self._future = future
        self._index = index

    def done(self) -> bool:
        """Whether the message or batch is in the log or failed."""
        return self._future.done()

    def result(self) -> _IDs:
        """The message's ID, or the IDs of a batch, once it is durable.

        Raises:
            HQueueError: the message could not be written, and the error's outcome says whether it
                may be in the log; or the result isn't known yet.
        """
        self._check_done()
        ids = self._future.result()
        return cast("_IDs", ids if self._index is None else ids[self._index])

    def exception(self) -> BaseException | None:
        """The error with which the message or batch failed; None if it is durable.

        Raises:
            HQueueError: the result isn't known yet.
        """
        self._check_done()
        return self._future.exception()

    def __await__(self) -> Generator[Any, None, _IDs]:
        if not self._future.done():
            yield from self._settled().__await__()
        return self.result()

    def _settled(self) -> asyncio.Future[None]:
        """Done when the outcome is known. Each caller has one of its own to be cancelled in."""
        settled: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def settle() -> None:
            if not settled.done():
                settled.set_result(None)

        def in_its_loop(_: object) -> None:
            loop = settled.get_loop()
            if asyncio.get_running_loop() is loop:  # Nearly always: it is the producer's.
                settle()
                return
            with contextlib.suppress(RuntimeError):  # That loop has ended.
                loop.call_soon_threadsafe(settle)

        self._future.add_done_callback(in_its_loop)
        return settled

    def _check_done(self) -> None:
        if not self._future.done():
            raise HQueueError(
                "the outcome of the delivery is not known yet: await it", outcome=Outcome.UNKNOWN
            )

"""Sending a stream of messages through a producer, and knowing what became of each."""

from __future__ import annotations

import concurrent.futures
import queue as queues
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from hqueue.errors import HQueueError, Outcome
from hqueue.runtime.threads import start
from hqueue.runtime.waiting import Event

if TYPE_CHECKING:
    from hqueue.message import Message
    from hqueue.message_id import MessageID
    from hqueue.produce.delivery import Delivery

__all__ = ["BUFFER_BYTES_MAX", "Producing", "Shipment"]

BUFFER_BYTES_MAX = 16 * 1024 * 1024
"""What a shipment's producer is best given."""

GIVE_UP_S = 5.0
_LOOK_EVERY_S = 0.5


class Producing(Protocol):
    """What a shipment needs of a producer: a queue's and a hub's have it alike."""

    def send(self, message: Message, *args: Any, **kwargs: Any) -> Delivery[MessageID]:
        """Take a message, and return at once unless there is no room."""
        ...

    def flush(self, timeout_s: float | None = None) -> bool:
        """Wait until all sent so far is written or failed. Returns whether it was in time."""
        ...

    def close(self, timeout_s: float | None = None) -> bool:
        """Likewise, and end."""
        ...


class Shipment:
    """Messages on their way into a queue or to topics, and their count by what became of them.

    Bounded in memory: `send` waits for room. As a context manager it is closed at the end. Use
    it from one thread.

    Args:
        producer: what sends them; closed with the shipment.
        on_written: called with each delivery that is durable, and its bytes, in the order in
            which they were sent, from one other thread. If it raises, that is kept in `error`.
    """

    def __init__(
        self,
        producer: Producing,
        *,
        on_written: Callable[[Delivery[MessageID], int], object] | None = None,
    ) -> None:
        self.sent = 0
        self.written = 0
        self.written_bytes = 0
        self.failed = 0
        """Messages that are certainly not in the queue."""
        self.unknown = 0
        """Messages that may be in the queue, or may be yet."""
        self.first_lost: int | None = None
        """How many messages were sent before the first that was not certainly written."""
        self.error: BaseException | None = None
        """The first error. Nothing further should be sent then."""
        self._settled = 0
        self._on_written = on_written
        self._begun_s = time.monotonic()
        self._ended_s: float | None = None
        self._producer = producer
        self._deliveries: queues.SimpleQueue[tuple[Delivery[MessageID], int] | None] = (
            queues.SimpleQueue()
        )
        self._abandoned = Event()
        self._settler = start(self._settle, name="hqueue-settler")

    @property
    def seconds(self) -> float:
        """How long it has taken, so far or until it was closed."""
        return (self._ended_s or time.monotonic()) - self._begun_s

    def send(self, message: Message, **placing: object) -> None:
        """Take a message, with what the producer's `send` is given besides. Look at `error` now and
        then.

        Raises:
            InvalidInputError: an argument is out of range. The message is not taken.
            BufferFullError: none was taken for a long time. The message is not taken.
        """
        delivery = self._producer.send(message, **placing)
        self.sent += 1
        self._deliveries.put((delivery, message.size))

    def close(self) -> None:
        """Write what is buffered, and learn what became of it.

        As long as nothing fails it waits for as long as it takes, each append being bounded.
        After an error it gives up soon: what is not known by then is counted as unknown.
        """
        if self._ended_s is not None:
            return
        drained = False
        try:
            while not drained and self.error is None:
                drained = self._producer.flush(_LOOK_EVERY_S)
            drained = self._producer.close(None if drained else GIVE_UP_S)
        finally:
            self._deliveries.put(None)
            if not drained:
                self._abandoned.set()
            self._settler.join()
            self._ended_s = time.monotonic()
            if self._settled < self.sent:
                self._lose(self.sent - self._settled, unknown=True)

    def _settle(self) -> None:
        while (item := self._deliveries.get()) is not None:
            delivery, size = item
            while True:
                try:
                    error = delivery.exception(_LOOK_EVERY_S)
                    break
                except concurrent.futures.TimeoutError:
                    if self._abandoned.is_set():
                        return
            if error is None:
                self._keep(delivery, size)
            else:
                self.error = self.error or error
                is_known = isinstance(error, HQueueError) and error.outcome is Outcome.NOT_APPLIED
                self._lose(1, unknown=not is_known)

    def _keep(self, delivery: Delivery[MessageID], size: int) -> None:
        self.written += 1
        self.written_bytes += size
        self._settled += 1
        if self._on_written is not None:
            try:
                self._on_written(delivery, size)
            except Exception as exc:  # It goes to the sender, which stops.
                self.error = self.error or exc

    def _lose(self, count: int, *, unknown: bool) -> None:
        if self.first_lost is None:
            self.first_lost = self._settled
        if unknown:
            self.unknown += count
        else:
            self.failed += count
        self._settled += count

"""Producing message by message to topics of hubs."""

from __future__ import annotations

import functools
from collections.abc import Callable

from hqueue.errors import InvalidInputError
from hqueue.message import Message
from hqueue.message_id import MessageID, MessageIDs
from hqueue.produce.buffer import BatchingBuffer
from hqueue.produce.delivery import Delivery, DeliveryCallback, PendingBatch
from hqueue.produce.encode import headers_to_put
from hqueue.produce.producer_options import ProducerOptions
from hqueue.runtime.forgotten import Watched
from hqueue.settings.options import Unpack

__all__ = ["HubProducer"]


class HubProducer:
    """Buffers messages and publishes them in batches, in the background. Thread-safe.

    A topic's messages lie in it in the order of the `send` calls; a batch that failed is left out,
    and later ones go on. Each topic has one publish under way at a time. Where many processes
    produce, this costs less than each putting for itself: a hub writes what they all send.

    Use it as a context manager, or `close` it: what is in the buffer is lost if the process is
    killed, and published before it ends in order, if its client is still open; so is each message
    that is sent after that, before `send` returns. One that is forgotten is closed when it is
    collected, with a `ResourceWarning`; what it holds is published. In a forked child it can't be
    used. Made by `HubClient.producer`.

    Args:
        publish: publishes messages of a topic, all or none; their IDs.
        options: see `ProducerOptions`.

    Raises:
        InvalidInputError: an option is out of range.
    """

    def __init__(
        self,
        publish: Callable[[str, list[Message]], MessageIDs],
        **options: Unpack[ProducerOptions],
    ) -> None:
        write = functools.partial(_write, publish)
        self._buffer: BatchingBuffer[str] = BatchingBuffer(write, None, **options)
        self._watched = Watched(self, "a producer", self._buffer.release)

    def __enter__(self) -> HubProducer:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def send(
        self, message: Message, *, callback: DeliveryCallback | None = None
    ) -> Delivery[MessageID]:
        """Take a message into the buffer. Returns at once, unless the buffer is full.

        Args:
            message: the message; its topic is the one that it is published to.
            callback: called with (MessageID, None) or (None, error) from a thread of the
                producer; it must be quick. Whatever it raises is logged, and ends nothing.

        Raises:
            InvalidInputError: this is no message, or its topic or a header is the system's own.
            BufferFullError: there was no room within ``block_ms_max``. The message was not taken.
            ClosedError: the producer was closed, or belongs to the parent process.
        """
        if not isinstance(message, Message):
            raise InvalidInputError("send takes a Message", type=type(message).__name__)
        extra = None
        if message.key is not None or message.headers:
            extra = message.key, headers_to_put(message)
        return self._buffer.take(message.topic, message.value, extra, message.topic, callback)

    def flush(self, timeout_s: float | None = None) -> bool:
        """Wait until everything sent so far is in the log or failed; whether that was in time.

        Raises:
            InvalidInputError: it was called by a delivery callback, which it would wait for.
            ClosedError: it belongs to the parent process, which alone learns that.
        """
        return self._buffer.flush(timeout_s)

    def close(self, timeout_s: float | None = None) -> bool:
        """Take no more, publish what is buffered, and end; whether that was in time.

        Each publish is bounded by ``operation_timeout_ms``, so this ends without a time-out, too.
        """
        drained = self._buffer.close(timeout_s)
        self._watched.closed()
        return drained


def _write(
    publish: Callable[[str, list[Message]], MessageIDs], batch: PendingBatch[str]
) -> MessageIDs:
    messages = [
        Message(topic, value, *(extra or (None, ()))) for topic, value, extra, _ in batch.taken
    ]
    return publish(messages[0].topic, messages)

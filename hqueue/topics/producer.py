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
from hqueue.settings.keyword_options import Unpack
from hqueue.watching.observers import OBSERVERS, created

__all__ = ["HubProducer", "messages_of_batch"]


class HubProducer:
    """Buffers messages and publishes them in batches, in the background. Thread-safe.

    Messages of a topic are published in the order of the `send` calls. If a batch fails, its
    messages are left out, and later batches are still published. Each topic has one publish in
    flight at a time. With many producing processes this costs less than a `Producer` in each: a hub
    writes the messages of all of them together. Unlike a `Producer`, it doesn't repeat a publish
    whose answer was lost: the outcome of its messages is *unknown*.

    Use it as a context manager, or `close` it. Buffered messages are lost if the process is killed.
    A process that ends normally publishes them first, if the client is still open; a message that
    is sent after that is published before `send` returns. A producer that was never closed is
    closed when Python collects it, with a `ResourceWarning`, and its buffered messages are
    published. It can't be used in a forked child. Made by `HubClient.producer`.

    Args:
        publish: publishes messages of a topic, all or none, and returns their IDs.
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
        """Buffer a message. Returns at once, unless the buffer is full.

        Args:
            message: the message. It is published to its topic.
            callback: called with (MessageID, None) or (None, error) in a thread of the producer. It
                must be quick. An error that it raises is logged, and has no other effect.

        Raises:
            InvalidInputError: the argument is not a message, or its topic or a header is the
                system's own.
            BufferFullError: the buffer had no room within ``block_ms_max``. The message was not
                buffered.
            ClosedError: the producer was closed, or it belongs to the parent process.
        """
        if not isinstance(message, Message):
            raise InvalidInputError("send takes a Message", type=type(message).__name__)
        extra = None
        if message.key is not None or message.headers:
            extra = message.key, headers_to_put(message)
        if OBSERVERS:
            extra = created("", message, extra)
        return self._buffer.take(message.topic, message.value, extra, message.topic, callback)

    def flush(self, timeout_s: float | None = None) -> bool:
        """Wait until every message sent so far is in the log or failed. Returns False if the
        time-out came first.

        Raises:
            InvalidInputError: a delivery callback called it, and would wait for itself.
            ClosedError: the producer belongs to the parent process.
        """
        return self._buffer.flush(timeout_s)

    def close(self, timeout_s: float | None = None) -> bool:
        """Refuse further messages, publish the buffered ones, and end. Returns False if the
        time-out came first.

        Each publish is bounded by ``operation_timeout_ms``, so this call also ends if no time-out
        is given.
        """
        drained = self._buffer.close(timeout_s)
        self._watched.closed()
        return drained


def _write(
    publish: Callable[[str, list[Message]], MessageIDs], batch: PendingBatch[str]
) -> MessageIDs:
    messages = messages_of_batch(batch)
    return publish(messages[0].topic, messages)


def messages_of_batch(batch: PendingBatch[str]) -> list[Message]:
    """The messages of a batch, which are all of one topic."""
    return [Message(topic, value, *(extra or (None, ()))) for topic, value, extra, _ in batch.taken]

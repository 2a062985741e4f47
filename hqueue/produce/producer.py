"""Producing message by message: a buffer in front of an `Appender`."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from hqueue.errors import InvalidInputError
from hqueue.format.header import FORMAT_1
from hqueue.message import Message
from hqueue.message_id import MessageID, MessageIDs
from hqueue.produce.appender import Appender
from hqueue.produce.buffer import BatchingBuffer
from hqueue.produce.delivery import Delivery, DeliveryCallback, PendingBatch
from hqueue.produce.encode import encode_given, headers_to_put, taken
from hqueue.produce.producer_options import ProducerOptions
from hqueue.runtime.forgotten import Watched
from hqueue.settings.keyword_options import Unpack
from hqueue.watching.observers import OBSERVERS, created, writing

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Producer"]


class Producer:
    """Buffers messages and appends them in batches, in the background. Thread-safe.

    Messages for one partition (chosen, or by key) are appended in the order of the `send` calls. If
    a batch fails, its messages are left out, and later batches are still appended. Messages without
    a partition or key are spread over the partitions batch by batch. Each partition has one append
    in flight at a time, since the next batch begins where that one ends.

    Use it as a context manager, or `close` it. Buffered messages are lost if the process is killed.
    A process that ends normally writes them first; a message that is sent after that is written
    before `send` returns. A producer that was never closed is closed when Python collects it, with
    a `ResourceWarning`, and its buffered messages are written. It can't be used in a forked child.
    Made by `Queue.producer`.

    Args:
        appender: the appender of the queue.
        options: see `ProducerOptions`.

    Raises:
        InvalidInputError: an option is out of range.
    """

    def __init__(self, appender: Appender, **options: Unpack[ProducerOptions]) -> None:
        self._appender = appender
        self._buffer: BatchingBuffer[int] = BatchingBuffer(
            functools.partial(_append, appender),
            appender.partitions,
            write_in_loop=appender.append_in_loop,
            **options,
        )
        self._watched = Watched(self, "a producer", self._buffer.release)

    def __enter__(self) -> Producer:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def send(
        self,
        message: Message,
        *,
        partition: int | None = None,
        key: str | bytes | None = None,
        callback: DeliveryCallback | None = None,
    ) -> Delivery[MessageID]:
        """Buffer a message. Returns at once, unless the buffer is full.

        Args:
            message: the message.
            partition, key: as in `Queue.put`. Without them the message's own key chooses.
            callback: called with (MessageID, None) or (None, error) in a thread of the producer. It
                must be quick. An error that it raises is logged, and has no other effect.

        Raises:
            InvalidInputError: an argument is out of range.
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
            extra = created(self._appender.queue, message, extra)
        if key is None and partition is None:
            key = message.key
        target = self._target(partition, key)
        return self._buffer.take(message.topic, message.value, extra, target, callback)

    def send_value(
        self,
        topic: str,
        value: bytes,
        *,
        partition: int | None = None,
        key: str | bytes | None = None,
        callback: DeliveryCallback | None = None,
    ) -> Delivery[MessageID]:
        """Buffer a value like ``send(Message(topic, value))``, without making the `Message`.

        Raises:
            InvalidInputError, MessageTooLargeError: as `send`, and as `Message`.
        """
        target = self._target(partition, key)
        if type(topic) is not str or type(value) is not bytes:
            made = Message(topic, value)
            topic, value = made.topic, made.value
        extra = created(self._appender.queue, Message(topic, value), None) if OBSERVERS else None
        return self._buffer.take(topic, value, extra, target, callback)

    def _target(self, partition: int | None, key: str | bytes | None) -> int | None:
        if partition is None and key is None:
            return None
        return self._appender.choose_partition(partition, key)

    def send_batch(
        self,
        messages: Sequence[Message] | Iterator[Message] | pa.RecordBatch | pa.Table,
        *,
        partition: int | None = None,
        key: str | bytes | None = None,
    ) -> Delivery[Sequence[MessageID]]:
        """Buffer messages that are written as one batch: all or none of them, in order.

        Works like `Queue.put`, but does not wait until the messages are durable, so the next batch
        is encoded while this one is in flight. It keeps the order with `send` calls.

        Args:
            messages, partition, key: as in `Queue.put`.

        Raises:
            InvalidInputError, MessageTooLargeError: as `Queue.put`. Nothing was buffered.
            BufferFullError: the buffer had no room within ``block_ms_max``. Nothing was buffered.
            ClosedError: the producer was closed, or it belongs to the parent process.
        """
        if isinstance(messages, Message):
            raise InvalidInputError("send_batch takes a sequence of messages; send takes one")
        target = self._appender.choose_partition(partition, key)
        messages = taken(messages)
        bodies = encode_given(messages)
        if target is None and bodies.version != FORMAT_1:
            target = self._appender.partition_of_keys(messages)
        return self._buffer.take_batch(bodies, target)

    def flush(self, timeout_s: float | None = None) -> bool:
        """Wait until every message sent so far is in the log or failed. Returns False if the
        time-out came first.

        Raises:
            InvalidInputError: a delivery callback called it, and would wait for itself.
            ClosedError: the producer belongs to the parent process.
        """
        return self._buffer.flush(timeout_s)

    def close(self, timeout_s: float | None = None) -> bool:
        """Refuse further messages, write the buffered ones, and end. Returns False if the time-out
        came first.

        Each append is bounded by ``operation_timeout_ms``, so this call also ends if no time-out is
        given.
        """
        drained = self._buffer.close(timeout_s)
        self._watched.closed()
        return drained


def _append(appender: Appender, batch: PendingBatch[int]) -> MessageIDs:
    if OBSERVERS:
        with writing(appender.queue, batch.taken, batch.bodies, batch.target) as put:
            put.ids = ids = _append_batch(appender, batch)
            return ids
    return _append_batch(appender, batch)


def _append_batch(appender: Appender, batch: PendingBatch[int]) -> MessageIDs:
    appended = appender.append(batch.encoded(), batch.target)
    return MessageIDs(appended.base, appended.count)

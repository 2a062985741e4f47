"""Producing message by message in an event loop."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic

from hqueue.aio.delivery import Delivery
from hqueue.aio.loops import AT_ONCE, check_loop, collected
from hqueue.errors import InvalidInputError
from hqueue.format.header import FORMAT_1
from hqueue.message import Headers, Message
from hqueue.message_id import MessageID
from hqueue.produce.appender import BatchAppender
from hqueue.produce.batch_writer import WriteInLoop
from hqueue.produce.delivery import DeliveryCallback, Target
from hqueue.produce.encode import headers_to_put, taken
from hqueue.produce.gathering import Gathering
from hqueue.produce.loop_writer import LoopWriter
from hqueue.produce.producer_options import ProducerOptions
from hqueue.runtime.forgotten import Watched
from hqueue.settings.keyword_options import Unpack
from hqueue.watching.observers import OBSERVERS, created

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["BufferedSender", "Producer"]


class BufferedSender(Generic[Target]):
    """What producers of an event loop have in common: a buffer, and tasks that write its batches.

    Args:
        write: writes a batch; the messages' IDs, in their order.
        targets: how many targets there may be; None if that is open.
        queue: the queue.
        options: see `ProducerOptions`.

    Raises:
        InvalidInputError: an option is out of range.
    """

    def __init__(
        self,
        write: WriteInLoop[Target],
        targets: int | None,
        queue: str,
        **options: Unpack[ProducerOptions],
    ) -> None:
        self._queue = queue
        self._gathering: Gathering[Target, LoopWriter[Target], Delivery[Any]] = Gathering(
            lambda gathered, at_a_time: LoopWriter(gathered, write, at_a_time),
            Delivery,
            targets,
            **options,
        )
        self._writer = self._gathering.writer
        self._sends = 0
        self._block_s = self._gathering.block_ms_max / 1e3
        self._watched = Watched(
            self,
            "an asynchronous producer",
            functools.partial(self._writer.call_in_loop, self._gathering.seal),
            self._gathering.holds_any,
        )

    async def flush(self) -> None:
        """Wait until every message sent so far is in the log or failed. The time is bounded, since
        each append ends within ``operation_timeout_ms``. Cancelling the caller does not cancel the
        appends.
        """
        self._check_loop()
        flush = object()
        try:
            await self._writer.wait_for(self._gathering.begin_flush(flush))
        finally:
            self._gathering.end_flush(flush)

    async def close(self) -> None:
        """Refuse further messages, write the buffered ones, and end. A caller that is cancelled may
        call it again.
        """
        if self._writer.loop.is_closed():  # Nothing of it can be written any more.
            self._watched.closed()
            return
        self._check_loop()
        self._gathering.seal()
        await self.flush()
        self._writer.close()
        self._watched.closed()

    async def _take(
        self, message: Message, target: Target | None, callback: DeliveryCallback | None
    ) -> Delivery[MessageID]:
        """Buffer a message, when there is room."""
        extra = None
        if message.key is not None or message.headers:
            extra = message.key, headers_to_put(message)
        if OBSERVERS:
            extra = created(self._queue, message, extra)
        return await self._take_value(message.topic, message.value, extra, target, callback)

    async def _take_value(
        self,
        topic: str,
        value: bytes,
        extra: tuple[bytes | None, Headers] | None,
        target: Target | None,
        callback: DeliveryCallback | None,
    ) -> Delivery[MessageID]:
        self._sends += 1
        if not self._sends % AT_ONCE:
            await asyncio.sleep(0)
        if not self._gathering.may_take():
            await self._writer.wait_for(self._gathering.may_take, self._block_s)
        return self._gathering.take(topic, value, extra, target, callback)

    def _check_loop(self) -> None:
        check_loop(self._writer.loop, "a producer")


class Producer(BufferedSender[int]):
    """Buffers messages and appends them in batches, in tasks of its event loop. Like
    `hqueue.Producer`, with these differences:

    * `send` waits while the buffer is full, and returns a `Delivery`, which can be awaited for the
      message's ID.
    * Messages in the buffer are lost when the event loop ends: use the producer as an asynchronous
      context manager, or `close` it. A producer that Python collects with messages in its buffer
      causes a `ResourceWarning`.

    Made by `Queue.producer`, in the event loop that uses it.

    Args:
        appender: the appender of the queue.
        options: see `ProducerOptions`.

    Raises:
        InvalidInputError: an option is out of range.
    """

    def __init__(self, appender: BatchAppender, **options: Unpack[ProducerOptions]) -> None:
        super().__init__(appender.append, appender.partitions, appender.queue, **options)
        self._appender = appender

    async def __aenter__(self) -> Producer:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def send(
        self,
        message: Message,
        *,
        partition: int | None = None,
        key: str | bytes | None = None,
        callback: DeliveryCallback | None = None,
    ) -> Delivery[MessageID]:
        """Buffer a message. Returns at once, unless the buffer is full. A caller that is cancelled
        while it waits for room has sent nothing.

        Args:
            message: the message.
            partition, key: as in `Queue.put`. Without them the message's own key chooses.
            callback: called with (MessageID, None) or (None, error) in the event loop. It must be
                quick. An error that it raises is logged, and has no other effect.

        Raises:
            InvalidInputError: an argument is out of range.
            BufferFullError: the buffer had no room within ``block_ms_max``. The message was not
                buffered.
            ClosedError: the producer was closed, or it belongs to the parent process.
        """
        self._check_loop()
        if not isinstance(message, Message):
            raise InvalidInputError("send takes a Message", type=type(message).__name__)
        if key is None and partition is None:
            key = message.key
        target = None
        if partition is not None or key is not None:
            target = self._appender.choose_partition(partition, key)
        return await self._take(message, target, callback)

    async def send_value(
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
        self._check_loop()
        target = None
        if partition is not None or key is not None:
            target = self._appender.choose_partition(partition, key)
        if type(topic) is not str or type(value) is not bytes:
            made = Message(topic, value)
            topic, value = made.topic, made.value
        extra = created(self._queue, Message(topic, value), None) if OBSERVERS else None
        return await self._take_value(topic, value, extra, target, callback)

    async def send_batch(
        self,
        messages: Sequence[Message] | Iterator[Message] | pa.RecordBatch | pa.Table,
        *,
        partition: int | None = None,
        key: str | bytes | None = None,
    ) -> Delivery[Sequence[MessageID]]:
        """Buffer messages that are written as one batch: all or none of them, in order. Like
        `hqueue.Producer.send_batch`. A thread encodes a large batch.

        Raises:
            InvalidInputError, MessageTooLargeError: as `Queue.put`. Nothing was buffered.
            BufferFullError: the buffer had no room within ``block_ms_max``. Nothing was buffered.
            ClosedError: the producer was closed, or it belongs to the parent process.
        """
        self._check_loop()
        if isinstance(messages, Message):
            raise InvalidInputError("send_batch takes a sequence of messages; send takes one")
        target = self._appender.choose_partition(partition, key)
        messages = taken(await collected(messages))
        bodies = await self._appender.encoded(messages)
        if target is None and bodies.version != FORMAT_1:
            target = self._appender.partition_of_keys(messages)
        if not self._gathering.may_take():
            await self._writer.wait_for(self._gathering.may_take, self._block_s)
        return self._gathering.take_batch(bodies, target)

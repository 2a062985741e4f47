"""Producing message by message to topics of hubs, in an event loop."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from hqueue.aio.delivery import Delivery
from hqueue.aio.producer import BufferedSender
from hqueue.errors import InvalidInputError
from hqueue.message import Message
from hqueue.message_id import MessageID, MessageIDs
from hqueue.produce.delivery import DeliveryCallback, PendingBatch
from hqueue.produce.producer_options import ProducerOptions
from hqueue.runtime.loop import computed, is_much
from hqueue.settings.keyword_options import Unpack
from hqueue.topics.producer import messages_of_batch

__all__ = ["HubProducer"]

Publish = Callable[[str, list[Message]], Coroutine[Any, Any, MessageIDs]]


class HubProducer(BufferedSender[str]):
    """Buffers messages and publishes them in batches, in tasks of its event loop. Like
    `hqueue.HubProducer`, with the differences that `Producer` has from `hqueue.Producer`. Made by
    `HubClient.producer`, in the event loop that uses it.

    Args:
        publish: publishes messages of a topic, all or none, and returns their IDs.
        options: see `ProducerOptions`.

    Raises:
        InvalidInputError: an option is out of range.
    """

    def __init__(self, publish: Publish, **options: Unpack[ProducerOptions]) -> None:
        async def write(batch: PendingBatch[str]) -> MessageIDs:
            # Each becomes an object, which takes a microsecond or two.
            is_few = not is_much(len(batch.taken), lambda: 0)
            messages = (
                messages_of_batch(batch) if is_few else await computed(messages_of_batch, batch)
            )
            return await publish(messages[0].topic, messages)

        super().__init__(write, None, "", **options)

    async def __aenter__(self) -> HubProducer:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def send(
        self, message: Message, *, callback: DeliveryCallback | None = None
    ) -> Delivery[MessageID]:
        """Buffer a message. Like `hqueue.HubProducer.send`, but it waits for room, as
        `Producer.send` does.
        """
        self._check_loop()
        if not isinstance(message, Message):
            raise InvalidInputError("send takes a Message", type=type(message).__name__)
        return await self._take(message, message.topic, callback)

"""A topic's messages as an async iterator."""

from __future__ import annotations

import asyncio
import collections
import contextlib
from collections.abc import AsyncGenerator, Callable, Sequence
from functools import partial
from typing import TypeVar

from hqueue.errors import ClosedError, HQueueError
from hqueue.message import ReceivedMessage
from hqueue.message_id import MessageID
from hqueue.push.listener import Status
from hqueue.runtime.loop import by_threads
from hqueue.runtime.thread_pool import ThreadPool
from hqueue.topics.subscription import TopicSubscription

__all__ = ["messages_of"]

Result = TypeVar("Result")

WINDOW, WINDOW_MAX = 1_000, 10_000
"""A hub's, where there is no such preference, and at most."""

WAIT_MS = 600_000.0
"""How long a call of hubs waits for a thread: longer than several take that get no answer."""

LEAVING_S = 2.0
"""How long a generator that is closed while it subscribes waits for that to be over. Then it goes
on by itself, and is closed; what subscribes under its name waits for it."""

_threads = ThreadPool(16, "hqueue-messages")
"""A call of hubs may take a minute and more: what others wait for has threads of its own."""


class _Buffer:
    """What was received and not taken yet. Filled by the threads that hubs call, taken from by the
    event loop.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: collections.deque[ReceivedMessage] = collections.deque()
        self._newest = MessageID(0)
        self.changed = asyncio.Event()
        self.again = False
        """Whether something came again: its hub may not know what was said to be consumed."""
        self.subscription: TopicSubscription | None = None
        self.is_left = False
        """Whether nobody takes any more."""
        self._is_subscribing = False

    def subscribe(self, subscribe: Callable[..., TopicSubscription]) -> TopicSubscription:
        """Subscribe. Where it was left meanwhile the subscription is closed at once."""
        self._is_subscribing = True  # Before it looks whether it was left.
        try:
            if self.is_left:
                raise ClosedError("the generator was closed")
            subscription = self.subscription = subscribe(
                self.receive,
                explicit_ack=True,
                on_end=self.wake,
                is_wanted=lambda: not self.is_left,
            )
            if self.is_left:
                subscription.close()
            return subscription
        finally:
            self._is_subscribing = False
            self.wake()

    async def wait_subscribed(self) -> None:
        """Wait until nothing subscribes any more, for a while."""
        with contextlib.suppress(TimeoutError, asyncio.TimeoutError):
            await asyncio.wait_for(self._subscribed(), LEAVING_S)

    async def _subscribed(self) -> None:
        while True:
            self.changed.clear()
            if not self._is_subscribing:
                return
            await self.changed.wait()

    def receive(self, messages: Sequence[ReceivedMessage]) -> Status:
        """Take what is new; a hub that subscribes again sends what it does not know as consumed."""
        if len(self._waiting) + len(messages) > 2 * WINDOW_MAX:
            return Status.RETRY  # No hub sends as much.
        new = [each for each in messages if each.id > self._newest]
        self._waiting.extend(new)
        self._newest = max(self._newest, messages[-1].id)
        if len(new) < len(messages):
            self.again = True
        self.wake()
        return Status.DONE

    def wake(self) -> None:
        """Let the event loop look."""
        with contextlib.suppress(RuntimeError):  # The loop is closed: nobody takes any more.
            self._loop.call_soon_threadsafe(self.changed.set)

    def take(self) -> ReceivedMessage | None:
        """The next one, if there is one."""
        return self._waiting.popleft() if self._waiting else None


async def messages_of(
    subscribe: Callable[..., TopicSubscription], client: object
) -> AsyncGenerator[ReceivedMessage, None]:
    """Like `HubClient.messages`.

    Args:
        subscribe: subscribes, as `Subscriptions.subscribe` does, given how messages are received.
        client: the client, which is kept until then.
    """
    buffer = _Buffer(asyncio.get_running_loop())
    consumed: MessageID | None = None
    unsaid = 0
    try:
        subscription = await _by_thread(partial(buffer.subscribe, subscribe))
        window = min(subscription.preferences.delivery_window or WINDOW, WINDOW_MAX)
        while True:
            buffer.changed.clear()
            message = buffer.take()
            due = message is None or 2 * unsaid >= window
            if due and consumed is not None and (unsaid or buffer.again):
                unsaid, buffer.again = 0, False
                await _by_thread(partial(subscription.acknowledge_cumulative, consumed))
            if message is not None:
                yield message
                consumed = message.id
                unsaid += 1
            elif subscription.ended:
                subscription.wait(0)
                return
            else:
                await buffer.changed.wait()
    finally:
        buffer.is_left = True
        try:
            await buffer.wait_subscribed()
        finally:  # Cancelled once more, it is left all the same.
            if buffer.subscription is not None:
                unknown = consumed if unsaid or buffer.again else None
                await asyncio.shield(_by_thread(partial(_leave, buffer.subscription, unknown)))


async def _by_thread(call: Callable[[], Result]) -> Result:
    return await by_threads(_threads, WAIT_MS, call)


def _leave(subscription: TopicSubscription, consumed: MessageID | None) -> None:
    if not subscription.ended:
        if consumed is not None:
            with contextlib.suppress(HQueueError):  # Then it comes again.
                subscription.acknowledge_cumulative(consumed)
        subscription.close()

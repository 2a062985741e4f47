"""A topic's messages as an async iterator."""

from __future__ import annotations

import asyncio
import collections
import contextlib
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any

from hqueue.errors import ClosedError, HQueueError
from hqueue.message import ReceivedMessage
from hqueue.message_id import MessageID
from hqueue.push.answers import Status
from hqueue.runtime.steps import Wait, Work
from hqueue.topics.subscription_state import SubscriptionState
from hqueue.topics.subscriptions import Subscriptions

__all__ = ["messages_of"]

WINDOW, WINDOW_MAX = 1_000, 10_000
"""A hub's, where there is no such preference, and at most."""

AT_ONCE = 250
"""After this many messages other tasks have turns."""

LEAVING_S = 2.0
"""How long a generator that is closed while it subscribes waits for that to be over. Then it goes
on by itself, and is closed; what subscribes under its name waits for it."""


class _Buffer:
    """What was received and not taken yet. Filled by the threads that hubs call, or in the event
    loop, which takes from it.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, subscriptions: Subscriptions) -> None:
        self._loop = loop
        self._subscriptions = subscriptions
        self._waiting: collections.deque[ReceivedMessage] = collections.deque()
        self._newest = MessageID(0)
        self.changed = asyncio.Event()
        self.again = False
        """Whether something came again: its hub may not know what was said to be consumed."""
        self.subscription: SubscriptionState | None = None
        self.is_left = False
        """Whether nobody takes any more."""
        self._is_subscribing = False

    def subscribe(self, subscribe: Callable[..., Wait]) -> Work[Any, SubscriptionState]:
        """Subscribe. Where it was left meanwhile the subscription is closed at once."""
        self._is_subscribing = True  # Before it looks whether it was left.
        try:
            if self.is_left:
                raise ClosedError("the generator was closed")
            subscription: SubscriptionState = yield subscribe(
                self.receive,
                explicit_ack=True,
                on_end=self.wake,
                is_wanted=lambda: not self.is_left,
            )
            self.subscription = subscription
            if self.is_left:
                yield self._subscriptions.leave.asked(subscription)
            return subscription
        finally:
            self._is_subscribing = False
            self.wake()

    def acknowledge(self, consumed: MessageID) -> Work[Any, None]:
        """Acknowledge a message and all before it."""
        assert self.subscription is not None
        yield self._subscriptions.acknowledge_cumulative.asked(self.subscription, consumed)

    def leave(self, consumed: MessageID | None) -> Work[Any, None]:
        """Acknowledge a message, if the hub may not know that it was consumed, and close the
        subscription.
        """
        subscription = self.subscription
        if subscription is None or subscription.ended:
            return
        if consumed is not None:
            with contextlib.suppress(HQueueError):  # Then it comes again.
                yield from self.acknowledge(consumed)
        yield self._subscriptions.leave.asked(subscription)

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
    subscriptions: Subscriptions, subscribe: Callable[..., Wait], client: object
) -> AsyncGenerator[ReceivedMessage, None]:
    """Like `HubTopic.messages`.

    Args:
        subscriptions: the client's.
        subscribe: subscribes, as `Subscriptions.subscribe` does, given how messages are received.
        client: the client, which is kept until then.
    """
    buffer = _Buffer(asyncio.get_running_loop(), subscriptions)
    consumed: MessageID | None = None
    unsaid = 0
    try:
        subscription = await subscriptions.go_on(buffer.subscribe(subscribe))
        window = min(subscription.preferences.delivery_window or WINDOW, WINDOW_MAX)
        while True:
            if unsaid and not unsaid % AT_ONCE:
                await asyncio.sleep(0)
            buffer.changed.clear()
            message = buffer.take()
            due = message is None or 2 * unsaid >= window
            if due and consumed is not None and (unsaid or buffer.again):
                unsaid, buffer.again = 0, False
                await subscriptions.go_on(buffer.acknowledge(consumed))
            if message is not None:
                yield message
                consumed = message.id
                unsaid += 1
            elif subscription.ended:
                if subscription.failure is not None:
                    raise subscription.failure
                return
            else:
                await buffer.changed.wait()
    finally:
        buffer.is_left = True
        try:
            await buffer.wait_subscribed()
        finally:  # Cancelled once more, it is left all the same.
            unknown = consumed if unsaid or buffer.again else None
            if buffer.subscription is not None and not buffer.subscription.ended:
                await asyncio.shield(subscriptions.go_on(buffer.leave(unknown)))

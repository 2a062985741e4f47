"""A topic's messages as an async iterator."""

from __future__ import annotations

import asyncio
import collections
import contextlib
from collections.abc import AsyncGenerator, Callable, Sequence

from hqueue.errors import HQueueError
from hqueue.message import ReceivedMessage
from hqueue.message_id import MessageID
from hqueue.push.listener import Status
from hqueue.runtime.loop import in_thread
from hqueue.topics.subscription import TopicSubscription

__all__ = ["messages_of"]

WINDOW, WINDOW_MAX = 1_000, 10_000
"""A hub's, where there is no such preference, and at most."""


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

    def receive(self, messages: Sequence[ReceivedMessage]) -> Status:
        """Take what is new; a hub that subscribes anew sends what it does not know as consumed."""
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
    """As `HubClient.messages`.

    Args:
        subscribe: subscribes, as `Subscriptions.subscribe` does, given how messages are received.
        client: the client, which is kept until then.
    """
    buffer = _Buffer(asyncio.get_running_loop())
    subscription = await in_thread(
        subscribe, buffer.receive, explicit_consume=True, on_end=buffer.wake
    )
    window = min(subscription.preferences.delivery_window or WINDOW, WINDOW_MAX)
    consumed: MessageID | None = None
    unsaid = 0
    try:
        while True:
            buffer.changed.clear()
            message = buffer.take()
            due = message is None or 2 * unsaid >= window
            if due and consumed is not None and (unsaid or buffer.again):
                unsaid, buffer.again = 0, False
                await in_thread(subscription.consume, consumed)
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
        await in_thread(_leave, subscription, consumed if unsaid or buffer.again else None)


def _leave(subscription: TopicSubscription, consumed: MessageID | None) -> None:
    if not subscription.ended:
        if consumed is not None:
            with contextlib.suppress(HQueueError):  # Then it comes again.
                subscription.consume(consumed)
        subscription.close()

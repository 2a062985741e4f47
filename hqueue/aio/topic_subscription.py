"""One subscription to a topic of hubs, in an event loop."""

from __future__ import annotations

from typing import Any

from hqueue.aio.loops import check_loop
from hqueue.message_id import MessageID
from hqueue.topics.subscription_state import SubscriptionState

__all__ = ["TopicSubscription"]


class TopicSubscription(SubscriptionState):
    """A subscription that delivers messages to a listener until it is closed or ends. Like
    `hqueue.TopicSubscription`; for the event loop that subscribed. Made by `HubTopic.subscribe`.

    Use it as an asynchronous context manager, or `close` it. In another loop its calls raise
    `InvalidInputError`, except for `close` after its own loop was closed.
    """

    _client: Any

    async def __aenter__(self) -> TopicSubscription:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def wait(self) -> None:
        """Wait until the subscription ends. Raises like `hqueue.TopicSubscription.wait`."""
        self._check_loop()
        await self._ended.wait()
        if self.failure is not None:
            raise self.failure

    async def acknowledge_cumulative(self, message_id: MessageID) -> None:
        """Acknowledge this message and all before it. Like
        `hqueue.TopicSubscription.acknowledge_cumulative`. If the caller is cancelled, the cursor
        may have moved.
        """
        self._check_loop()
        self._check_ack(message_id)
        await self._client.acknowledge_cumulative.in_loop(self, message_id)

    async def close(self) -> None:
        """Stop the delivery. Like `hqueue.TopicSubscription.close`. If the caller is cancelled, the
        subscription is closed in the background. If its loop was closed, the call frees the port
        and the names of all subscriptions of that loop, and calls no hub.
        """
        if self._client.loop.is_closed():
            self._client.abandon()
            return
        self._check_loop()
        await self._client.go_on(self._client.leave.steps(self))

    async def unsubscribe(self) -> None:
        """Delete the subscription with its cursor and preferences. Like
        `hqueue.TopicSubscription.unsubscribe`. If the caller is cancelled, the subscription is
        deleted in the background.
        """
        self._check_loop()
        name = self.queue, self.topic, self.subscriber
        await self._client.go_on(self._client.unsubscribe.steps(*name))

    def _check_loop(self) -> None:
        check_loop(self._client.loop, "a subscription")

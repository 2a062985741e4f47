"""A topic of hubs in an event loop: publishes to it, subscribes to it, and administers it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from hqueue.aio.hub_subscriptions import LoopSubscriptions
from hqueue.aio.topic_subscription import TopicSubscription
from hqueue.message import Message, ReceivedMessage
from hqueue.message_id import MessageID, MessageIDs
from hqueue.metadata import check_name
from hqueue.metadata.managers import SubscriptionPreferences, TopicACL
from hqueue.push.listener import Listener
from hqueue.runtime.iteration import Iteration
from hqueue.settings.addresses import Address
from hqueue.topics.idempotent import IdempotentPublishResult
from hqueue.topics.stream import messages_of
from hqueue.topics.subscription_state import SubscribeMode
from hqueue.topics.topic_requests import TopicRequests

__all__ = ["HubTopic"]


class HubTopic:
    """A topic that hubs own. Like `hqueue.HubTopic`, for any number of event loops. Made by
    `HubClient.topic`.

    A caller that is cancelled does not learn the outcome of its call, which the hub may carry out,
    now or a moment later.

    Args:
        requests: makes the topic's calls.
        subscriptions: returns the subscriptions of the running event loop.
        client: the client, which the topic keeps alive.
    """

    __slots__ = ("_client", "_requests", "_subscriptions", "name", "queue")

    def __init__(
        self,
        requests: TopicRequests,
        *,
        subscriptions: Callable[[], LoopSubscriptions],
        client: object,
    ) -> None:
        self._requests = requests
        self._subscriptions = subscriptions
        self._client = client
        self.name = requests.name
        self.queue = requests.queue

    def __repr__(self) -> str:
        return f"HubTopic({self.name!r}, queue={self.queue!r})"

    async def publish(self, message: bytes | bytearray | memoryview | Message) -> MessageID:
        """Publish a message, and return its ID. Like `hqueue.HubTopic.publish`. If the caller is
        cancelled, the message may be in the log, now or a moment later.
        """
        return (await self.publish_many([message]))[0]

    async def publish_many(
        self, messages: Sequence[bytes | bytearray | memoryview | Message]
    ) -> MessageIDs:
        """Publish several messages: all or none of them. Like `hqueue.HubTopic.publish_many`. A
        thread encodes many messages. If the caller is cancelled, the messages may be in the log,
        now or a moment later.
        """
        return await self._requests.publish_many.in_loop(messages)

    async def publish_idempotent(
        self,
        messages: Sequence[bytes | bytearray | memoryview | Message],
        *,
        sequence_number: int,
        since: MessageID | None = None,
    ) -> IdempotentPublishResult:
        """Publish messages with sequence numbers, each exactly once. Like
        `hqueue.HubTopic.publish_idempotent`. After a cancellation, repeat the call with the same
        messages and sequence numbers.
        """
        return await self._requests.publish_idempotent.in_loop(messages, sequence_number, since)

    async def last_sequence_number(self, *, since: MessageID | None = None) -> int | None:
        """The sequence number of this publisher's last message in the topic. Like
        `hqueue.HubTopic.last_sequence_number`.
        """
        return await self._requests.last_sequence_number.in_loop(since)

    async def subscribe(
        self,
        subscriber: str,
        listener: Listener,
        *,
        mode: SubscribeMode = SubscribeMode.CREATE_OR_ATTACH,
        preferences: SubscriptionPreferences | None = None,
        explicit_ack: bool = False,
        host: str | None = None,
        port: int = 0,
    ) -> TopicSubscription:
        """Deliver the topic's messages to a listener. Like `hqueue.HubTopic.subscribe`, with these
        differences:

        * The listener is called in the running event loop, which also serves the port. A plain
          function must not block the loop; what a coroutine function returns is awaited, within 30
          seconds.
        * If the caller is cancelled, the subscription is closed in the background as soon as it is
          attached. It may have been created.
        """
        return await self._subscriptions().begin(
            self.queue,
            self.name,
            subscriber,
            listener,
            mode=mode,
            preferences=preferences,
            explicit_ack=explicit_ack,
            host=host,
            port=port,
        )

    def messages(
        self,
        subscriber: str,
        *,
        mode: SubscribeMode = SubscribeMode.CREATE_OR_ATTACH,
        preferences: SubscriptionPreferences | None = None,
        host: str | None = None,
        port: int = 0,
    ) -> Iteration[ReceivedMessage]:
        """Iterate over the topic's messages with ``async for``. Like `hqueue.HubTopic.messages`,
        but without threads. Call it in the event loop that iterates.
        """
        subscriptions = self._subscriptions()
        subscribe = partial(
            subscriptions.subscribe.asked,
            self.queue,
            self.name,
            subscriber,
            mode=mode,
            preferences=preferences,
            host=host,
            port=port,
        )
        return Iteration(partial(messages_of, subscriptions, subscribe, self._client))

    async def unsubscribe(self, subscriber: str) -> None:
        """Delete a subscription with its cursor and preferences. Like
        `hqueue.HubTopic.unsubscribe`.
        """
        subscriptions = self._subscriptions()
        name = self.queue, self.name, check_name(subscriber)
        await subscriptions.go_on(subscriptions.unsubscribe.steps(*name))

    async def move(self, to: str | Address) -> None:
        """Move the topic to another hub. Like `hqueue.HubTopic.move`."""
        await self._requests.move.in_loop(to)

    async def delete(self) -> bool:
        """Delete the topic, and return whether there was such a topic. Like
        `hqueue.HubTopic.delete`.
        """
        return await self._requests.delete.in_loop()

    async def acl(self) -> TopicACL:
        """The topic's ACL. Like `hqueue.HubTopic.acl`."""
        return await self._requests.acl.in_loop()

    async def set_acl(
        self,
        *,
        publish: Sequence[str] | None = None,
        subscribe: Sequence[str] | None = None,
        manage: Sequence[str] | None = None,
    ) -> TopicACL:
        """Replace the given lists of the topic's ACL. Like `hqueue.HubTopic.set_acl`."""
        return await self._requests.set_acl.in_loop(publish, subscribe, manage)

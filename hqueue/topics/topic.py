"""A topic of hubs: publishes to it, subscribes to it, and administers it."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from hqueue.message import Message, ReceivedMessage
from hqueue.message_id import MessageID, MessageIDs
from hqueue.metadata import check_name
from hqueue.metadata.managers import SubscriptionPreferences, TopicACL
from hqueue.push.listener import Listener
from hqueue.runtime.iteration import Iteration
from hqueue.settings.addresses import Address
from hqueue.topics.calls import HubCalls
from hqueue.topics.idempotent import IdempotentPublisher, IdempotentPublishResult
from hqueue.topics.stream import messages_of
from hqueue.topics.subscription import SubscribeMode, TopicSubscription
from hqueue.topics.thread_subscriptions import ThreadSubscriptions
from hqueue.topics.topic_requests import TopicRequests

__all__ = ["HubTopic"]


class HubTopic:
    """A topic that hubs own. Thread-safe, and usable in a forked child. Made by `HubClient.topic`.

    The object holds only its name and its client: make one for each call, or keep one. Hubs create
    the topic itself at its first publish or subscription.

    Every call follows redirects, and tries again while hubs refuse it for the moment, for at most
    ``operation_timeout_ms``.

    Args:
        name: the topic.
        queue: its queue.
        calls: calls hubs.
        idempotent: the client's idempotent publisher.
        subscriptions: the client's subscriptions.
        client: the client, which the topic keeps alive.
    """

    __slots__ = ("_client", "_requests", "_subscriptions", "name", "queue")

    def __init__(
        self,
        name: str,
        queue: str,
        *,
        calls: HubCalls,
        idempotent: IdempotentPublisher,
        subscriptions: ThreadSubscriptions,
        client: object,
    ) -> None:
        self._requests = TopicRequests(name, queue, calls, idempotent)
        self.name = name
        self.queue = queue
        self._subscriptions = subscriptions
        self._client = client

    def __repr__(self) -> str:
        return f"HubTopic({self.name!r}, queue={self.queue!r})"

    def publish(self, message: bytes | bytearray | memoryview | Message) -> MessageID:
        """Publish a message, and return its ID. When the call returns, the message is durable and
        every reader will see it. Messages that a thread publishes to a topic one after the other
        have growing IDs, also when another hub takes the topic over. Unlike `HubQueue.put`, it
        doesn't repeat a publish whose answer was lost; `publish_idempotent` does.

        Args:
            message: a value, or a `Message` of this topic with a key and headers.

        Raises:
            InvalidInputError: an argument is out of range.
            MessageTooLargeError: the message is larger than a batch may be.
            QueueNotFoundError: the hubs don't serve the queue.
            NotAllowedError: the caller may not publish to the topic, or may not create it.
            HubUnavailableError: no hub carried out the call in time. With the outcome *unknown* the
                message may be in the log, now or later: after the call was sent, the connection
                ended or no answer came.
            ClosedError: the client was closed.
        """
        return self.publish_many([message])[0]

    def publish_many(
        self, messages: Sequence[bytes | bytearray | memoryview | Message]
    ) -> MessageIDs:
        """Publish several messages: all or none of them, in their order, and with no other message
        between them.

        Args:
            messages: 1 to 65,536 messages as `publish` takes them, together at most as large as a
                batch may be.

        Returns:
            Their IDs.

        Raises:
            As `publish`.
        """
        return self._requests.publish_many(messages)

    def publish_idempotent(
        self,
        messages: Sequence[bytes | bytearray | memoryview | Message],
        *,
        sequence_number: int,
        since: MessageID | None = None,
    ) -> IdempotentPublishResult:
        """Publish messages with sequence numbers of this publisher, each exactly once: a message
        that this or an earlier process has published with the same sequence number is not published
        again. A publish with an unknown outcome is tried again for ``operation_timeout_ms``. After
        that, repeat the call with the same messages and sequence numbers.

        Sequence numbers belong to the publisher that the setting ``publisher`` names, so set it.
        They must grow with every message of a topic, and may have gaps. Only one process at a time
        may publish under a name, and only one call at a time to a topic. A message carries both in
        the headers ``hqueue.publisher`` and ``hqueue.number``.

        Args:
            messages: as for `publish_many`.
            sequence_number: the first message's sequence number, 0 or more. The next messages have
                the numbers that follow.
            since: an ID in the topic before which none of these messages was ever tried. A hub that
                took the topic over reads the topic from there on; from its oldest message on if
                None. Give it with the first call after a restart; later the client itself knows
                what it published last.

        Raises:
            InvalidInputError: an argument is out of range, or the setting ``publisher`` is not
                given.
            MessageTooLargeError, QueueNotFoundError, NotAllowedError, HubUnavailableError,
                ClosedError: as `publish`.
        """
        return self._requests.publish_idempotent(messages, sequence_number, since)

    def last_sequence_number(self, *, since: MessageID | None = None) -> int | None:
        """The sequence number of this publisher's last message in the topic; None if the topic has
        no such message or does not exist. Continue after it when the publisher restarts.

        Args:
            since: as for `publish_idempotent`. Messages before it are not searched.

        Raises:
            InvalidInputError, QueueNotFoundError, NotAllowedError, HubUnavailableError,
                ClosedError: as `publish_idempotent`.
        """
        return self._requests.last_sequence_number(since)

    def subscribe(
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
        """Deliver the topic's messages to a listener, in their order, from the subscription's
        cursor on. A new subscription begins at the topic's end.

        The hub connects to this process. When another hub takes the topic over, or the hub dies,
        the client subscribes again by itself, and continues at the cursor. Messages that were
        delivered and not yet acknowledged come again.

        Args:
            subscriber: the subscription's name within the topic. Another client that subscribes
                under this name takes the subscription over.
            listener: gets messages. Its answer decides what happens to them, as for a `Subscriber`.
            mode: whether the subscription must exist, must not exist, or may.
            preferences: stored with the subscription. If None, those that it has stay.
            explicit_ack: the listener only receives messages, and
                `TopicSubscription.acknowledge_cumulative` moves the cursor.
            host: where hubs reach this process; if None, the address from which this process
                reaches hubs.
            port: where to listen; a free port if 0. All topics of one subscriber name share the
                port of the first.

        Raises:
            InvalidInputError: an argument is out of range, or this process can't listen on the host
                and port.
            SubscriberExistsError: the subscription exists, and `mode` asks to create it.
            SubscriberNotFoundError: no such subscription exists, and `mode` asks to attach.
            QueueNotFoundError, NotAllowedError, HubUnavailableError, ClosedError: as `publish`.
        """
        return self._subscriptions.begin(
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
        """Iterate over the topic's messages with ``async for``. Asking for the next message
        acknowledges the one before. The cursor is stored from time to time, and when the iteration
        is closed (`contextlib.aclosing`). Messages that were not acknowledged come again to the
        next client that attaches.

        At most ``delivery_window`` messages wait in this process, or 1,000 without that preference.

        Args:
            subscriber, mode, preferences, host, port: as for `subscribe`.

        Raises:
            SubscriberConnectedError: another client took the subscription over.
            SubscriberNotFoundError: the subscription was deleted.
            HQueueError: the errors of `subscribe`, when the first message is requested.
        """
        subscribe = functools.partial(
            self._subscriptions.subscribe.asked,
            self.queue,
            self.name,
            subscriber,
            mode=mode,
            preferences=preferences,
            host=host,
            port=port,
        )
        return Iteration(
            functools.partial(messages_of, self._subscriptions, subscribe, self._client)
        )

    def unsubscribe(self, subscriber: str) -> None:
        """Delete a subscription with its cursor and preferences, even if a client is attached.

        If that subscription's listener calls it, it returns at once, as
        `TopicSubscription.unsubscribe` does.

        Raises:
            SubscriberNotFoundError: no such subscription exists.
            InvalidInputError, QueueNotFoundError, NotAllowedError, HubUnavailableError,
                ClosedError: as `publish`.
        """
        self._subscriptions.unsubscribe(self.queue, self.name, check_name(subscriber))

    def move(self, to: str | Address) -> None:
        """Move the topic to another hub. When the call returns, that hub owns the topic. It may
        release the topic to other hubs later, as any hub may. Publishers and subscribers follow by
        themselves.

        Args:
            to: the hub's address, ``host:port``, as it is registered.

        Raises:
            InvalidInputError: there is no such topic, or no such hub is available.
            QueueNotFoundError, NotAllowedError, HubUnavailableError, ClosedError: as `publish`.
        """
        self._requests.move(to)

    def delete(self) -> bool:
        """Delete the topic: its subscriptions end, and no hub appends to it any more. Its messages
        stay in the queue until they expire; a topic that is created later under this name has none
        of them. Returns whether there was such a topic. After an unknown outcome the client repeats
        the call, which may then return False although the topic existed.

        Raises:
            InvalidInputError, QueueNotFoundError, NotAllowedError, HubUnavailableError,
                ClosedError: as `publish`.
        """
        return self._requests.delete()

    def acl(self) -> TopicACL:
        """The topic's ACL: the callers that may publish, subscribe and manage.

        Raises:
            InvalidInputError: there is no such topic.
            QueueNotFoundError, NotAllowedError, HubUnavailableError, ClosedError: as `publish`.
        """
        return self._requests.acl()

    def set_acl(
        self,
        *,
        publish: Sequence[str] | None = None,
        subscribe: Sequence[str] | None = None,
        manage: Sequence[str] | None = None,
    ) -> TopicACL:
        """Replace the given lists of the topic's ACL; the others stay. Returns the whole new ACL.
        When the call returns, the ACL is in force for every call at every hub, if the hubs' setting
        ``authorizer`` enables ACLs. A subscriber that the ACL does not name any more gets no
        further messages. A topic that does not exist is created, so it can have an ACL before
        anybody publishes to it.

        Args:
            publish, subscribe, manage: names, as in `TopicACL`; an empty list allows nobody.

        Raises:
            InvalidInputError: an argument is out of range, or no list is given.
            QueueNotFoundError, NotAllowedError, HubUnavailableError, ClosedError: as `publish`.
        """
        return self._requests.set_acl(publish, subscribe, manage)

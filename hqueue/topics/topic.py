"""A topic of hubs: publishing to it, subscribing to it, and administering it."""

from __future__ import annotations

import functools
from collections.abc import AsyncGenerator, Sequence
from typing import Any

from hqueue.errors import InvalidInputError
from hqueue.message import Message, ReceivedMessage, topic_bytes
from hqueue.message_id import MessageID, MessageIDs, check_message_id
from hqueue.metadata import check_name
from hqueue.metadata.managers import SubscriptionPreferences, TopicACL
from hqueue.push.listener import Listener
from hqueue.settings.addresses import Address
from hqueue.settings.numbers import check_whole
from hqueue.settings.reserved import check_topic
from hqueue.topics.calls import HubCalls, publish_call
from hqueue.topics.idempotent import (
    SEQUENCE_NUMBER_MAX,
    IdempotentPublisher,
    IdempotentPublishResult,
)
from hqueue.topics.stream import messages_of
from hqueue.topics.structs import acl_of, acl_struct, message_structs
from hqueue.topics.subscription import SubscribeMode, TopicSubscription
from hqueue.topics.subscriptions import Subscriptions

__all__ = ["HubTopic"]


class HubTopic:
    """A topic that hubs own. Made by `HubClient.topic`. Thread-safe, and usable in a forked child.

    It holds nothing but its name: make one for each call, or keep one. The topic itself is created
    when it is first published or subscribed to. One that is kept keeps its client.

    All that it asks of hubs follows redirects, and is tried again where hubs refuse it for the
    moment, until ``operation_timeout_ms`` is over.

    Args:
        name: the topic.
        queue: its queue.
        calls: calls hubs.
        idempotent: publishes idempotently.
        subscriptions: those of the client.
        client: what it is made from, which it keeps.
    """

    __slots__ = ("_calls", "_client", "_idempotent", "_subscriptions", "name", "queue")

    def __init__(
        self,
        name: str,
        queue: str,
        *,
        calls: HubCalls,
        idempotent: IdempotentPublisher,
        subscriptions: Subscriptions,
        client: object,
    ) -> None:
        topic_bytes(name)
        check_topic(name)
        self.name = name
        self.queue = queue
        self._calls = calls
        self._idempotent = idempotent
        self._subscriptions = subscriptions
        self._client = client

    def __repr__(self) -> str:
        return f"HubTopic({self.name!r}, queue={self.queue!r})"

    def publish(self, message: bytes | bytearray | memoryview | Message) -> MessageID:
        """Publish a message, and return its ID. When this returns it is durable, and every reader
        will see it. Messages that a thread publishes to a topic one after the other have growing
        IDs, also when the topic's hub changes.

        Args:
            message: a value, or a `Message` of this topic with a key and headers.

        Raises:
            InvalidInputError: an argument is out of range.
            MessageTooLargeError: the message is larger than a batch may be.
            QueueNotFoundError: the hubs don't serve that queue.
            NotAllowedError: the caller may not publish there, or not create the topic.
            HubUnavailableError: no hub did it in time. With outcome *unknown* it may be in the log
                already, or later: a connection ended, or nothing came, after the call was sent.
            ClosedError: the client was closed.
        """
        return self.publish_many([message])[0]

    def publish_many(
        self, messages: Sequence[bytes | bytearray | memoryview | Message]
    ) -> MessageIDs:
        """Publish messages: all or none, in their order, with no other between them.

        Args:
            messages: as for `publish`, 1 to 65,536; together as large as a batch may be.

        Returns:
            Their IDs.

        Raises:
            As `publish`.
        """
        sent = message_structs(self.name, messages)
        publisher = self._calls.settings.publisher
        published, _ = self._calls.call(
            self.queue, self.name, publish_call(self.queue, publisher, self.name, sent)
        )
        first = MessageID(published.id.timestamp, published.id.sequenceID)
        return MessageIDs(int(first), len(sent))

    def publish_idempotent(
        self,
        messages: Sequence[bytes | bytearray | memoryview | Message],
        *,
        sequence_number: int,
        since: MessageID | None = None,
    ) -> IdempotentPublishResult:
        """Publish messages with sequence numbers of this publisher: each once, whatever became of
        earlier calls with the same sequence numbers, in this process or before. Where the outcome
        is unknown it is tried again, until ``operation_timeout_ms`` is over; after that call it
        again, with the same messages and sequence numbers.

        Sequence numbers count by the setting ``publisher``, which has to be given. They grow with
        every message of a topic, and may leave some out. One process at a time publishes under a
        name, and one call for a topic at a time. A message carries both in the headers
        ``hqueue.publisher`` and ``hqueue.number``.

        Args:
            messages: as for `publish_many`.
            sequence_number: the first message's, 0 or more; the others' follow.
            since: an ID in the topic; none of these messages was tried before it. A hub that took
                the topic over reads it from there on; all that is kept of it if None. It is for
                the first call after a restart: then the client knows what it published last.

        Raises:
            InvalidInputError: an argument is out of range, or the publisher has no name of its own.
            MessageTooLargeError, QueueNotFoundError, NotAllowedError, HubUnavailableError,
                ClosedError: as `publish`.
        """
        sent = message_structs(self.name, messages)
        first = check_whole(
            sequence_number, 0, SEQUENCE_NUMBER_MAX - len(sent), option="sequence_number"
        )
        if since is not None:
            check_message_id(since, "since")
        return self._idempotent.publish(self.queue, self.name, sent, first, since)

    def last_sequence_number(self, *, since: MessageID | None = None) -> int | None:
        """The sequence number of this publisher's last message in the topic; None if the topic has
        no message with one, or is not there. After a restart it says where to go on.

        Args:
            since: as for `publish_idempotent`: what lies before is not looked at.

        Raises:
            InvalidInputError, QueueNotFoundError, NotAllowedError, HubUnavailableError,
                ClosedError: as `publish_idempotent`.
        """
        if since is not None:
            check_message_id(since, "since")
        return self._idempotent.last_sequence_number(self.queue, self.name, since)

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
        """Subscribe: the topic's messages come to a listener, in their order, from the
        subscription's cursor on; of a new one from the topic's end on.

        The hub calls this process. When the topic comes to another hub, or its hub dies, the client
        subscribes again by itself, and goes on at the cursor; what was delivered and not
        acknowledged yet comes again.

        Args:
            subscriber: the subscription's name within the topic. Another client that subscribes
                under it takes it over.
            listener: gets messages; what it answers becomes of them, as for `Subscriber`.
            mode: whether there may be such a subscription already, or must be.
            preferences: kept with the subscription; those that it has if None.
            explicit_ack: the listener only receives, and
                `TopicSubscription.acknowledge_cumulative` moves the cursor.
            host: where hubs reach this process; if None the address from which it reaches them.
            port: where to listen; a free one if 0. All of a name's topics share the first one's.

        Raises:
            InvalidInputError: an argument is out of range, or it can't be listened there.
            SubscriberExistsError: the subscription exists, and `mode` is to create it.
            SubscriberNotFoundError: no such subscription exists, and `mode` is to attach.
            QueueNotFoundError, NotAllowedError, HubUnavailableError, ClosedError: as `publish`.
        """
        return self._subscriptions.subscribe(
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
    ) -> AsyncGenerator[ReceivedMessage, None]:
        """The topic's messages, one after the other, for ``async for``. A message is acknowledged
        when the next one is asked for; the cursor is stored now and then, and when the generator is
        closed (`contextlib.aclosing`). What was not acknowledged comes again to the next client
        that attaches.

        At most ``delivery_window`` messages wait here, 1,000 if there is no such preference.

        Args:
            subscriber, mode, preferences, host, port: as for `subscribe`.

        Raises:
            SubscriberConnectedError: another client took the subscription over.
            SubscriberNotFoundError: it was unsubscribed.
            HQueueError: as `subscribe`; when the first message is asked for.
        """
        subscribe = functools.partial(
            self._subscriptions.subscribe,
            self.queue,
            self.name,
            subscriber,
            mode=mode,
            preferences=preferences,
            host=host,
            port=port,
        )
        return messages_of(subscribe, self._client)

    def unsubscribe(self, subscriber: str) -> None:
        """End a subscription, even if a client is attached: its cursor and preferences are gone.

        In a call of that subscription's listener this returns at once, as
        `TopicSubscription.unsubscribe` does.

        Raises:
            SubscriberNotFoundError: no such subscription exists.
            InvalidInputError, QueueNotFoundError, NotAllowedError, HubUnavailableError,
                ClosedError: as `publish`.
        """
        self._subscriptions.unsubscribe(self.queue, self.name, check_name(subscriber))

    def move(self, to: str | Address) -> None:
        """Let another hub own the topic. When this returns it does; later it may leave the topic to
        others, as any. Publishers and subscribers follow by themselves.

        Args:
            to: the hub's address, ``host:port``, as it is registered.

        Raises:
            InvalidInputError: there is no such topic, or no such hub is available.
            QueueNotFoundError, NotAllowedError, HubUnavailableError, ClosedError: as `publish`.
        """
        at = to if isinstance(to, Address) else Address.parse(to)
        self._change("moveTopic", at.host, at.port)

    def delete(self) -> bool:
        """Delete the topic: its subscriptions end, and nobody appends to it any more. Its messages
        stay in the queue for as long as it keeps messages; a topic that is created later under this
        name has none of them. Whether there was such a topic: where it is not known what became of
        a call it is called again, and may not be there any more.

        Raises:
            InvalidInputError, QueueNotFoundError, NotAllowedError, HubUnavailableError,
                ClosedError: as `publish`.
        """
        return bool(self._change("deleteTopic"))

    def acl(self) -> TopicACL:
        """Who may do what with the topic.

        Raises:
            InvalidInputError: there is no such topic.
            QueueNotFoundError, NotAllowedError, HubUnavailableError, ClosedError: as `publish`.
        """
        return acl_of(self._change("changeAccess", acl_struct()))

    def set_acl(
        self,
        *,
        publish: Sequence[str] | None = None,
        subscribe: Sequence[str] | None = None,
        manage: Sequence[str] | None = None,
    ) -> TopicACL:
        """Replace those lists of the topic's ACL that are given; the others stay. Returns all of it
        as it is then. When this returns it holds for every call, whatever hub has the topic, where
        hubs go by ACLs (their setting ``authorizer``); a subscriber that the ACL does not name any
        more gets nothing more. A topic that is not there is created: so it has an ACL before
        anybody publishes to it.

        Args:
            publish, subscribe, manage: names, as in `TopicACL`; an empty list allows nobody.

        Raises:
            InvalidInputError: an argument is out of range, or no list is given.
            QueueNotFoundError, NotAllowedError, HubUnavailableError, ClosedError: as `publish`.
        """
        if publish is None and subscribe is None and manage is None:
            raise InvalidInputError("give at least one list of names: publish, subscribe or manage")
        given = acl_struct(publish=publish, subscribe=subscribe, manage=manage)
        return acl_of(self._change("changeAccess", given))

    def _change(self, method: str, *how: object) -> Any:
        """Call a method that concerns the topic as a whole, and can be called again."""
        queue, topic, caller = self.queue, self.name, self._calls.settings.publisher
        answer, _ = self._calls.call(
            queue,
            topic,
            lambda client, to: getattr(client, method)(queue, caller, topic, *how, to),
            repeatable=True,
        )
        return answer

"""Publishing and subscribing to topics by way of hubs."""

from __future__ import annotations

import functools
import weakref
from collections.abc import AsyncGenerator, Sequence
from typing import Any

from hqueue.errors import InvalidInputError
from hqueue.message import Message, ReceivedMessage, topic_bytes
from hqueue.message_id import MessageID, MessageIDs, check_message_id
from hqueue.metadata import check_name
from hqueue.metadata.managers import SubscriptionPreferences, TopicAccess
from hqueue.produce.producer_options import ProducerOptions
from hqueue.push.listener import Listener
from hqueue.runtime.clock import SYSTEM_CLOCK, Clock
from hqueue.runtime.forgotten import Watched
from hqueue.settings.addresses import Address
from hqueue.settings.attributes import check_queue_name
from hqueue.settings.loading import all_known
from hqueue.settings.numbers import check_whole
from hqueue.settings.options import Unpack, check_options
from hqueue.topics.api_calls import ApiCalls
from hqueue.topics.calls import HubCalls, publish_call
from hqueue.topics.once import NUMBER_MAX, PublishedOnce, PublishingOnce
from hqueue.topics.producer import HubProducer
from hqueue.topics.queue import HubQueue
from hqueue.topics.settings import HubClientSettings, HubOptions, hub_addresses
from hqueue.topics.stream import messages_of
from hqueue.topics.structs import access_of, access_struct, message_structs
from hqueue.topics.subscription import SubscribeMode, TopicSubscription
from hqueue.topics.subscriptions import Subscriptions

__all__ = ["HubClient", "connect_hubs"]


class HubClient:
    """Publishes and subscribes to topics of queues that hubs serve. Made by
    `connect_hubs`. Needs neither HBase nor ZooKeeper.

    Thread-safe, and usable in a forked child. Connections are opened when needed, and kept; which
    hub owns a topic is remembered. Use it as a context manager, or `close` it. One that is
    forgotten, with its producers, queues and subscriptions, is closed when it is collected, with a
    `ResourceWarning`; a subscription keeps it for as long as it lasts.

    Args:
        settings: where hubs are, and bounds.
        clock: where time comes from.
    """

    def __init__(self, settings: HubClientSettings, clock: Clock = SYSTEM_CLOCK) -> None:
        self.settings = settings
        self._calls = HubCalls(settings, clock)
        self._once = PublishingOnce(self._calls)
        self._subscriptions = Subscriptions(self._calls, weakref.ref(self))
        self._api = ApiCalls(settings, clock, self._calls.api_address, self._calls.silent)
        self._release = functools.partial(_release, self._subscriptions, self._calls, self._api)
        self._watched = Watched(self, "a client of hubs", self._release)

    def __enter__(self) -> HubClient:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all subscriptions, which stay with the hubs, and all connections. Calls under way
        are answered; further ones are refused. In a call of a listener this returns at once, and is
        done when that call has ended: see `TopicSubscription.close`.
        """
        if not self._subscriptions.leave_behind(self._release):
            self._release()
        self._watched.closed()

    def publish(
        self,
        topic: str,
        message: bytes | bytearray | memoryview | Message,
        *,
        queue: str | None = None,
    ) -> MessageID:
        """Publish a message, and return its ID. When this returns it is durable, and every reader
        will see it. Messages that a thread publishes to a topic one after the other have growing
        IDs, also when the topic's hub changes.

        Redirects are followed, and what hubs refuse for the moment is tried again, until
        ``operation_timeout_ms`` is over.

        Args:
            topic: the topic, which is created if it is not there.
            message: a value, or a `Message` of this topic with a key and headers.
            queue: the queue; the setting ``queue`` if None.

        Raises:
            InvalidInputError: an argument is out of range.
            MessageTooLargeError: the message is larger than a batch may be.
            QueueNotFoundError: the hubs don't serve that queue.
            NotAllowedError: the caller may not publish there, or not create the topic.
            HubUnavailableError: no hub did it in time. With outcome *unknown* it may be in the log,
                or come to be: a connection ended, or nothing came, after the call was sent.
            ClosedError: the client was closed.
        """
        return self.publish_many(topic, [message], queue=queue)[0]

    def publish_many(
        self,
        topic: str,
        messages: Sequence[bytes | bytearray | memoryview | Message],
        *,
        queue: str | None = None,
    ) -> MessageIDs:
        """Publish messages of a topic: all or none, in their order, with no other between them.

        Args:
            topic: the topic.
            messages: as for `publish`, 1 to 65,536; together as large as a batch may be.
            queue: the queue; the setting ``queue`` if None.

        Returns:
            Their IDs.

        Raises:
            As `publish`.
        """
        region = self._queue(queue)
        sent = message_structs(topic, messages)
        published, _ = self._calls.call(
            region, topic, publish_call(region, self.settings.publisher, topic, sent)
        )
        first = MessageID(published.id.timestamp, published.id.sequenceID)
        return MessageIDs(int(first), len(sent))

    def publish_once(
        self,
        topic: str,
        messages: Sequence[bytes | bytearray | memoryview | Message],
        *,
        number: int,
        since: MessageID | None = None,
        queue: str | None = None,
    ) -> PublishedOnce:
        """Publish messages that this publisher has numbered: each once, whatever became of earlier
        calls with the same numbers, in this process or before. Where the outcome is unknown it is
        tried again, until ``operation_timeout_ms`` is over; after that call it again, with the same
        messages and numbers.

        Numbers count by the setting ``publisher``, which has to be given. They grow with every
        message of a topic, and may leave some out. One process at a time publishes under a name,
        and one call for a topic at a time. A message carries both in the headers
        ``hqueue.publisher`` and ``hqueue.number``.

        Args:
            topic: the topic.
            messages: as for `publish_many`.
            number: the first message's, 0 or more; the others' follow.
            since: an ID in the topic; none of these messages was tried before it. A hub that took
                the topic over reads it from there on; all that is kept of it if None. It is for
                the first call after a restart: then the client knows what it published last.
            queue: the queue; the setting ``queue`` if None.

        Raises:
            InvalidInputError: an argument is out of range, or the publisher has no name of its own.
            MessageTooLargeError, QueueNotFoundError, NotAllowedError, HubUnavailableError,
                ClosedError: as `publish`.
        """
        region = self._queue(queue)
        sent = message_structs(topic, messages)
        number = check_whole(number, 0, NUMBER_MAX - len(sent), option="number")
        if since is not None:
            check_message_id(since, "since")
        return self._once.publish(region, topic, sent, number, since)

    def newest_number(
        self, topic: str, *, since: MessageID | None = None, queue: str | None = None
    ) -> int | None:
        """The number of the newest message that this publisher numbered in a topic; None if there
        is none, or no such topic. After a restart it says where to go on.

        Args:
            topic: the topic.
            since: as for `publish_once`: what lies before is not looked at.
            queue: the queue; the setting ``queue`` if None.

        Raises:
            InvalidInputError, QueueNotFoundError, NotAllowedError, HubUnavailableError,
                ClosedError: as `publish_once`.
        """
        topic_bytes(topic)
        if since is not None:
            check_message_id(since, "since")
        return self._once.newest(self._queue(queue), topic, since)

    def producer(
        self, *, queue: str | None = None, **options: Unpack[ProducerOptions]
    ) -> HubProducer:
        """A producer, which publishes in the background. Close it before the client.

        Args:
            queue: the queue; the setting ``queue`` if None.
            options: see `ProducerOptions`.

        Raises:
            InvalidInputError: no queue is named, or an option is unknown or out of range.
            ClosedError: the client was closed.
        """
        self._calls.check_open()
        region = self._queue(queue)
        check_options("HubProducer", options, ProducerOptions.__annotations__)
        return HubProducer(
            lambda topic, messages: self.publish_many(topic, messages, queue=region), **options
        )

    def queue(self, name: str | None = None) -> HubQueue:
        """A whole queue, to be put to and scanned. Asks nothing. Its hubs serve the Thrift API:
        their setting ``api_port``.

        Args:
            name: the queue; the setting ``queue`` if None.

        Raises:
            InvalidInputError: none is named, or it can't be one's name.
        """
        return HubQueue(self._queue(name), self._api, self)

    def move_topic(self, topic: str, to: str | Address, *, queue: str | None = None) -> None:
        """Let another hub own a topic. When this returns it does; later it may leave the topic to
        others, as any. Publishers and subscribers follow by themselves.

        Args:
            topic: the topic, which is there.
            to: the hub's address, ``host:port``, as it is registered.
            queue: the queue; the setting ``queue`` if None.

        Raises:
            InvalidInputError: there is no such topic, or no such hub is available.
            QueueNotFoundError, NotAllowedError, HubUnavailableError, ClosedError: as `publish`.
        """
        at = to if isinstance(to, Address) else Address.parse(to)
        self._change("moveTopic", queue, topic, at.host, at.port)

    def delete_topic(self, topic: str, *, queue: str | None = None) -> bool:
        """Delete a topic: its subscriptions end, and nobody appends to it any more. Its messages
        stay in the queue for as long as it keeps messages; a topic that is created later under this
        name has none of them. Whether there was such a topic: where it is not known what became of
        a call it is called again, and may not be there any more.

        Args:
            topic: the topic.
            queue: the queue; the setting ``queue`` if None.

        Raises:
            InvalidInputError: an argument is out of range.
            QueueNotFoundError, NotAllowedError, HubUnavailableError, ClosedError: as `publish`.
        """
        return bool(self._change("deleteTopic", queue, topic))

    def allow(
        self,
        topic: str,
        *,
        publish: Sequence[str] | None = None,
        subscribe: Sequence[str] | None = None,
        manage: Sequence[str] | None = None,
        queue: str | None = None,
    ) -> TopicAccess:
        """Say who may do what with a topic, and return its rules as they are then. A rule that is
        not given stays; given none, nothing is changed. When this returns the rules hold for every
        call, whatever hub has the topic, where hubs go by rules (their setting ``authorizer``); who
        may not subscribe any more gets nothing more.

        Args:
            topic: the topic, which is created if it is not there and a rule is given.
            publish, subscribe, manage: names, as in `TopicAccess`.
            queue: the queue; the setting ``queue`` if None.

        Raises:
            InvalidInputError: an argument is out of range, or there is no such topic and no rule is
                given.
            QueueNotFoundError, NotAllowedError, HubUnavailableError, ClosedError: as `publish`.
        """
        rules = access_struct(publish=publish, subscribe=subscribe, manage=manage)
        return access_of(self._change("changeAccess", queue, topic, rules))

    def subscribe(
        self,
        topic: str,
        subscriber: str,
        listener: Listener,
        *,
        queue: str | None = None,
        mode: SubscribeMode = SubscribeMode.CREATE_OR_ATTACH,
        preferences: SubscriptionPreferences | None = None,
        explicit_consume: bool = False,
        host: str | None = None,
        port: int = 0,
    ) -> TopicSubscription:
        """Subscribe to a topic: its messages come to a listener, in their order, from the
        subscription's consume mark on; of a new one from the topic's end on.

        The hub calls this process. When the topic comes to another hub, or its hub dies, the client
        subscribes again by itself, and goes on at the mark; what was delivered and not marked yet
        comes again.

        Args:
            topic: the topic.
            subscriber: the subscription's name within the topic. Another client that subscribes
                under it takes it over.
            listener: gets messages; what it answers becomes of them, as for `Subscriber`.
            queue: the queue; the setting ``queue`` if None.
            mode: whether there may be such a subscription already, or must be.
            preferences: kept with the subscription; those that it has if None.
            explicit_consume: the listener only receives; `TopicSubscription.consume` moves the
                mark.
            host: where hubs reach this process; if None the address from which it reaches them.
            port: where to listen; a free one if 0. All of a name's topics share the first one's.

        Raises:
            InvalidInputError: an argument is out of range, or it can't be listened there.
            SubscriberExistsError: the subscription exists, and `mode` is to create it.
            SubscriberNotFoundError: no such subscription exists, and `mode` is to attach.
            QueueNotFoundError, NotAllowedError, HubUnavailableError, ClosedError: as `publish`.
        """
        return self._subscriptions.subscribe(
            self._queue(queue),
            topic,
            subscriber,
            listener,
            mode=mode,
            preferences=preferences,
            explicit_consume=explicit_consume,
            host=host,
            port=port,
        )

    def messages(
        self,
        topic: str,
        subscriber: str,
        *,
        queue: str | None = None,
        mode: SubscribeMode = SubscribeMode.CREATE_OR_ATTACH,
        preferences: SubscriptionPreferences | None = None,
        host: str | None = None,
        port: int = 0,
    ) -> AsyncGenerator[ReceivedMessage, None]:
        """A topic's messages, one after the other, for ``async for``. A message is consumed when
        the next one is asked for; the mark is stored now and then, and when the generator is closed
        (`contextlib.aclosing`). What was not consumed comes again to the next client that attaches.

        At most ``delivery_window`` messages wait here, 1,000 if there is no such preference.

        Args:
            topic, subscriber, queue, mode, preferences, host, port: as for `subscribe`.

        Raises:
            SubscriberConnectedError: another client took the subscription over.
            SubscriberNotFoundError: it was unsubscribed.
            HQueueError: as `subscribe`; when the first message is asked for.
        """
        subscribe = functools.partial(
            self._subscriptions.subscribe,
            self._queue(queue),
            topic,
            subscriber,
            mode=mode,
            preferences=preferences,
            host=host,
            port=port,
        )
        return messages_of(subscribe, self)

    def unsubscribe(self, topic: str, subscriber: str, *, queue: str | None = None) -> None:
        """End a subscription, even if a client is attached: its mark and preferences are gone.

        In a call of that subscription's listener this returns at once, as
        `TopicSubscription.unsubscribe` does.

        Raises:
            SubscriberNotFoundError: no such subscription exists.
            InvalidInputError, QueueNotFoundError, NotAllowedError, HubUnavailableError,
                ClosedError: as `publish`.
        """
        topic_bytes(topic)
        self._subscriptions.unsubscribe(self._queue(queue), topic, check_name(subscriber))

    def _change(self, method: str, queue: str | None, topic: str, *how: object) -> Any:
        """Call a method that changes a topic, and can be called again."""
        region, caller = self._queue(queue), self.settings.publisher
        topic_bytes(topic)
        answer, _ = self._calls.call(
            region,
            topic,
            lambda client, to: getattr(client, method)(region, caller, topic, *how, to),
            repeatable=True,
        )
        return answer

    def _queue(self, queue: str | None) -> str:
        chosen = self.settings.queue if queue is None else queue
        if chosen is None:
            raise InvalidInputError("name the queue, here or when the client is made")
        return check_queue_name(chosen)


def connect_hubs(
    hubs: str | Address | Sequence[str | Address], **given: Unpack[HubOptions]
) -> HubClient:
    """Connect to hubs: the client publishes and subscribes to topics, and needs neither HBase nor
    ZooKeeper. Programs that reach HBase have `connect`.

    Nothing is sent before the first operation.

    Args:
        hubs: some hubs, of which each names the others: ``host:port`` with commas between, an
            `Address`, or a sequence of either.
        given: settings by their names in `HubClientSettings`; the others have their defaults.

    Raises:
        SettingsError: a setting is unknown or has a wrong value.
    """
    known = all_known(HubClientSettings, {}, given)
    return HubClient(HubClientSettings(hub_addresses(hubs), **known))


def _release(subscriptions: Subscriptions, calls: HubCalls, api: ApiCalls) -> None:
    subscriptions.close()
    calls.close()
    api.close()

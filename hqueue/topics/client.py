"""The client of hubs: topics, queues and producers by way of them."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Sequence

from hqueue.errors import InvalidInputError
from hqueue.produce.producer_options import ProducerOptions
from hqueue.runtime.clock import SYSTEM_CLOCK, Clock
from hqueue.runtime.forgotten import Watched
from hqueue.settings.addresses import Address
from hqueue.settings.attributes import check_queue_name
from hqueue.settings.loading import all_known
from hqueue.settings.options import Unpack, check_options
from hqueue.topics.api_calls import ApiCalls
from hqueue.topics.calls import HubCalls
from hqueue.topics.idempotent import IdempotentPublisher
from hqueue.topics.producer import HubProducer
from hqueue.topics.queue import HubQueue
from hqueue.topics.settings import HubClientSettings, HubOptions, hub_addresses
from hqueue.topics.subscriptions import Subscriptions
from hqueue.topics.topic import HubTopic

__all__ = ["HubClient", "connect_hubs"]


class HubClient:
    """Publishes and subscribes to topics of queues that hubs serve. Made by
    `connect_hubs`. Needs neither HBase nor ZooKeeper.

    Thread-safe, and usable in a forked child. Connections are opened when needed, and kept; which
    hub owns a topic is remembered. Use it as a context manager, or `close` it. One that is
    forgotten, with its topics, producers, queues and subscriptions, is closed when it is collected,
    with a `ResourceWarning`; a subscription keeps it for as long as it lasts.

    Args:
        settings: where hubs are, and bounds.
        clock: where time comes from.
    """

    def __init__(self, settings: HubClientSettings, clock: Clock = SYSTEM_CLOCK) -> None:
        self.settings = settings
        self._calls = HubCalls(settings, clock)
        self._idempotent = IdempotentPublisher(self._calls)
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

    def topic(self, name: str, *, queue: str | None = None) -> HubTopic:
        """A topic, which can be published and subscribed to, and administered. Asks nothing, and
        creates nothing: hubs create a topic that is first published or subscribed to.

        Args:
            name: the topic.
            queue: the queue; the setting ``queue`` if None.

        Raises:
            InvalidInputError: the name can't be a topic's, or is the system's own; or no queue is
                named.
        """
        return HubTopic(
            name,
            self._queue(queue),
            calls=self._calls,
            idempotent=self._idempotent,
            subscriptions=self._subscriptions,
            client=self,
        )

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
        name = self._queue(queue)
        check_options("HubProducer", options, ProducerOptions.__annotations__)
        return HubProducer(
            lambda topic, messages: self.topic(topic, queue=name).publish_many(messages), **options
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
        hubs: some hubs; each names the others: ``host:port`` with commas between, an `Address`, or
            a sequence of either.
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

"""The client of hubs: publishes, subscribes and scans without HBase."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Sequence

from hqueue.produce.producer_options import ProducerOptions
from hqueue.runtime.clock import SYSTEM_CLOCK, Clock
from hqueue.runtime.forgotten import Watched
from hqueue.settings.addresses import Address
from hqueue.settings.keyword_options import Unpack, check_options
from hqueue.topics.api_calls import ApiCalls
from hqueue.topics.calls import HubCalls
from hqueue.topics.idempotent import IdempotentPublisher
from hqueue.topics.producer import HubProducer
from hqueue.topics.queue import HubQueue
from hqueue.topics.settings import (
    HubClientSettings,
    HubOptions,
    hub_settings,
    queue_named,
)
from hqueue.topics.subscription import TopicSubscription
from hqueue.topics.thread_subscriptions import ThreadSubscriptions
from hqueue.topics.topic import HubTopic

__all__ = ["HubClient", "connect_hubs"]


class HubClient:
    """Publishes and subscribes to topics through hubs. Needs neither HBase nor ZooKeeper.
    Made by `connect_hubs`.

    Thread-safe, and usable in a forked child. Connections are opened when they are needed, and
    kept. The client remembers which hub owns a topic. Use it as a context manager, or `close` it. A
    client that was never closed is closed when Python collects it and its topics, producers, queues
    and subscriptions, with a `ResourceWarning`. A subscription keeps its client for as long as it
    lasts.

    Args:
        settings: the hubs' addresses, limits and timeouts.
        clock: the source of time.
    """

    def __init__(self, settings: HubClientSettings, clock: Clock = SYSTEM_CLOCK) -> None:
        self.settings = settings
        self._calls = HubCalls(settings, clock)
        self._idempotent = IdempotentPublisher(self._calls)
        self._subscriptions = ThreadSubscriptions(self._calls, weakref.ref(self))
        self._api = ApiCalls(self._calls, clock)
        self._release = functools.partial(_release, self._subscriptions, self._calls, self._api)
        self._watched = Watched(self, "a client of hubs", self._release)

    def __enter__(self) -> HubClient:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all subscriptions, which stay with the hubs, and all connections. Calls under way
        are completed; further ones are refused. If a listener calls it, it returns at once, and
        takes effect when the listener has returned: see `TopicSubscription.close`.
        """
        if not self._subscriptions.leave_behind(self._release):
            self._release()
        self._watched.closed()

    @property
    def subscriptions(self) -> list[TopicSubscription]:
        """The subscriptions of this client that have begun and have not ended, including
        those that are just being made or closed: their names are taken.
        """
        return self._subscriptions.all

    def topic(self, name: str, *, queue: str | None = None) -> HubTopic:
        """Return a topic, to publish, subscribe and administer. Sends no request, and creates
        nothing: hubs create a topic at its first publish or subscription.

        Args:
            name: the topic.
            queue: the queue; the setting ``queue`` if None.

        Raises:
            InvalidInputError: the name is not a valid topic name, it is one of the system's own, or
                no queue is given.
        """
        return HubTopic(
            name,
            queue_named(self.settings, queue),
            calls=self._calls,
            idempotent=self._idempotent,
            subscriptions=self._subscriptions,
            client=self,
        )

    def producer(
        self, *, queue: str | None = None, **options: Unpack[ProducerOptions]
    ) -> HubProducer:
        """Open a producer, which publishes in the background. Close it before the client.

        Args:
            queue: the queue; the setting ``queue`` if None.
            options: see `ProducerOptions`.

        Raises:
            InvalidInputError: no queue is given, or an option is unknown or out of range.
            ClosedError: the client was closed.
        """
        self._calls.check_open()
        name = queue_named(self.settings, queue)
        check_options("HubProducer", options, ProducerOptions.__annotations__)
        return HubProducer(
            lambda topic, messages: self.topic(topic, queue=name).publish_many(messages), **options
        )

    def queue(self, name: str | None = None) -> HubQueue:
        """Return a whole queue, to put messages into and to scan. Sends no request. The queue's
        hubs must serve the Thrift API: set their ``api_port``.

        Args:
            name: the queue; the setting ``queue`` if None.

        Raises:
            InvalidInputError: no queue is given, or the name is not a valid queue name.
        """
        return HubQueue(queue_named(self.settings, name), self._api, self)


def connect_hubs(
    hubs: str | Address | Sequence[str | Address], **given: Unpack[HubOptions]
) -> HubClient:
    """Connect to hubs, to publish and subscribe to topics without HBase and ZooKeeper. Programs
    that can reach HBase use `connect`.

    Nothing is sent before the first operation.

    Args:
        hubs: some of the hubs: ``host:port`` with commas between, an `Address`, or a sequence of
            either. Each hub knows the others.
        given: single settings by their names in `HubClientSettings`. The other settings have their
            defaults, but TLS settings come from the environment, the settings file or a running
            local server, as those of `connect` do, unless ``tls`` is False.

    Raises:
        SettingsError: a setting is unknown or has a wrong value.
    """
    return HubClient(hub_settings(hubs, given))


def _release(subscriptions: ThreadSubscriptions, calls: HubCalls, api: ApiCalls) -> None:
    subscriptions.release()
    calls.close()
    api.close()

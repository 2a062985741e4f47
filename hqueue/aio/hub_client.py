"""The client of hubs for event loops."""

from __future__ import annotations

import asyncio
import functools
import weakref
from collections.abc import Sequence

from hqueue.aio.hub_producer import HubProducer
from hqueue.aio.hub_queue import HubQueue
from hqueue.aio.hub_subscriptions import LoopSubscriptions
from hqueue.aio.hub_topic import HubTopic
from hqueue.aio.topic_subscription import TopicSubscription
from hqueue.produce.producer_options import ProducerOptions
from hqueue.runtime.clock import SYSTEM_CLOCK, Clock
from hqueue.runtime.forgotten import Watched
from hqueue.runtime.per_loop import PerLoop
from hqueue.settings.addresses import Address
from hqueue.settings.keyword_options import Unpack, check_options
from hqueue.topics.api_calls import ApiCalls
from hqueue.topics.calls import HubCalls
from hqueue.topics.idempotent import IdempotentPublisher
from hqueue.topics.settings import (
    HubClientSettings,
    HubOptions,
    hub_settings,
    queue_named,
)
from hqueue.topics.topic_requests import TopicRequests

__all__ = ["HubClient", "connect_hubs"]


class HubClient:
    """Publishes and subscribes to topics through hubs, for event loops. Like `hqueue.HubClient`.
    Made by `connect_hubs`.

    Several event loops may use it. Each has connections and subscriptions of its own. Use the
    client as an asynchronous context manager, or `close` it. A client that was never closed is
    closed when Python collects it and what it made, with a `ResourceWarning`.

    Args:
        settings: the hubs' addresses, limits and timeouts.
        clock: the source of time.
    """

    def __init__(self, settings: HubClientSettings, clock: Clock = SYSTEM_CLOCK) -> None:
        self.settings = settings
        self._calls = HubCalls(settings, clock)
        self._idempotent = IdempotentPublisher(self._calls)
        self._api = ApiCalls(self._calls, clock)
        self._subscriptions: PerLoop[LoopSubscriptions] = PerLoop(
            functools.partial(LoopSubscriptions, self._calls, weakref.ref(self)),
            LoopSubscriptions.release_soon,
            LoopSubscriptions.abandon,
        )
        self._release = functools.partial(_release, self._subscriptions, self._calls, self._api)
        self._watched = Watched(self, "an asynchronous client of hubs", self._release)

    async def __aenter__(self) -> HubClient:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the subscriptions of the running loop, which stay with the hubs, and all
        connections. Like `hqueue.HubClient.close`. Close the subscriptions of other loops in
        those loops first. A caller that is cancelled may call it again.
        """
        here = self._subscriptions.items.get(asyncio.get_running_loop())
        if here is None or not here.leave_behind(functools.partial(self._close, here)):
            await self._close(here)

    async def _close(self, here: LoopSubscriptions | None) -> None:
        if here is not None:
            await here.release()
        self._release()
        self._watched.closed()

    @property
    def subscriptions(self) -> list[TopicSubscription]:
        """The subscriptions of this client, in all loops. Like `hqueue.HubClient.subscriptions`."""
        return [each for here in self._subscriptions.items.values() for each in here.all]

    def topic(self, name: str, *, queue: str | None = None) -> HubTopic:
        """Return a topic. Like `hqueue.HubClient.topic`. Sends no request."""
        requests = TopicRequests(
            name, queue_named(self.settings, queue), self._calls, self._idempotent
        )
        return HubTopic(requests, subscriptions=self._subscriptions.here, client=self)

    def producer(
        self, *, queue: str | None = None, **options: Unpack[ProducerOptions]
    ) -> HubProducer:
        """Open a producer, which publishes in the background. Like `hqueue.HubClient.producer`.
        Call it in the event loop that uses the producer, and close
        the producer before the client.
        """
        self._calls.check_open()
        name = queue_named(self.settings, queue)
        check_options("HubProducer", options, ProducerOptions.__annotations__)
        return HubProducer(
            lambda topic, messages: self.topic(topic, queue=name).publish_many(messages), **options
        )

    def queue(self, name: str | None = None) -> HubQueue:
        """Return a whole queue, to put messages into and to scan. Like `hqueue.HubClient.queue`.
        Sends no request.
        """
        return HubQueue(queue_named(self.settings, name), self._api, self)


def connect_hubs(
    hubs: str | Address | Sequence[str | Address], **given: Unpack[HubOptions]
) -> HubClient:
    """Connect to hubs. Like `hqueue.connect_hubs`. Sends no request, and may be called outside of
    an event loop.
    """
    return HubClient(hub_settings(hubs, given))


def _release(subscriptions: PerLoop[LoopSubscriptions], calls: HubCalls, api: ApiCalls) -> None:
    subscriptions.close()
    calls.close()
    api.close()

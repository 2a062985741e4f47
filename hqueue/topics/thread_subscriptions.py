"""The subscriptions of a client that threads use."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

from hqueue.errors import HQueueError
from hqueue.push.listener import Listener, Listeners
from hqueue.push.service import Consumption
from hqueue.runtime.alarm import needed_loop
from hqueue.runtime.loop import background, by_threads, in_thread
from hqueue.runtime.steps import Wait, Work, carry_out
from hqueue.runtime.thread_pool import ThreadPool
from hqueue.runtime.waiting import Event
from hqueue.topics.delivering_hubs import Background
from hqueue.topics.endpoint import TIMEOUT_MS, Endpoint
from hqueue.topics.subscription import TopicSubscription
from hqueue.topics.subscription_state import SubscriptionState
from hqueue.topics.subscriptions import Subscriptions

__all__ = ["ThreadSubscriptions"]

WAIT_MS = 600_000.0
"""How long a call of hubs waits for a thread: longer than several take that get no answer."""

Result = TypeVar("Result")

_threads = ThreadPool(16, "hqueue-messages")
"""A call of hubs may take a minute and more: what others wait for has threads of its own."""


class ThreadSubscriptions(Subscriptions):
    """Threads receive messages and call listeners, and the process's loop works in the background.
    Thread-safe.
    """

    def _background(self) -> Background:
        return needed_loop()

    def _make_endpoint(self, host: str, port: int, at: str | None) -> Endpoint:
        return Endpoint(host, port, self._calls.delivery_guard(), at)

    def _make_listeners(self, listener: Listener, subscriber: str) -> Listeners:
        return Listeners(listener, TIMEOUT_MS, subscriber)

    def _make_subscription(
        self, name: tuple[str, str, str], listeners: Any, **options: Any
    ) -> TopicSubscription:
        consumption = Consumption(listeners, 1, TIMEOUT_MS)
        event = partial(Event, carried=True)
        return TopicSubscription(self, *name, consumption=consumption, event=event, **options)

    def _event(self) -> Event:
        return Event()

    def _wait_for(self, event: Any, bound_ms: float) -> Wait:
        wait: Callable[[], bool] = partial(event.wait, bound_ms / 1e3)
        return Wait(wait, partial(in_thread, wait))

    def _end_later(self, *ending: Any) -> Callable[[], Any]:
        return partial(self._end_behind, *ending)

    async def _lose(self, subscription: SubscriptionState, failure: HQueueError) -> None:
        await in_thread(self.lose, subscription, failure)

    def go_on(self, work: Work[Any, Result]) -> Awaitable[Result]:
        return by_threads(_threads, WAIT_MS, partial(carry_out, work, self._do))

    def begin(self, *given: Any, **options: Any) -> TopicSubscription:
        """Subscribe, as `subscribe` does. A caller that is interrupted has no subscription."""
        made: list[SubscriptionState] = []
        try:
            subscription: TopicSubscription = self.subscribe(*given, **options, made=made)
            return subscription
        except BaseException:
            for each in made:  # Its work may have come to its end.
                self.drop(each)
            raise

    def release(self) -> None:
        """Close all subscriptions, and end the work in the background."""
        self.close()
        self.hubs.close(background())

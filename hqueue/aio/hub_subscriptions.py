"""The subscriptions of a client of hubs in one event loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

from hqueue.aio.topic_subscription import TopicSubscription
from hqueue.errors import HQueueError
from hqueue.push.listener import Listener
from hqueue.push.loop_service import LoopConsumption, LoopListeners
from hqueue.runtime.program_loop import ProgramLoop, result_of
from hqueue.runtime.steps import Wait, Work, carry_out_in_loop
from hqueue.topics.calls import HubCalls
from hqueue.topics.delivering_hubs import Background
from hqueue.topics.endpoint import TIMEOUT_MS, LoopEndpoint
from hqueue.topics.subscription_state import SubscriptionState
from hqueue.topics.subscriptions import Subscriptions

__all__ = ["LoopSubscriptions"]

END_S = 10.0
"""How long listeners that were cancelled may take to end."""

Result = TypeVar("Result")


class LoopSubscriptions(Subscriptions):
    """One event loop receives messages, calls listeners, and works in the background: the one that
    makes this, and makes all calls.

    A caller that is cancelled leaves what it has begun to its end.

    Args:
        calls, client: as for `Subscriptions`.
    """

    def __init__(self, calls: HubCalls, client: Callable[[], object | None]) -> None:
        self._tasks = ProgramLoop()
        self._closing: asyncio.Task[None] | None = None
        super().__init__(calls, client)

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop."""
        return self._tasks.loop

    def _background(self) -> Background:
        return self._tasks

    def _make_endpoint(self, host: str, port: int, at: str | None) -> LoopEndpoint:
        return LoopEndpoint(host, port, self._calls.delivery_guard(), at)

    def _make_listeners(self, listener: Listener, subscriber: str) -> LoopListeners:
        return LoopListeners(listener, TIMEOUT_MS, self._tasks, subscriber)

    def _make_subscription(
        self, name: tuple[str, str, str], listeners: Any, **options: Any
    ) -> TopicSubscription:
        consumption = LoopConsumption(listeners, 1, TIMEOUT_MS)
        return TopicSubscription(
            self, *name, consumption=consumption, event=asyncio.Event, **options
        )

    def _event(self) -> asyncio.Event:
        return asyncio.Event()

    def _wait_for(self, event: Any, bound_ms: float) -> Wait:
        return Wait(event.is_set, partial(_wait, event, bound_ms / 1e3))

    def _end_later(self, *ending: Any) -> Callable[[], Any]:
        return partial(self._end_behind.in_loop, *ending)

    async def _lose(self, subscription: SubscriptionState, failure: HQueueError) -> None:
        self.lose(subscription, failure)

    def go_on(self, work: Work[Any, Result]) -> Awaitable[Result]:
        return self._tasks.run(carry_out_in_loop(work, self._do_in_loop))

    async def begin(self, *given: Any, **options: Any) -> TopicSubscription:
        """Subscribe, as `subscribe` does. If the caller is cancelled, the subscription is closed in
        the background as soon as it is attached.
        """

        def subscribe(is_wanted: Callable[[], bool]) -> Coroutine[Any, Any, TopicSubscription]:
            return self.subscribe.in_loop(*given, is_wanted=is_wanted, **options)

        return await self._tasks.made(subscribe, self.leave.in_loop)

    async def release(self) -> None:
        """Close all subscriptions, and end the work in the background. Callers that come meanwhile
        wait for the same.
        """
        closing = self._closing
        if closing is None or (closing.done() and (self._all or _has_failed(closing))):
            closing = self._closing = self._tasks.begin(self.close.in_loop())
        await asyncio.wait([closing])
        result_of(closing)
        self.hubs.close(None)
        await self._tasks.close(END_S)

    def release_soon(self) -> None:
        """The same, by a task of the loop, which calls this."""
        if self._all or self._endpoints:
            self._tasks.start(self.release)

    def abandon(self) -> None:
        """Close the ports, and end the subscriptions, if the loop was closed. A forked child has
        none of them.
        """
        if self._tasks.loop.is_closed():
            for endpoint in self._endpoints.values():
                assert isinstance(endpoint, LoopEndpoint)
                endpoint.abandon()
            self._endpoints.clear()
            for subscription in self.all:
                with contextlib.suppress(RuntimeError):  # Its loop had tasks that wait for the end.
                    subscription.end(None)
            self._all.clear()
            self._listeners.clear()


async def _wait(event: asyncio.Event, bound_s: float) -> bool:
    """Wait for a flag, no longer than the bound. Returns whether it is set."""
    waiting = asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait([waiting], timeout=bound_s)
    finally:
        waiting.cancel()
    return event.is_set()


def _has_failed(closing: asyncio.Task[Any]) -> bool:
    return closing.cancelled() or closing.exception() is not None

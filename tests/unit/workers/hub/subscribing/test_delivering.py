"""Which subscription is delivered to next, among those at one address and those of one share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

from hqueue import Address
from hqueue.metadata.managers import SubscriptionPreferences
from hqueue_workers.hub.limits import HubLimits
from hqueue_workers.hub.subscribing.delivering import Delivering
from hqueue_workers.hub.subscribing.endpoints import SubscriberEndpoint
from hqueue_workers.hub.subscribing.subscription_session import (
    Delivery,
    SubscribedTopic,
    SubscriptionSession,
)
from hqueue_workers.node.runtime import Runtime

WAIT_S = 30.0
NEVER_MS = 3_600_000.0


class Calls(Delivering):
    """Calls that take until they are ended, and are never made again."""

    def __init__(self, runtime: Runtime, calls_max: int) -> None:
        parts: dict[str, Any] = dict.fromkeys(
            ("patience", "lease", "may_reach", "store", "moved", "metrics"), Mock()
        )
        super().__init__(
            *(Mock() for _ in range(5)),
            runtime=runtime,
            calls_max=calls_max,
            limits=HubLimits(),
            **parts,
        )
        self.under_way: dict[str, asyncio.Future[None]] = {}
        self.on_turn: Callable[[], object] = lambda: None
        """Called when the turn of one that waited has come."""

    def _again(self, subscription: SubscriptionSession) -> None:
        super()._again(subscription)
        self.on_turn()

    async def _deliver(
        self, subscription: SubscriptionSession, endpoint: SubscriberEndpoint
    ) -> float:
        name = subscription.subscriber
        ends = self.under_way[name] = asyncio.get_running_loop().create_future()
        await ends
        del self.under_way[name]
        return NEVER_MS


def _subscription(name: str, port: int) -> SubscriptionSession:
    delivery = Delivery(Address("host", port), "session", False, "host")
    preferences = SubscriptionPreferences()
    return SubscriptionSession(
        SubscribedTopic(Mock(), 10),
        name,
        delivery,
        preferences=preferences,
        version=Mock(),
        consumed=0,
        owner=name,
    )


async def _come_to_rest() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def test_who_waits_for_an_address_has_a_turn_though_the_one_before_left_while_it_waited() -> None:
    async def go() -> None:
        runtime = Runtime(1)
        calls = Calls(runtime, 2)  # One of them to addresses that did not answer yet.
        first, leaves, waits = (_subscription(name, 1) for name in ("first", "leaves", "waits"))
        for each in (first, leaves, waits):
            calls.wake(each)
        await _come_to_rest()
        assert list(calls.under_way) == ["first"]
        calls.under_way["first"].set_result(None)
        calls.wake(_subscription("elsewhere", 2))
        await _come_to_rest()
        assert list(calls.under_way) == ["elsewhere"], "the next one waits for the share"
        leaves.left = True
        calls.under_way["elsewhere"].set_result(None)
        await _come_to_rest()
        assert list(calls.under_way) == ["waits"]
        await runtime.close()

    asyncio.run(asyncio.wait_for(go(), WAIT_S))


def test_who_waits_for_an_address_has_a_turn_though_the_one_before_left_when_its_own_came() -> None:
    async def go() -> None:
        runtime = Runtime(1)
        calls = Calls(runtime, 2)
        first, leaves, waits = (_subscription(name, 1) for name in ("first", "leaves", "waits"))
        for each in (first, leaves, waits):
            calls.wake(each)
        await _come_to_rest()

        def leave() -> None:
            leaves.left = True

        calls.on_turn = leave
        calls.under_way["first"].set_result(None)
        await _come_to_rest()
        assert list(calls.under_way) == ["waits"]
        await runtime.close()

    asyncio.run(asyncio.wait_for(go(), WAIT_S))

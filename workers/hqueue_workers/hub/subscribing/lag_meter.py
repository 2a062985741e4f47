"""Measures how far the subscriptions of a hub's topics are behind."""

from __future__ import annotations

import asyncio
import heapq
from collections import defaultdict
from collections.abc import Sequence
from functools import partial

from hqueue import HQueueError, MessageID, Queue
from hqueue.runtime.logs import Log
from hqueue_workers.hub.metrics import SubscriptionLag
from hqueue_workers.hub.subscribing.subscription_session import SubscriptionSession
from hqueue_workers.hub.subscribing.subscription_sessions import SubscriptionSessions
from hqueue_workers.node.measuring import measure_again_and_again
from hqueue_workers.node.runtime import Runtime

__all__ = ["SubscriptionLagMeter"]

logger = Log(__name__)

MEASURED_MAX = 1_000
"""Subscriptions whose lags are shown: a hub may have a hundred thousand."""
TOGETHER = 5_000
"""This many are looked at before the event loop does something else."""


class SubscriptionLagMeter:
    """Measures the lags of attached subscriptions: first of those that have been behind for
    longest, and of others while there is room. A subscription at its topic's end costs no request;
    others are measured by requests to HBase now and then. Lags that can't be measured are not
    shown.

    Args:
        sessions: the sessions of the subscriptions.
        queue: the queue of their topics.
        runtime: the hub's runtime.
        every_ms: how often they are measured.
    """

    def __init__(
        self, sessions: SubscriptionSessions, queue: Queue, runtime: Runtime, every_ms: float
    ) -> None:
        self.measured: Sequence[SubscriptionLag] = ()
        """The lags as they were when they were looked at last."""
        self._sessions = sessions
        self._queue = queue
        self._runtime = runtime
        self._every_ms = every_ms

    async def run(self) -> None:
        """Measure, until cancelled."""
        await measure_again_and_again(self._runtime, self._every_ms, self._measure)

    async def _measure(self) -> None:
        measured: list[SubscriptionLag] = []
        behind: dict[str, dict[str, MessageID]] = defaultdict(dict)
        for each in await self._choose():
            topic, subscriber = each.key
            if each.at_end:
                measured.append(SubscriptionLag(topic, subscriber, 0, 0))
            else:
                behind[topic][subscriber] = MessageID.from_int(each.position)
        for topic, positions in behind.items():
            try:
                lags = await self._runtime.read(partial(self._queue.topic_lags, topic, positions))
            except HQueueError as exc:
                logger.debug("can't measure the lag of a topic's subscriptions: %s", exc)
                continue
            measured += [
                SubscriptionLag(topic, subscriber, lag.messages, lag.age_ms)
                for subscriber, lag in lags.items()
            ]
        self.measured = measured

    async def _choose(self) -> list[SubscriptionSession]:
        """Choose the subscriptions that have been behind for longest, then others."""
        chosen: list[SubscriptionSession] = []
        every = self._sessions.every()
        for at in range(0, len(every), TOGETHER):
            chosen = heapq.nsmallest(
                MEASURED_MAX, [*chosen, *every[at : at + TOGETHER]], key=_since_when
            )
            await asyncio.sleep(0)
        return chosen


def _since_when(subscription: SubscriptionSession) -> tuple[bool, int]:
    return subscription.at_end, subscription.position

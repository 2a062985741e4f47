"""Reads older messages, which are not in memory, from the log for subscriptions that are behind."""

from __future__ import annotations

import asyncio
import collections
import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Protocol

from hqueue import Queue
from hqueue.engine import LoopReader, TopicCursor
from hqueue.metadata import DeliveryOptions
from hqueue.runtime.clock import Deadline
from hqueue_workers.delivery.cursor import SubscriberCursor
from hqueue_workers.delivery.scanner import CursorSource, MessageScanner, Source
from hqueue_workers.delivery.segment import SubscriptionFilter
from hqueue_workers.delivery.wire import Call
from hqueue_workers.hub.limits import HubLimits
from hqueue_workers.hub.subscribing.subscription_session import SubscribedTopic, SubscriptionSession
from hqueue_workers.node.runtime import Runtime

__all__ = ["Backlogs", "OpenTopic"]

IDLE_MS = 10_000.0


class OpenTopic(Protocol):
    """Opens a cursor in a topic, like `LoopLog.topic_cursor`."""

    def __call__(
        self, topic: str, *, start: int, stop: Callable[[], int], bytes_max: int
    ) -> TopicCursor: ...


@dataclasses.dataclass(eq=False)
class _Reading:
    topic: SubscribedTopic
    cursor: SubscriberCursor
    used_ms: float
    busy: bool = False


class Backlogs:
    """Reads topics for subscriptions, as push reads a partition. Subscriptions of a topic that are
    near each other share what was read and encoded; one that is behind them reads alone. Used by
    the event loop.

    A reading continues from call to call. There are at most as many as calls at a time, and the
    bytes of readings that are not in use are bounded. The least recently used one ends first, and
    each one that was unused for a while. The next call of its subscription begins another.

    Args:
        queue: the queue.
        log: reads it.
        open_topic: opens cursors in topics.
        options: the delivery options of subscribers.
        runtime: the hub's runtime.
        patience: the bound on a read with its retries.
        readings_max: the most readings at a time; not less than calls at a time.
        limits: bounds what readings hold.
    """

    def __init__(
        self,
        queue: Queue,
        log: LoopReader,
        open_topic: OpenTopic,
        options: DeliveryOptions,
        *,
        runtime: Runtime,
        patience: Callable[[], Deadline],
        readings_max: int,
        limits: HubLimits,
    ) -> None:
        self._queue = queue
        self._log = log
        self._open_topic = open_topic
        self._options = options
        self._runtime = runtime
        self._patience = patience
        self._readings_max = readings_max
        self._limits = limits
        self._readings: collections.OrderedDict[SubscriptionSession, _Reading] = (
            collections.OrderedDict()
        )
        """The one that was used last is the last."""
        self._shared: dict[SubscribedTopic, MessageScanner] = {}
        self._looking = False

    async def take(self, subscription: SubscriptionSession, messages_max: int) -> Call | None:
        """Return the next call of a subscription with messages below its topic's end; None if the
        caller must ask again.

        Raises:
            HQueueError: the log can't be read now, or is corrupt there.
        """
        reading = self._reading(subscription)
        cursor, reading.busy = reading.cursor, True
        try:
            if cursor.position != subscription.position:
                cursor.advance(subscription.position)
            await cursor.ready()
            return await cursor.take(subscription.tries.end, messages_max=messages_max)
        finally:
            reading.busy = False
            self._end_some()

    def leave(self, subscription: SubscriptionSession) -> None:
        """Note that a subscription needs nothing of the log now."""
        reading = self._readings.pop(subscription, None)
        if reading is not None:
            self._end(reading)

    def _reading(self, subscription: SubscriptionSession) -> _Reading:
        now_ms = self._runtime.clock.monotonic_ms()
        reading = self._readings.pop(subscription, None)
        if reading is None:
            subscribed, topic = subscription.topic, frozenset({subscription.topic.owned.name})
            options = self._options
            # Without a subscriber's name: all subscriptions of the topic get the same slices.
            filter_ = SubscriptionFilter(
                "", topic, options.batch_messages_max, options.batch_bytes_max
            )
            shared = self._shared.get(subscribed)
            if shared is None:
                shared = self._shared[subscribed] = self._scanner(subscribed)
            cursor = SubscriberCursor(
                self._queue,
                filter_,
                subscription.position,
                shared=shared,
                alone=partial(self._scanner, subscribed),
                runtime=self._runtime,
            )
            reading = _Reading(subscribed, cursor, now_ms)
        reading.used_ms = now_ms
        self._readings[subscription] = reading
        if not self._looking:
            self._looking = True
            asyncio.get_running_loop().call_later(IDLE_MS / 1e3, self._end_idle)
        return reading

    def _scanner(self, subscribed: SubscribedTopic) -> MessageScanner:
        def open_source(start: int, topics: object, bytes_max: int) -> Source:
            cursor = self._open_topic(
                subscribed.owned.name, start=start, stop=lambda: subscribed.end, bytes_max=bytes_max
            )
            return CursorSource(self._log, cursor)

        return MessageScanner(
            self._queue,
            open_source,
            self._runtime,
            lambda: self._limits.reading_bytes,
            patience=self._patience,
        )

    def _end(self, reading: _Reading) -> None:
        reading.cursor.close()
        shared = self._shared[reading.topic]
        if not shared.is_used:
            shared.close()
            del self._shared[reading.topic]

    def _end_some(self) -> None:
        """End readings until their number and their bytes are within bounds."""
        while (
            len(self._readings) > self._readings_max
            or self.held_bytes > self._limits.idle_readings_bytes_max
        ):
            idle = next((s for s, reading in self._readings.items() if not reading.busy), None)
            if idle is None:
                break
            self.leave(idle)

    @property
    def readings(self) -> int:
        """The number of readings."""
        return len(self._readings)

    @property
    def held_bytes(self) -> int:
        """The bytes that all readings hold, including those of calls under way."""
        alone = sum(reading.cursor.size for reading in self._readings.values())
        return alone + sum(shared.size for shared in self._shared.values())

    def _end_idle(self) -> None:
        before_ms = self._runtime.clock.monotonic_ms() - IDLE_MS
        for subscription, reading in list(self._readings.items()):
            if not reading.busy and reading.used_ms <= before_ms:
                self.leave(subscription)
        self._looking = bool(self._readings)
        if self._looking:
            asyncio.get_running_loop().call_later(IDLE_MS / 1e3, self._end_idle)

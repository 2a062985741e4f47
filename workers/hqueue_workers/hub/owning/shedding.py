"""Measures a hub's load, and sheds topics if it has more than its share."""

from __future__ import annotations

from collections.abc import Callable

from hqueue import Address
from hqueue.metadata.managers import Hubs
from hqueue.runtime.clock import SYSTEM_CLOCK, Clock
from hqueue.runtime.logs import Log
from hqueue_workers.hub.owning.balance import OwnedTopic, load_of, topics_to_release
from hqueue_workers.hub.owning.queue_topics import QueueTopics

__all__ = ["Shedding"]

logger = Log(__name__)


class Shedding:
    """The load of a hub in one queue, in the unit of `balance`, and the topics that it sheds. Used
    by one thread.

    Args:
        topics: the queue's topics that this hub owns.
        hubs: the available hubs, with their loads.
        me: this hub.
        release: releases a topic.
        clock: the clock.
    """

    def __init__(
        self,
        topics: QueueTopics,
        hubs: Hubs,
        me: Address,
        release: Callable[[str], object] | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._topics = topics
        self._hubs = hubs
        self._me = me
        self._release = release or topics.abandon
        self._clock = clock
        self._measured: list[OwnedTopic] = []

    def measure(self) -> int:
        """Measure the load, from what was published since the last call."""
        now_ms = self._clock.monotonic_ms()
        measured = []
        for owned in self._topics.owned():
            before_ms, before = owned.rated
            seconds = max(now_ms - max(before_ms, owned.since_ms), 1.0) / 1e3
            load = load_of((owned.published - before) / seconds)
            owned.rated = now_ms, owned.published
            measured.append(OwnedTopic(owned.name, load, owned.since_ms))
        self._measured = measured
        return round(sum(each.load for each in measured))

    def shed(self) -> None:
        """Release topics if the measured load is too high, few at a time. Calls for them wait, and
        then go to other hubs.
        """
        others = [hub.load for address, hub in self._hubs.list().items() if address != self._me]
        own = sum(each.load for each in self._measured)
        released = topics_to_release(
            own, others, self._measured, len(self._measured), self._clock.monotonic_ms()
        )
        for topic in released:
            logger.info("releasing topic %r to other hubs", topic)
            self._release(topic)

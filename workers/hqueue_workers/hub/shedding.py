"""How much a hub has to do, and giving up topics where that is more than its share."""

from __future__ import annotations

import logging

from hqueue import Address
from hqueue.metadata.managers import Hubs
from hqueue_workers.hub.region import Region

__all__ = ["Shedding"]

logger = logging.getLogger(__name__)

SHED_MAX = 10
"""Topics given up at a time."""


class Shedding:
    """The load of a hub in one queue: the topics that it owns. Used by one thread.

    Args:
        region: this hub's part in the queue.
        hubs: which hubs are available, with their loads.
        me: this hub.
    """

    def __init__(self, region: Region, hubs: Hubs, me: Address) -> None:
        self._region = region
        self._hubs = hubs
        self._me = me

    def measure(self) -> int:
        """How much there is to do now."""
        return len(self._region.owned())

    def shed(self) -> None:
        """Give up a few topics, if others have less to do by more than a tenth."""
        own = self.measure()
        loads = [hub.load for at, hub in self._hubs.list().items() if at != self._me]
        if not loads:
            return
        mean = (own + sum(loads)) / (len(loads) + 1)
        excess = int(own - mean)
        if own <= 1.1 * mean + 1:
            return
        oldest = sorted(self._region.owned(), key=lambda owned: owned.since_ms)
        for owned in oldest[: min(excess, SHED_MAX)]:
            logger.info("topic %r is left to other hubs", owned.name)
            self._region.abandon(owned.name)

"""What the nemesis does to topics: they are moved from hub to hub."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

import hqueue
from hqueue import HQueueError

from .nemesis import Harm, NotDoneError
from .schedule import Planned
from .topic_history import TOPICS

__all__ = ["TopicFaults"]

TIMEOUT_MS = 5_000


class TopicFaults:
    """Faults of topics.

    Args:
        hubs: the hubs' addresses.
        queue: whose topics they own.
    """

    def __init__(self, hubs: Sequence[str], queue: str) -> None:
        self._hubs = hubs
        self._queue = queue
        self.kinds: dict[str, Callable[[Planned], Harm]] = {"move-topics": self._move}

    def _move(self, item: Planned) -> Harm:
        to = self._hubs[item.target % len(self._hubs)]
        moved = 0
        with hqueue.connect(
            hubs=",".join(self._hubs), queue=self._queue, operation_timeout_ms=TIMEOUT_MS
        ) as client:
            for topic in TOPICS:
                with contextlib.suppress(HQueueError):  # A hub or a server may be away just now.
                    client.move_topic(topic, to)
                    moved += 1
        if not moved:
            raise NotDoneError(f"no topic could be moved to {to}")
        return Harm(f"{moved} topics to {to}")

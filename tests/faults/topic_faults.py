"""What the nemesis does to topics: they are moved from hub to hub, and shed."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence

import hqueue
from hqueue import Client, HQueueError

from .nemesis import Harm, NotDoneError
from .schedule import Planned
from .topic_history import TOPICS

__all__ = ["TopicFaults"]

TIMEOUT_MS = 5_000
SHED_S = 60.0


class TopicFaults:
    """Faults of topics.

    Args:
        hubs: the hubs' addresses.
        queue: whose topics they own.
        client: a client, past all faults but those of the servers.
    """

    def __init__(self, hubs: Sequence[str], queue: str, client: Client) -> None:
        self._hubs = hubs
        self._queue = queue
        self._client = client
        self.kinds: dict[str, Callable[[Planned], Harm]] = {
            "move-topics": self._move,
            "overload-hub": self._overload,
        }

    def _overload(self, item: Planned) -> Harm:
        harm = self._move(item)
        return Harm(harm.target, lambda: self._await_shedding(item))

    def _await_shedding(self, item: Planned) -> None:
        """Wait until the hub that has too much has left a topic to others."""
        to = self._hubs[item.target % len(self._hubs)]
        deadline = time.monotonic() + SHED_S
        while time.monotonic() < deadline:
            with contextlib.suppress(HQueueError, TimeoutError):
                if self._owners() - {to}:
                    return
            time.sleep(0.5)
        raise NotDoneError(f"{to} shed nothing")

    def _owners(self) -> set[str]:
        with self._client.topic_metadata(self._queue) as metadata:
            read = [metadata.ownership.read_owner_info(topic) for topic in TOPICS]
            found = [each.result(SHED_S) for each in read]
        return {str(each.value.address) for each in found if each is not None}

    def _move(self, item: Planned) -> Harm:
        to = self._hubs[item.target % len(self._hubs)]
        moved = 0
        with hqueue.connect_hubs(
            ",".join(self._hubs), queue=self._queue, operation_timeout_ms=TIMEOUT_MS
        ) as client:
            for topic in TOPICS:
                with contextlib.suppress(HQueueError):  # A hub or a server may be away just now.
                    client.topic(topic).move(to)
                    moved += 1
        if not moved:
            raise NotDoneError(f"no topic could be moved to {to}")
        return Harm(f"{moved} topics to {to}")

"""The hubs of a queue that are available, known without asking."""

from __future__ import annotations

from collections.abc import Mapping

from hqueue import Address
from hqueue.metadata.managers import AvailableHub, Hubs

__all__ = ["AvailableHubs"]


class AvailableHubs:
    """Which hubs there were a moment ago, and their load: what a hub is chosen by. Whether one is
    available now it does not say. Thread-safe.

    Args:
        hubs: a queue's.
    """

    def __init__(self, hubs: Hubs) -> None:
        self._hubs = hubs
        self._known: Mapping[Address, AvailableHub] | None = None
        self._watch = hubs.watch(self._learn)

    def list(self) -> Mapping[Address, AvailableHub]:
        """They by their addresses. Asks if nothing is known yet."""
        known = self._known
        return self._hubs.list() if known is None else known

    def close(self) -> None:
        """Learn nothing more. Never raises."""
        self._watch.close()

    def _learn(self, found: Mapping[Address, AvailableHub]) -> None:
        self._known = found

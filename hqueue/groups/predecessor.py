"""The consumer that a static member takes the place of."""

from __future__ import annotations

from collections.abc import Collection

from hqueue.errors import StoreUnavailableError
from hqueue.metadata import MetadataStore, PartitionKey
from hqueue.metadata.owners import Owners
from hqueue.runtime.clock import Clock

__all__ = ["Predecessor"]


class Predecessor:
    """Another consumer of the same ID: of those there is one at most, and its session ends.

    Args:
        store: the session of the one that takes its place.
        owners: the group's claims.
        consumer: the ID.
        clock: where time comes from.
    """

    def __init__(self, store: MetadataStore, owners: Owners, consumer: str, clock: Clock) -> None:
        self._store = store
        self._owners = owners
        self._consumer = consumer
        self._clock = clock
        self._seen_ms: float | None = None

    def outlives(self, refused: Collection[PartitionKey]) -> bool:
        """Whether its claims have been there for longer than its session could be.

        Args:
            refused: the partitions whose claims are somebody's.
        """
        try:
            owners = self._owners.read(refused) if refused else {}
        except StoreUnavailableError:
            return False
        if self._consumer not in owners.values():
            self._seen_ms = None
            return False
        now_ms = self._clock.monotonic_ms()
        self._seen_ms = self._seen_ms or now_ms
        return now_ms - self._seen_ms > 2 * self._store.session_timeout_ms

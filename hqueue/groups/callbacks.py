"""What a consumer's program is called with when partitions come and go."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from hqueue.metadata import PartitionKey
from hqueue.settings.kinds import check_callback

__all__ = ["Callbacks", "OnPartitions"]

OnPartitions = Callable[[list[PartitionKey]], None]
"""Called with partitions that a consumer got, or has no more."""


class Callbacks:
    """Who is called when partitions come and go; see `hqueue.Consumer.subscribe`. Nobody is called
    for none of them.

    Raises:
        InvalidInputError: one of them is not a plain function.
    """

    def __init__(
        self,
        assigned: OnPartitions | None = None,
        revoked: OnPartitions | None = None,
        lost: OnPartitions | None = None,
    ) -> None:
        check_callback(assigned, "on_assigned")
        check_callback(revoked, "on_revoked")
        check_callback(lost, "on_lost")
        self._assigned = assigned
        self._revoked = revoked
        self._lost = lost or revoked
        self._calling: threading.Thread | None = None

    @property
    def are_called_here(self) -> bool:
        """Whether the caller is called by one of them."""
        return self._calling is not None and self._calling is threading.current_thread()

    def assigned(self, keys: Iterable[PartitionKey]) -> None:
        """It got these."""
        self._call(self._assigned, keys)

    def revoked(self, keys: Iterable[PartitionKey]) -> None:
        """It gives these up, and has them still."""
        self._call(self._revoked, keys)

    def lost(self, keys: Iterable[PartitionKey]) -> None:
        """Others may have these already."""
        self._call(self._lost, keys)

    def _call(self, callback: OnPartitions | None, keys: Iterable[PartitionKey]) -> None:
        called = sorted(keys)
        if callback is None or not called:
            return
        try:
            self._calling = threading.current_thread()
            callback(called)
        finally:
            self._calling = None

"""The committers of the partitions that this hub writes to."""

from __future__ import annotations

import threading
from collections.abc import Callable

from hqueue import ClosedError
from hqueue_workers.hub.writing.committer import Committer

__all__ = ["Committers"]


class Committers:
    """Makes a partition's committer when it is first needed, and ends idle ones.
    Thread-safe.

    Args:
        make: makes the committer of a partition.
    """

    def __init__(self, make: Callable[[int], Committer]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._open: dict[int, Committer] = {}
        self._closed = False

    def of(self, partition: int) -> Committer:
        """The committer of a partition.

        Raises:
            ClosedError: the hub has shut down.
        """
        with self._lock:
            if self._closed:
                raise ClosedError("the hub has shut down")
            if partition not in self._open:
                self._open[partition] = self._make(partition)
            return self._open[partition]

    def partitions(self) -> list[int]:
        """The partitions that have a committer now."""
        with self._lock:
            return sorted(self._open)

    def look_after(self) -> None:
        """End the committers that were idle for a while."""
        with self._lock:
            ended = (number for number, each in self._open.items() if each.close_if_idle())
            for partition in tuple(ended):
                del self._open[partition]

    def close(self, wait_s: float) -> None:
        """Append what waits, and accept no more publishes."""
        with self._lock:
            self._closed = True
            ending, self._open = list(self._open.values()), {}
        for committer in ending:
            committer.close(wait_s)

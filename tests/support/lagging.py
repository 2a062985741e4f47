"""A server that stood still, and answers reads from the log as it was before."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

from hqueue.log.in_threads import LogInThreads
from hqueue.log.ports import ReadPort, Row, RowStream
from hqueue.log.table_ports import LogPort
from hqueue.queue import Queue
from hqueue.runtime.loop import in_thread

__all__ = ["Lagging"]


class Lagging:
    """Reads a log whose partitions end too early for some scans.

    Args:
        queue: is read by this from now on.
    """

    def __init__(self, queue: Queue) -> None:
        self.reader = reader = queue._log.reader
        """What reads the queue."""
        self._port: ReadPort = reader._port
        self.ends: dict[int, int] = {}
        """For each partition of the server that stood still, where it ends there."""
        self.scans_left = 1_000_000
        """After so many scans it knows that it lost its partitions; the log is whole then."""
        reader._port = self
        reader.in_loop._port = LogInThreads(cast("LogPort", self), in_thread)

    def _end(self, partition: int) -> int | None:
        return self.ends.get(partition) if self.scans_left > 0 else None

    def newest(self, partition: int, at_or_below: int) -> Row | None:
        end = self._end(partition)
        return self._port.newest(
            partition, at_or_below if end is None else min(at_or_below, end - 1)
        )

    def headers(self, partition: int, start: int, limit: int) -> list[Row]:
        end = self._end(partition)
        rows = self._port.headers(partition, start, limit)
        return [row for row in rows if end is None or row.slot < end]

    def get(self, slots: Sequence[tuple[int, int]], topics: Iterable[str] | None) -> list[Row]:
        return self._port.get(slots, topics)

    def open(
        self, partition: int, start: int, stop: int, topics: Iterable[str] | None
    ) -> RowStream:
        end = self._end(partition)
        self.scans_left -= end is not None
        stop = stop if end is None else max(start, min(stop, end))
        return self._port.open(partition, start, stop, topics)

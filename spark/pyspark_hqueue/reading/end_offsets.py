"""Where the partitions of a queue end: asked often, and cheaply."""

from __future__ import annotations

from collections.abc import Callable

from hqueue import PartitionOffsets, Queue, QueueStateError
from hqueue.runtime.clock import SYSTEM_CLOCK, Clock, Deadline, Patience
from pyspark_hqueue.reading.plan import partitions_of
from pyspark_hqueue.reading.read_options import ReadOptions

__all__ = ["EndOffsets"]

FRESH_MS = 200
REFRESH_MS = 5_000


class EndOffsets:
    """The ends of the partitions that are read, at most 200 ms old.

    Spark asks for them every few milliseconds. When nothing came, one request for up to 256
    partitions says so. Every 5 s the queue is looked at again: it may have been truncated, or made
    again with more partitions. While a queue is truncated it can't be read for some seconds; that
    is an error only when it lasts.

    Args:
        open_queue: opens the queue.
        options: which partitions are read.
        clock: where time comes from.
    """

    def __init__(
        self, open_queue: Callable[[], Queue], options: ReadOptions, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._open = open_queue
        self._options = options
        self._clock = clock
        self.fell_from: dict[int, int] = {}
        """Messages that partitions had which had fewer later: those that were truncated."""
        self._offsets: dict[int, PartitionOffsets] = {}
        self._queue: Queue | None = None
        self._asked_ms = self._refreshed_ms = float("-inf")
        self._patience = Patience(self._bound)

    @property
    def queue(self) -> Queue:
        """The queue, opened at the last look at it."""
        if self._queue is None:
            self._queue = self._open()
        return self._queue

    def offsets(self, *, refresh: bool = False) -> dict[int, PartitionOffsets]:
        """The offsets by partition; asked now if `refresh`."""
        now_ms = self._clock.monotonic_ms()
        if not refresh and now_ms - self._asked_ms < FRESH_MS:
            return self._offsets
        try:
            if refresh or now_ms - self._refreshed_ms >= REFRESH_MS:
                self._queue = self._open()
                partitions = partitions_of(self._queue, self._options)
                self._note(self._queue.offsets(partitions))
                self._refreshed_ms = now_ms
            elif moved := self.queue.appended_since(list(self._offsets.values())):
                self._note(self.queue.offsets(moved))
            self._patience.renew()
        except QueueStateError as exc:
            self._refreshed_ms = float("-inf")
            if not self._offsets:
                raise
            self._patience.bear(exc)
        self._asked_ms = self._clock.monotonic_ms()
        return self._offsets

    def _bound(self) -> Deadline:
        return self.queue.deadline()

    def _note(self, offsets: list[PartitionOffsets]) -> None:
        for each in offsets:
            before = self._offsets.get(each.partition)
            if before is not None and each.end_ordinal < before.end_ordinal:
                self.fell_from[each.partition] = before.end_ordinal
            self._offsets[each.partition] = each

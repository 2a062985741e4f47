"""Where the partitions of a queue end: asked often, and cheaply."""

from __future__ import annotations

from collections.abc import Callable

from hqueue import PartitionEnds, Queue, QueueStateError
from hqueue.clock import SYSTEM_CLOCK, Clock, Deadline
from pyspark_hqueue.options import ReadOptions
from pyspark_hqueue.plan import partitions_of

__all__ = ["Tails"]

FRESH_MS = 200
ANEW_MS = 5_000


class Tails:
    """The ends of the partitions that are read, at most 200 ms old.

    Spark asks for them every few milliseconds. When nothing came, one request for up to 256
    partitions says so. Every 5 s the queue is looked at anew: it may have been truncated, or made
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
        self._ends: dict[int, PartitionEnds] = {}
        self._queue: Queue | None = None
        self._asked_ms = self._anew_ms = float("-inf")
        self._unreadable: Deadline | None = None

    @property
    def queue(self) -> Queue:
        """The queue, opened at the last look at it."""
        if self._queue is None:
            self._queue = self._open()
        return self._queue

    def ends(self, *, anew: bool = False) -> dict[int, PartitionEnds]:
        """The ends by partition; asked now if `anew`."""
        now_ms = self._clock.monotonic_ms()
        if not anew and now_ms - self._asked_ms < FRESH_MS:
            return self._ends
        try:
            if anew or now_ms - self._anew_ms >= ANEW_MS:
                self._queue = self._open()
                partitions = partitions_of(self._queue, self._options)
                self._note(self._queue.ends(partitions))
                self._anew_ms = now_ms
            elif moved := self.queue.appended_since(list(self._ends.values())):
                self._note(self.queue.ends(moved))
            self._unreadable = None
        except QueueStateError:
            self._anew_ms = float("-inf")
            self._unreadable = self._unreadable or self.queue.deadline()
            if not self._ends or self._unreadable.expired:
                raise
        self._asked_ms = self._clock.monotonic_ms()
        return self._ends

    def _note(self, ends: list[PartitionEnds]) -> None:
        for end in ends:
            before = self._ends.get(end.partition)
            if before is not None and end.next_ordinal < before.next_ordinal:
                self.fell_from[end.partition] = before.next_ordinal
            self._ends[end.partition] = end

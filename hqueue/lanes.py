"""This process's writers: one a partition, each used by one thread at a time."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable

from hqueue.clock import Deadline
from hqueue.errors import StoreUnavailableError
from hqueue.log import PartitionWriter

__all__ = ["Lane", "Lanes"]

STAY_APPENDS = 64


class Lane:
    """A partition's writer, and the lock that its user holds."""

    __slots__ = ("lock", "writer")

    def __init__(self, writer: PartitionWriter) -> None:
        self.lock = threading.Lock()
        self.writer = writer


class Lanes:
    """The lanes of a queue. Thread-safe; made anew in a forked child.

    Threads take turns in a lane, instead of racing each other for a slot in HBase.

    Args:
        partitions: how many the queue has.
        open_writer: makes the writer of a partition.
    """

    def __init__(self, partitions: int, open_writer: Callable[[int], PartitionWriter]) -> None:
        self._partitions = partitions
        self._open_writer = open_writer
        self._lanes: dict[int, Lane] = {}
        self._lock = threading.Lock()
        self._any = random.randrange(partitions)
        self._any_left = STAY_APPENDS

    def acquire(self, partition: int | None, deadline: Deadline) -> Lane:
        """A partition's lane, locked for the caller until it releases ``lane.lock``.

        Without a partition it is one that is free: the same for 64 appends, for a reader does
        better with many batches in one partition than with a few in each.

        Raises:
            StoreUnavailableError: others held it until the deadline.
        """
        for candidate in self._candidates(partition):
            lane = self._lane(candidate)
            if lane.lock.acquire(blocking=False):
                return lane
        if partition is None:
            lane = self._lane(random.randrange(self._partitions))
        if not lane.lock.acquire(timeout=deadline.remaining_ms / 1e3):
            raise StoreUnavailableError(
                "this process's other appends to the partition took too long",
                partition=lane.writer.partition,
            )
        return lane

    def move_on(self) -> None:
        """Prefer another partition from now on: some other writer was met in this one."""
        self._any_left = 0

    def _candidates(self, partition: int | None) -> Iterable[int]:
        if partition is not None:
            return (partition,)
        self._any_left -= 1
        if self._any_left <= 0:
            self._any = (self._any + 1) % self._partitions
            self._any_left = STAY_APPENDS
        return ((self._any + step) % self._partitions for step in range(self._partitions))

    def _lane(self, partition: int) -> Lane:
        lane = self._lanes.get(partition)
        if lane is None:
            with self._lock:
                lane = self._lanes.get(partition)
                if lane is None:
                    lane = self._lanes[partition] = Lane(self._open_writer(partition))
        return lane

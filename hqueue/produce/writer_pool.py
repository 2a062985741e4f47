"""This process's writers: one a partition, each used by one thread at a time."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable

from hqueue.errors import StoreUnavailableError
from hqueue.log import PartitionWriter
from hqueue.runtime.clock import Deadline

__all__ = ["PooledWriter", "WriterPool"]

STAY_APPENDS = 64


class PooledWriter:
    """A partition's writer, and the lock that its user holds."""

    __slots__ = ("lock", "writer")

    def __init__(self, writer: PartitionWriter) -> None:
        self.lock = threading.Lock()
        self.writer = writer


class WriterPool:
    """The writers of a queue. Thread-safe; made again in a forked child.

    Threads take turns with a writer, instead of racing each other for a slot in HBase.

    Args:
        partitions: how many the queue has.
        open_writer: makes the writer of a partition.
    """

    def __init__(self, partitions: int, open_writer: Callable[[int], PartitionWriter]) -> None:
        self._partitions = partitions
        self._open_writer = open_writer
        self._writers: dict[int, PooledWriter] = {}
        self._lock = threading.Lock()
        self._any = random.randrange(partitions)
        self._any_left = STAY_APPENDS

    def acquire(self, partition: int | None, deadline: Deadline) -> PooledWriter:
        """A partition's writer, locked for the caller until it releases ``pooled.lock``.

        Without a partition it is one that is free: the same for 64 appends, for a reader does
        better with many batches in one partition than with a few in each.

        Raises:
            StoreUnavailableError: others held it until the deadline.
        """
        for candidate in self._candidates(partition):
            pooled = self._pooled(candidate)
            if pooled.lock.acquire(blocking=False):
                return pooled
        if partition is None:
            pooled = self._pooled(random.randrange(self._partitions))
        if not pooled.lock.acquire(timeout=deadline.remaining_ms / 1e3):
            raise StoreUnavailableError(
                "this process's other appends to the partition took too long",
                partition=pooled.writer.partition,
            )
        return pooled

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

    def _pooled(self, partition: int) -> PooledWriter:
        pooled = self._writers.get(partition)
        if pooled is None:
            with self._lock:
                pooled = self._writers.get(partition)
                if pooled is None:
                    pooled = self._writers[partition] = PooledWriter(self._open_writer(partition))
        return pooled

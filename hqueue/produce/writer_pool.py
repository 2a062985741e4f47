"""This process's writers: one a partition, each used by one thread at a time."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable, Iterable
from functools import partial
from typing import TypeVar

from hqueue.errors import StoreUnavailableError
from hqueue.log import PartitionWriter
from hqueue.runtime.clock import Deadline
from hqueue.runtime.held import Held, if_free

__all__ = ["PooledWriter", "WriterPool"]

Result = TypeVar("Result")

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

    def use(
        self,
        partition: int | None,
        deadline: Deadline,
        work: Callable[[PartitionWriter], Result],
    ) -> Result:
        """Do something with a partition's writer, which nobody else uses meanwhile.

        Without a partition it is one that is free: the same for 64 appends, for a reader does
        better with many batches in one partition than with a few in each.

        Raises:
            StoreUnavailableError: others held it until the deadline.
        """
        results: list[Result] = []
        for candidate in self._candidates(partition):
            pooled = self._pooled(candidate)
            if if_free(pooled.lock, partial(results.extend, map(work, (pooled.writer,)))):
                return results[0]
        if partition is None:
            pooled = self._pooled(random.randrange(self._partitions))
        number = pooled.writer.partition
        late = StoreUnavailableError(
            "this process's other appends to the partition took too long", partition=number
        )
        with Held(pooled.lock, deadline.remaining_ms / 1e3, lambda: late):
            return work(pooled.writer)

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
        first = self._any
        return itertools.chain(range(first, self._partitions), range(first))

    def _pooled(self, partition: int) -> PooledWriter:
        pooled = self._writers.get(partition)
        if pooled is None:
            with self._lock:
                pooled = self._writers.get(partition)
                if pooled is None:
                    pooled = self._writers[partition] = PooledWriter(self._open_writer(partition))
        return pooled

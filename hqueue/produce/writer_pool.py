"""This process's writers: one a partition, each used by one at a time."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable
from functools import partial
from typing import TypeVar

from hqueue.errors import Outcome, StoreUnavailableError
from hqueue.log import PartitionWriter
from hqueue.log.steps import Work
from hqueue.runtime.clock import Deadline
from hqueue.runtime.held import NotHeldError
from hqueue.runtime.turn import Turn

__all__ = ["PooledWriter", "WriterPool"]

Result = TypeVar("Result")

STAY_APPENDS = 64


class PooledWriter:
    """A partition's writer, and the turn to use it."""

    __slots__ = ("late", "turn", "writer")

    def __init__(self, writer: PartitionWriter) -> None:
        self.turn = Turn()
        self.writer = writer
        self.late = partial(
            StoreUnavailableError,
            "this process's other appends to the partition took too long: HBase answers slowly or "
            "not at all, or the process puts more than HBase takes; the log names servers that do "
            "not answer",
            outcome=Outcome.NOT_APPLIED,
            partition=writer.partition,
        )
        """Makes the error of those whose turn does not come."""


class WriterPool:
    """The writers of a queue. Thread-safe; made again in a forked child.

    Threads and coroutines take turns with a writer, instead of racing each other for a slot in
    HBase.

    Args:
        partitions: how many the queue has.
        open_writer: makes the writer of a partition.
    """

    def __init__(self, partitions: int, open_writer: Callable[[int], PartitionWriter]) -> None:
        self._partitions = partitions
        self._open_writer = open_writer
        self._writers: dict[int, PooledWriter] = {}
        self._any = random.randrange(partitions)
        self._any_left = STAY_APPENDS

    def use(
        self,
        partition: int | None,
        deadline: Deadline,
        work: Callable[[PartitionWriter], Work[Result]],
    ) -> Work[Result]:
        """Do something with a partition's writer, which nobody else uses meanwhile.

        Without a partition it is one that is free: the same for 64 appends, for a reader does
        better with many batches in one partition than with a few in each.

        Raises:
            StoreUnavailableError: others held it until the deadline.
            InvalidInputError: the caller interrupts the one who holds it, as `Turn.take` says.
        """
        if partition is None:
            for candidate in self._candidates():
                pooled = self._pooled(candidate)
                if pooled.turn.is_free:
                    try:
                        return (yield from pooled.turn.take(work(pooled.writer), 0.0))
                    except NotHeldError:  # Another was faster.
                        continue
            partition = random.randrange(self._partitions)
        pooled = self._pooled(partition)
        wait_s = deadline.remaining_ms / 1e3
        return (yield from pooled.turn.take(work(pooled.writer), wait_s, pooled.late))

    def move_on(self) -> None:
        """Prefer another partition from now on: some other writer was met in this one."""
        self._any_left = 0

    def _candidates(self) -> Iterable[int]:
        self._any_left -= 1
        if self._any_left <= 0:
            self._any = (self._any + 1) % self._partitions
            self._any_left = STAY_APPENDS
        first = self._any
        return itertools.chain(range(first, self._partitions), range(first))

    def _pooled(self, partition: int) -> PooledWriter:
        pooled = self._writers.get(partition)
        if pooled is None:
            made = PooledWriter(self._open_writer(partition))
            pooled = self._writers.setdefault(partition, made)
        return pooled

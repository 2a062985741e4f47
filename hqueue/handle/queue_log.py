"""A queue's log: its partitions, to be written and read."""

from __future__ import annotations

from collections.abc import Callable

from hqueue.consume.queue_reader import QueueReader
from hqueue.consume.skipped_batches import SkipCounts
from hqueue.format.header import Bodies
from hqueue.log import Appended
from hqueue.log.context import QueueContext
from hqueue.log.in_threads import LogInThreads
from hqueue.log.table_ports import AsyncLogPort, LogPort
from hqueue.produce.appender import Appender, BatchAppender, LoopAppender
from hqueue.produce.appending import QueueAppending
from hqueue.runtime.clock import SYSTEM_CLOCK, Clock, Deadline
from hqueue.runtime.steps import Wait
from hqueue.runtime.stepwise import BoundWork
from hqueue.settings.attributes import QueueDescription
from hqueue.settings.connection import Settings

__all__ = ["QueueLog"]


class QueueLog:
    """An open queue's log. Thread-safe, and usable in a forked child.

    Args:
        description: the queue.
        describe: asks for what it is now.
        port: its rows.
        loop_port: the same, for event loops.
        on_append: called after each append; see `QueueAppending`.
        settings: the connection's.
        clock: where time comes from.
        skip_counts: learns what readers skip.
    """

    def __init__(
        self,
        description: QueueDescription,
        describe: Callable[[], Wait],
        *,
        port: LogPort,
        loop_port: AsyncLogPort,
        on_append: Callable[[int, Appended, Bodies], None],
        settings: Settings,
        clock: Clock = SYSTEM_CLOCK,
        skip_counts: SkipCounts | None = None,
    ) -> None:
        self.name = description.name
        self.partitions = description.partitions
        self.settings = settings
        self._context = QueueContext(description, describe, settings, clock)
        appending = QueueAppending(self._context, loop_port, on_append)
        by_threads = isinstance(loop_port, LogInThreads)
        self.loop_appender = LoopAppender(self._context, appending, loop_port)
        """The part that writes, for event loops."""
        self.batch_appender = BatchAppender(self._context, appending, loop_port)
        """The part that writes the batches of producers in event loops."""
        append_in_loop = None if by_threads else self.batch_appender.append
        self.appender = Appender(self._context, appending, port, append_in_loop)
        """The part that writes."""
        self.reader = QueueReader(self._context, port, loop_port, skip_counts or SkipCounts())
        """The part that reads."""
        self.loop_reader = self.reader.in_loop
        """The part that reads, for event loops."""

    def close(self) -> None:
        """Refuse further appends and readers. The connection stays."""
        self._context.close()

    @property
    def describe(self) -> BoundWork[[], QueueDescription]:
        """What the store says of the queue now."""
        return self._context.describe

    def deadline(self) -> Deadline:
        """The bound on one operation, from now."""
        return self._context.deadline()

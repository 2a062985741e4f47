"""An open log, as roles use it in an event loop."""

from __future__ import annotations

from collections.abc import Callable

from hqueue.handle import QueueLog
from hqueue.produce.owned import LoopOwnedLog

__all__ = ["LoopLog"]


class LoopLog:
    """A queue's log, for coroutines of any event loop. Made by `OpenLog.in_loop`.

    What it does is decided by the same code as what `OpenLog` does, with the same guarantees; none
    of it blocks the loop.
    """

    def __init__(self, log: QueueLog) -> None:
        self.name = log.name
        self.partitions = log.partitions
        self.reader = log.loop_reader
        """Reads and follows what is appended."""
        self.appender = log.loop_appender
        """Appends."""

    def own(
        self,
        partition: int,
        on_fence: Callable[[str, int], None],
        on_settled: Callable[[int | None], None] = lambda first: None,
    ) -> LoopOwnedLog:
        """As `OpenLog.own`; the callbacks are called in the loop."""
        return self.appender.open_owned(partition, on_fence, on_settled)

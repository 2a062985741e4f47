"""An open log, as roles use it in an event loop."""

from __future__ import annotations

from hqueue.handle import QueueLog

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

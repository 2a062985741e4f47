"""An open log, as roles use it in an event loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hqueue.consume.topic_cursor import TopicCursor
from hqueue.handle import QueueLog
from hqueue.metadata.managers import LogRange
from hqueue.produce.owned import LoopOwnedLog

__all__ = ["LoopLog"]


class LoopLog:
    """A queue's log, for coroutines of any event loop. Made by `OpenLog.in_loop`.

    What it does is decided by the same code as what `OpenLog` does, with the same guarantees; none
    of it blocks the loop.
    """

    def __init__(self, log: QueueLog, ranges_of: Callable[[str], Sequence[LogRange]]) -> None:
        self.name = log.name
        self.partitions = log.partitions
        self.reader = log.loop_reader
        """Reads and follows what is appended."""
        self.appender = log.loop_appender
        """Appends."""
        self._ranges_of = ranges_of

    def own(
        self,
        partition: int,
        on_fence: Callable[[str, int], None],
        on_settled: Callable[[int | None], None] = lambda first: None,
    ) -> LoopOwnedLog:
        """As `OpenLog.own`; the callbacks are called in the loop."""
        return self.appender.open_owned(partition, on_fence, on_settled)

    def topic_cursor(
        self, topic: str, *, start: int, stop: Callable[[], int], bytes_max: int
    ) -> TopicCursor:
        """As `OpenLog.topic_reader`: a cursor that `reader` reads and releases."""
        return self.reader.topic_cursor(
            topic, self._ranges_of, start=start, stop=stop, bytes_max=bytes_max
        )

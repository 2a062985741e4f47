"""An open log, as roles use it: in threads, and in an event loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hqueue.consume.topic_cursor import TopicCursor
from hqueue.consume.topic_past import TopicPast
from hqueue.consume.topic_reader import TopicReader
from hqueue.handle import Cluster, QueueLog
from hqueue.metadata.managers import LogRange
from hqueue.produce.owned_log import LoopOwnedLog, OwnedLog
from hqueue.queue import Queue

__all__ = ["LoopLog", "OpenLog"]


class OpenLog(Queue):
    """A queue's log, to append to, read, follow and own. Made by `Engine.open`. Thread-safe, and
    usable in a forked child.

    It is a `Queue`, with its guarantees: a message that was put is durable, and no message ever
    appears behind one that was read. `Queue.put` appends; `Queue.reader` and `Queue.scan` read;
    `Queue.poll` and `Fetcher` follow what is appended. Beside that, topics of it can be owned.
    """

    def __init__(
        self, cluster: Cluster, log: QueueLog, ranges_of: Callable[[str], Sequence[LogRange]]
    ) -> None:
        super().__init__(log, cluster.coordinate, ranges_of)
        self._cluster = cluster

    def in_loop(self) -> LoopLog:
        """The same log, for coroutines of any event loop. Asks nothing."""
        return LoopLog(self._log, self._ranges_of)

    def own(
        self,
        partition: int,
        on_fence: Callable[[str, int], None],
        on_settled: Callable[[int | None], None] = lambda first: None,
    ) -> OwnedLog:
        """A partition, to be written by the owner of topics. Asks nothing.

        An owner is fenced by the log alone: once another has taken a topic over, with a higher
        epoch, no message of this owner's is appended to it, however long this process stood still.

        Args:
            partition: the partition.
            on_fence: called with a topic that is not owned here any more, and its new owner's
                epoch; by the thread that appends. It must not raise.
            on_settled: called when it is known what became of an append that ended with an unknown
                outcome, before another batch is made: with the ID of its first message, or None if
                it is not in the log and never will be. It must not raise.

        Raises:
            InvalidInputError: the queue has no such partition.
        """
        return self._log.appender.open_owned(partition, on_fence, on_settled)

    def topic_past(self) -> TopicPast:
        """Tells whether topics that have owners have messages in some part of the log: for many
        topics at once, at the cost of reading the headers of a partition once.
        """
        return TopicPast(self._log.reader, self._cluster.clock)

    def topic_reader(
        self, topic: str, *, start: int, stop: Callable[[], int], bytes_max: int
    ) -> TopicReader:
        """A cursor in a topic that hubs own, over all its ranges; the arguments are
        `TopicReader`'s.
        """
        return TopicReader(
            self._log.reader, topic, self._ranges_of, start=start, stop=stop, bytes_max=bytes_max
        )

    def expired_ms(self) -> int | None:
        """Up to when messages were written that have expired, by a clock that was found good; None
        if they are kept for ever.

        Raises:
            ClockSkewError, StoreUnavailableError, QueueStateError: that is not known now.
        """
        return self._log.appender.expired_ms()

    def hosts(self) -> dict[int, str]:
        """Which host serves each partition now, as HBase names it; with one try.

        Raises:
            StoreUnavailableError: the store does not say it.
            QueueStateError: the queue is gone, or disabled.
        """
        located = self._cluster.locate(self.name, self.partitions)
        return {each.partition: each.host for each in located}


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

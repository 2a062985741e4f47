"""An open log, as roles use it: in threads, and in an event loop."""

from __future__ import annotations

from collections.abc import Callable

from hqueue.consume.topic_cursor import TopicCursor
from hqueue.consume.topic_past import TopicPast
from hqueue.consume.topic_reader import TopicReader
from hqueue.handle import Cluster, QueueLog
from hqueue.metadata.managers import RangesOf
from hqueue.produce.owned_log import LoopOwnedLog, OwnedLog
from hqueue.queue import Queue

__all__ = ["LoopLog", "OpenLog"]


class OpenLog(Queue):
    """A queue's log, to append to, read, follow and own. Thread-safe, and usable in a forked child.
    Made by `Engine.open`.

    It is a `Queue`, with its guarantees: a message that was put is durable, and no message ever
    appears before a position up to which a reader has read. `Queue.put` appends; `Queue.reader` and
    `Queue.scan` read; `Queue.poll` and `Fetcher` follow new messages. In addition, a writer can own
    topics of the queue.
    """

    def __init__(self, cluster: Cluster, log: QueueLog, ranges_of: RangesOf) -> None:
        super().__init__(log, cluster.coordinate, ranges_of)
        self._cluster = cluster

    def in_loop(self) -> LoopLog:
        """The same log for coroutines of any event loop. Sends no request."""
        return LoopLog(self._log, self._ranges_of)

    def own(
        self,
        partition: int,
        on_fence: Callable[[str, int], None],
        on_settled: Callable[[int | None], None] = lambda first: None,
    ) -> OwnedLog:
        """Open a partition for the owner of topics to write to. Sends no request.

        The log alone fences an owner: once another owner has taken a topic over with a higher
        epoch, no message of this owner is appended to the topic, however long this process was
        paused.

        Args:
            partition: the partition.
            on_fence: called with a topic that this writer does not own any more, and its new
                owner's epoch, in the thread that appends. It must not raise.
            on_settled: called when an append with an unknown outcome is settled, before another
                batch is made: with the ID of its first message, or None if it is not in the log and
                never will be. It must not raise.

        Raises:
            InvalidInputError: the queue has no such partition.
        """
        return self._log.appender.open_owned(partition, on_fence, on_settled)

    def topic_past(self) -> TopicPast:
        """Create an object that says whether topics with owners have messages in a part of the log.
        It reads the headers of each partition once for all topics.
        """
        return TopicPast(self._log.reader, self._cluster.clock)

    def topic_reader(
        self, topic: str, *, start: int, stop: Callable[[], int], bytes_max: int
    ) -> TopicReader:
        """Open a reader over all ranges of a topic that hubs own. The arguments are those of
        `TopicReader`.
        """
        return TopicReader(
            self._log.reader, topic, self._ranges_of, start=start, stop=stop, bytes_max=bytes_max
        )

    def expired_ms(self) -> int | None:
        """The time before which all messages have expired, by a clock that was checked; None if
        messages are kept for ever.

        Raises:
            ClockSkewError, StoreUnavailableError, QueueStateError: the time can't be determined
                now.
        """
        return self._log.appender.expired_ms()

    def hosts(self) -> dict[int, str]:
        """The host that serves each partition now, as HBase names it. Tries once.

        Raises:
            StoreUnavailableError: the store gave no answer.
            QueueStateError: the queue was deleted, or is disabled.
        """
        located = self._cluster.locate(self.name, self.partitions)
        return {each.partition: each.host for each in located}


class LoopLog:
    """A queue's log, for coroutines of any event loop. Made by `OpenLog.in_loop`.

    It makes the same decisions as `OpenLog`, and has the same guarantees. No call blocks the loop.
    """

    def __init__(self, log: QueueLog, ranges_of: RangesOf) -> None:
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
        """Open a partition for the owner of topics, as `OpenLog.own`. The callbacks are called in
        the loop.
        """
        return self.appender.open_owned(partition, on_fence, on_settled)

    def topic_cursor(
        self, topic: str, *, start: int, stop: Callable[[], int], bytes_max: int
    ) -> TopicCursor:
        """Open a cursor over a topic, as `OpenLog.topic_reader`. `reader` reads and releases it."""
        return self.reader.topic_cursor(
            topic, self._ranges_of, start=start, stop=stop, bytes_max=bytes_max
        )

"""A cursor in a topic that has an owner, over all its ranges."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hqueue.consume.queue_reader import QueueReader
from hqueue.consume.topic_ranges import TopicRanges, scans_of
from hqueue.log import Batch, PartitionReader
from hqueue.message_id import MessageID
from hqueue.metadata.managers import LogRange
from hqueue.runtime.clock import Deadline

__all__ = ["TopicReader"]


class TopicReader:
    """Gives the batches of a topic that has an owner, once and in the order of IDs, up to a stop
    that moves on. Not thread-safe. Made by `QueueLog.topic_reader`.

    All that the topic has below the stop was published before. So a log that seems to end earlier
    is read again, as `TopicRanges` says. When a request fails it goes on from where it stood.

    Args:
        reader: reads the queue.
        topic: the topic.
        ranges_of: where the topic lies: asked when the stop has moved on.
        start: the first ID that is wanted.
        stop: the first ID that isn't yet.
        bytes_max: the bodies asked of the store in one request, about; at least one batch.
    """

    ordinal = None
    """A topic's messages are not counted."""

    def __init__(
        self,
        reader: QueueReader,
        topic: str,
        ranges_of: Callable[[str], Sequence[LogRange]],
        *,
        start: int,
        stop: Callable[[], int],
        bytes_max: int,
    ) -> None:
        self._reader = reader
        self._topic = topic
        self._ranges_of = ranges_of
        self._stop = stop
        self._bytes_max = bytes_max
        self._cursor = self._until = start
        self._ranges = TopicRanges(reader, (), whole=True)
        self._current: PartitionReader | None = None

    @property
    def cursor(self) -> int:
        """The ID from which another reader would go on after what this one has given."""
        return self._cursor

    @property
    def at_tail(self) -> bool:
        """Whether the stop was reached, where it is now."""
        return self._cursor >= self._stop()

    @property
    def holds(self) -> bool:
        """Whether something is held in the store."""
        return self._current is not None and self._current.holds

    def release(self) -> None:
        """Free what is held in the store. Reading can go on afterwards."""
        if self._current is not None:
            self._current.release()

    def read(self, deadline: Deadline) -> list[Batch]:
        """The next batches; none at the stop.

        Raises:
            StoreUnavailableError: the store or the metadata stayed away.
            CorruptLogError: the log is broken here. Reading goes no further.
        """
        while not self.at_tail:
            if self._ranges.next is None:
                if self._cursor < self._until:
                    self._cursor = self._until
                    continue
                self._look_for_ranges()
                continue
            partition, scan = self._ranges.next
            if self._current is None:
                self._current = self._reader.open(partition, scan, self._bytes_max)
            current = self._current
            batches = current.read(deadline)
            self._cursor = max(self._cursor, min(current.cursor, scan.stop))
            if current.finished or (current.at_tail and not batches):
                current.release()
                self._current = None
                self._ranges.advance(current.cursor)
            if batches:
                return batches
        return []

    def _look_for_ranges(self) -> None:
        until = self._stop()
        scans = scans_of(
            self._topic,
            self._ranges_of(self._topic),
            MessageID.from_int(self._cursor),
            MessageID.from_int(until),
        )
        self._ranges, self._until = TopicRanges(self._reader, scans, whole=True), until

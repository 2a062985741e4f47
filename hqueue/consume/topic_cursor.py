"""A cursor in a topic that has an owner, over all its ranges, in steps."""

from __future__ import annotations

from collections.abc import Callable

from hqueue.consume.reading import QueueReading
from hqueue.consume.topic_ranges import TopicRanges
from hqueue.consume.topic_scans import scans_of
from hqueue.log import Batch, PartitionCursor
from hqueue.log.steps import Work
from hqueue.message_id import MessageID
from hqueue.metadata.managers import RangesOf
from hqueue.runtime.clock import Deadline

__all__ = ["TopicCursor", "TopicWalk"]


class TopicWalk:
    """What `TopicCursor` and `TopicReader` do.

    All that the topic has below the stop was published before. So a log that seems to end earlier
    is read again, as `TopicRanges` says. When a request fails it goes on from where it stood.

    Args:
        reading: reads the queue.
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
        reading: QueueReading,
        topic: str,
        ranges_of: RangesOf,
        *,
        start: int,
        stop: Callable[[], int],
        bytes_max: int,
    ) -> None:
        self._reading = reading
        self.topic = topic
        self._ranges_of = ranges_of
        self._stop = stop
        self._bytes_max = bytes_max
        self._cursor = self._until = start
        self._ranges = TopicRanges(reading, (), whole=True)
        self._current: PartitionCursor | None = None

    @property
    def cursor(self) -> int:
        """The ID at which another reader would continue after the batches that this one has
        returned.
        """
        return self._cursor

    @property
    def at_tail(self) -> bool:
        """Whether the present stop was reached."""
        return self._cursor >= self._stop()

    @property
    def holds(self) -> bool:
        """Whether it holds resources in the store."""
        return self._current is not None and self._current.holds

    def _release(self) -> Work[None]:
        if self._current is not None:
            yield from self._current.release()

    def _read(self, deadline: Deadline) -> Work[list[Batch]]:
        while not self.at_tail:
            if self._ranges.next is None:
                if self._cursor < self._until:
                    self._cursor = self._until
                    continue
                yield from self._look_for_ranges()
                continue
            partition, scan = self._ranges.next
            if self._current is None:
                self._current = self._reading.cursor(partition, scan, self._bytes_max)
            current, before = self._current, self._cursor
            position = current.position
            batches = yield from current.read(deadline)
            self._cursor = max(before, min(current.cursor, scan.stop))
            if current.finished or (current.at_tail and not batches):
                try:
                    yield from self._end(current)
                except BaseException:
                    if batches:  # Nobody gets them.
                        current.return_to(position)
                        self._cursor = before
                    raise
            if batches:
                return batches
        return []

    def _end(self, current: PartitionCursor) -> Work[None]:
        """The range or its log has ended."""
        yield from current.release()
        yield from self._ranges.advance(current.cursor)
        self._current = None

    def _look_for_ranges(self) -> Work[None]:
        until = self._stop()
        scans = scans_of(
            self.topic,
            (yield self._ranges_of(self.topic)),
            MessageID.from_int(self._cursor),
            MessageID.from_int(until),
        )
        self._ranges, self._until = TopicRanges(self._reading, scans, whole=True), until


class TopicCursor(TopicWalk):
    """Reads a topic as `TopicReader` does, in steps. Made by `LoopReader.topic_cursor`."""

    def read(self, deadline: Deadline) -> Work[list[Batch]]:
        """Read the next batches; none at the stop. A read that is cancelled does not move the
        cursor.

        Raises:
            StoreUnavailableError: the store or the metadata was unavailable.
            CorruptLogError: the log is corrupt at this position. The cursor stays there.
        """
        return self._read(deadline)

    def release(self) -> Work[None]:
        """Free what the cursor holds in the store. Reading can continue afterwards."""
        return self._release()

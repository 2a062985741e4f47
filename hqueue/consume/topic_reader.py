"""A cursor in a topic that has an owner, over all its ranges, in the caller's thread."""

from __future__ import annotations

from collections.abc import Callable

from hqueue.consume.queue_reader import QueueReader
from hqueue.consume.topic_cursor import TopicWalk
from hqueue.log import Batch
from hqueue.metadata.managers import RangesOf
from hqueue.runtime.clock import Deadline

__all__ = ["TopicReader"]


class TopicReader(TopicWalk):
    """Reads the batches of a topic that has an owner, each once and in the order of IDs, up to a
    stop that moves forward. Not thread-safe. Made by `OpenLog.topic_reader`.

    Args:
        reader: the reader of the queue.
        topic, ranges_of, start, stop, bytes_max: as `TopicWalk` takes them.
    """

    def __init__(
        self,
        reader: QueueReader,
        topic: str,
        ranges_of: RangesOf,
        *,
        start: int,
        stop: Callable[[], int],
        bytes_max: int,
    ) -> None:
        super().__init__(
            reader.reading, topic, ranges_of, start=start, stop=stop, bytes_max=bytes_max
        )
        self._reader = reader

    def release(self) -> None:
        """Free what the reader holds in the store. Reading can continue afterwards."""
        self._reader.do(lambda _: self._release())

    def read(self, deadline: Deadline) -> list[Batch]:
        """Read the next batches; none at the stop.

        Raises:
            StoreUnavailableError: the store or the metadata was unavailable.
            CorruptLogError: the log is corrupt at this position. The reader stays there.
        """
        return self._reader.do(self._read, deadline)

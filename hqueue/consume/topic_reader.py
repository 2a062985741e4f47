"""A cursor in a topic that has an owner, over all its ranges."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hqueue.consume.queue_reader import QueueReader
from hqueue.consume.topic_cursor import TopicCursor
from hqueue.log import Batch
from hqueue.log.steps import Work
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
        def asked(topic: str) -> Work[Sequence[LogRange]]:
            return ranges_of(topic)
            yield

        self._reader = reader
        self._steps = TopicCursor(
            reader.reading, topic, asked, start=start, stop=stop, bytes_max=bytes_max
        )

    @property
    def cursor(self) -> int:
        """The ID from which another reader would go on after what this one has given."""
        return self._steps.cursor

    @property
    def at_tail(self) -> bool:
        """Whether the stop was reached, where it is now."""
        return self._steps.at_tail

    @property
    def holds(self) -> bool:
        """Whether something is held in the store."""
        return self._steps.holds

    def release(self) -> None:
        """Free what is held in the store. Reading can go on afterwards."""
        self._reader.do(lambda _: self._steps.release())

    def read(self, deadline: Deadline) -> list[Batch]:
        """The next batches; none at the stop.

        Raises:
            StoreUnavailableError: the store or the metadata stayed away.
            CorruptLogError: the log is broken here. Reading goes no further.
        """
        return self._reader.do(self._steps.read, deadline)

"""The ranges of a topic that has an owner, read one after the other."""

from __future__ import annotations

from collections.abc import Sequence

from hqueue.consume.reading import QueueReading
from hqueue.consume.scan import Scan
from hqueue.log.steps import Work
from hqueue.runtime.clock import Deadline
from hqueue.runtime.logs import Log
from hqueue.runtime.steps import Pause

__all__ = ["TopicRanges"]

logger = Log(__name__)

PAUSE_MS = 200


class TopicRanges:
    """What is still to be read of a topic.

    A region server that lost a partition and does not know yet may answer from a log that ends
    earlier. So a range that must be there whole, as each one that others follow, is read again
    where the log seems to end before it does, for ``operation_timeout_ms``: one that stays so short
    was truncated.

    Args:
        reading: reads the queue.
        scans: partition and `Scan` of each range, in the order of IDs.
        whole: whether the last range must reach up to the stop of its scan, as closed ranges must.
    """

    def __init__(
        self, reading: QueueReading, scans: Sequence[tuple[int, Scan]], *, whole: bool
    ) -> None:
        self._reading = reading
        self._scans = list(scans)
        self._whole = whole
        self._deadline: Deadline | None = None
        """Until when the range is read again that seems to end too early."""

    @property
    def next(self) -> tuple[int, Scan] | None:
        """The partition and what is read of it next; None after the last range."""
        return self._scans[0] if self._scans else None

    def reach(self, position: int) -> None:
        """All of the range below this ID was read."""
        _, scan = self._scans[0]
        if position > scan.start:
            scan.start, self._deadline = position, None

    def advance(self, position: int) -> Work[None]:
        """All below this ID was read, and the range or its log has ended there: go on with the next
        range; or, after a pause, with what the log has to have from there on.
        """
        self.reach(position)
        partition, scan = self._scans[0]
        if (yield from self._is_short(partition, scan)):
            yield Pause(PAUSE_MS)
        else:
            del self._scans[0]
            self._deadline = None

    def _is_short(self, partition: int, scan: Scan) -> Work[bool]:
        """Whether a range's messages from a scan's start on must be there, and may still come."""
        if scan.start >= scan.stop or not (self._whole or len(self._scans) > 1):
            return False
        (offsets,) = yield from self._reading.offsets([partition])
        beginning = offsets.beginning
        if beginning is not None and beginning >= scan.stop:
            return False  # It was collected.
        self._deadline = self._deadline or self._reading.deadline()
        if self._deadline.expired:
            logger.warning("partition %d ends at %d: it was truncated", partition, scan.start)
            return False
        return True

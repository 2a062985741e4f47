"""Reading a partition in order, from any ID, in the caller's thread."""

from __future__ import annotations

from hqueue.log.cursor import PartitionCursor
from hqueue.log.ports import ReadPort, Row
from hqueue.log.skipping import NO_DECISIONS, SkipDecisions
from hqueue.log.standing import Batch
from hqueue.runtime.clock import SYSTEM_CLOCK, Clock, Deadline, drive
from hqueue.settings.limits import MESSAGE_ID_MAX

__all__ = ["PartitionReader", "reader_of"]


class PartitionReader:
    """Reads one partition, batch by batch. Not thread-safe. Made by `Queue.reader`.

    It returns every batch once and in order, and checks by slot and ordinal that each follows the
    one before. `expired` counts the messages that expired or were deleted before they could be
    read. When a request fails, the reader keeps its position.

    Args:
        partition: the partition.
        port: the store.
        start: the first ID to read.
        stop: the ID before which reading ends.
        topics: the topics to read; None for all.
        clock: the source of time.
        bytes_max: about how many bytes of bodies one request fetches; at least one batch.
        ordinal: how many messages the partition had before the start, if known. `expired` then also
            counts messages that were deleted after the start.
        owner_epoch: read only messages that the owner of their topic with this epoch appended;
            those of any writer if None.
        decisions: the operator's decisions about batches that can't be read.
    """

    def __init__(
        self,
        partition: int,
        port: ReadPort,
        *,
        start: int = 0,
        stop: int = MESSAGE_ID_MAX + 1,
        topics: frozenset[str] | None = None,
        clock: Clock = SYSTEM_CLOCK,
        bytes_max: int = 4 * 1024 * 1024,
        ordinal: int | None = None,
        owner_epoch: int | None = None,
        decisions: SkipDecisions = NO_DECISIONS,
    ) -> None:
        self.steps = PartitionCursor(
            partition,
            start=start,
            stop=stop,
            topics=topics,
            clock=clock,
            bytes_max=bytes_max,
            ordinal=ordinal,
            owner_epoch=owner_epoch,
            decisions=decisions,
        )
        """Decides what to ask for; not to be used beside this."""
        self._port = port
        self._clock = clock

    @property
    def partition(self) -> int:
        """The partition."""
        return self.steps.partition

    @property
    def topics(self) -> frozenset[str] | None:
        """The topics to read; None for all."""
        return self.steps.topics

    @property
    def expired(self) -> int:
        """How many messages were gone before they could be read."""
        return self.steps.expired

    @property
    def at_tail(self) -> bool:
        """Whether the last read reached the end of the log, or the stop."""
        return self.steps.at_tail

    @property
    def next_slot(self) -> tuple[int, int]:
        """The partition, and the slot at which this reader expects the next batch."""
        return self.steps.next_slot

    @property
    def cursor(self) -> int:
        """The ID at which another reader would continue after the batches that this one has
        returned.
        """
        return self.steps.cursor

    @property
    def ordinal(self) -> int | None:
        """How many messages the partition had up to here; None before the first header."""
        return self.steps.ordinal

    @property
    def skipped(self) -> int:
        """How many messages could not be read and were skipped, because an operator chose to skip
        their batches. Messages of returned batches count when these are decoded.
        """
        return self.steps.skipped

    @property
    def finished(self) -> bool:
        """Whether the stop was reached, so that no later batch can have messages to read."""
        return self.steps.finished

    @property
    def short(self) -> bool:
        """Whether the log ended before the first ID to read when it was last checked.

        A region server that lost the partition and has not noticed may cause this for a while. If
        it lasts, the partition was truncated.
        """
        return self.steps.short

    @property
    def holds(self) -> bool:
        """Whether the reader holds resources in the store."""
        return self.steps.holds

    def read(self, deadline: Deadline) -> list[Batch]:
        """Read the next batches, some megabytes at most; none at the end of the log or at the stop.

        Raises:
            StoreUnavailableError: the store was unavailable until the deadline.
            QueueStateError, RequestRefusedError: the store refuses the read.
            CorruptLogError: the log is corrupt at this position. The reader stays there.
        """
        return drive(self.steps.read(deadline), self._port, deadline)

    def read_once(self, deadline: Deadline) -> list[Batch]:
        """Read as `read`, with one request. The result may be empty although the log continues, if
        the request found none of the topics to read; `at_tail` is False then.
        """
        return drive(self.steps.read_once(deadline), self._port, deadline)

    def accept(self, row: Row, deadline: Deadline) -> Batch | None:
        """Accept a row if it is the next one, and return its batch if it has messages to read.

        Rows come from `read`, or from a caller that gets the `next_slot` of many readers at once. A
        row that shows that the reader is at the wrong slot moves it to the right one instead.
        """
        return drive(self.steps.accept(row, deadline), self._port, deadline)

    def take(self, row: Row) -> list[Batch] | None:
        """Accept a row that the caller has, without a request to the store; None if it isn't the
        next one.

        Like `PartitionCursor.take`.
        """
        return self.steps.take(row)

    def check_tail(self, deadline: Deadline) -> None:
        """Check whether the log continues at another slot than `next_slot`.

        A follower that only polls its slot would wait for ever after a truncation, or after the
        headers of its part of the log were deleted because it fell too far behind.
        """
        drive(self.steps.check_tail(deadline), self._port, deadline)

    def release(self) -> None:
        """Free what the reader holds in the store. Reading can continue afterwards."""
        if self.holds:
            drive(self.steps.release(), self._port, Deadline(self._clock, 0))

    def reopened(self, start: int, expired: int) -> PartitionReader:
        """A new reader with the same arguments and another start. It shares nothing with this
        one.
        """
        return reader_of(self.steps.reopened(start, expired), self._port, self._clock)


def reader_of(steps: PartitionCursor, port: ReadPort, clock: Clock) -> PartitionReader:
    """A reader that carries out what a cursor decides."""
    reader = PartitionReader(steps.partition, port, clock=clock)
    reader.steps = steps
    return reader

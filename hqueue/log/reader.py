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
    """A cursor in one partition. Not thread-safe. Made by `Queue.reader`.

    It gives every batch once and in order, and checks that each follows the one before: by its
    slot and by its ordinal. Batches that expired, or were collected, before they could be read
    are counted in `expired`. When a request fails it goes on from where it stood.

    Args:
        partition: the partition.
        port: the store.
        start: the first ID that is wanted.
        stop: the first ID that isn't any more.
        topics: the topics wanted; None for all.
        clock: where time comes from.
        bytes_max: the bodies asked of the store in one request, about; at least one batch.
        ordinal: messages that the partition had before the start, if that is known: then what was
            collected from there on is counted in `expired`, too.
        owner_epoch: only messages that the owner of their topic with this epoch appended; those
            of any writer if None.
        decisions: which batches are passed by where they can't be read.
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
        """The topics wanted; None for all."""
        return self.steps.topics

    @property
    def expired(self) -> int:
        """Wanted messages that were gone before they could be read."""
        return self.steps.expired

    @property
    def at_tail(self) -> bool:
        """Whether the last read met the end of the log, or the stop."""
        return self.steps.at_tail

    @property
    def next_slot(self) -> tuple[int, int]:
        """The partition and the slot that is read next: where a new batch will lie."""
        return self.steps.next_slot

    @property
    def cursor(self) -> int:
        """The ID from which another reader would go on after what this one has given."""
        return self.steps.cursor

    @property
    def ordinal(self) -> int | None:
        """Messages that the partition had up to here; None before the first header."""
        return self.steps.ordinal

    @property
    def skipped(self) -> int:
        """Messages that could not be read, and were passed by because an operator decided so. Of
        batches that were given they count once these are decoded.
        """
        return self.steps.skipped

    @property
    def finished(self) -> bool:
        """Whether the stop was reached: no further batch can hold a wanted message."""
        return self.steps.finished

    @property
    def short(self) -> bool:
        """Whether the log ended before the first ID that is wanted, when that was looked at last.

        A region server that lost the partition and does not know yet may say so, for a while; a log
        that stays so short is another one: the partition was truncated.
        """
        return self.steps.short

    @property
    def holds(self) -> bool:
        """Whether something is held in the store."""
        return self.steps.holds

    def read(self, deadline: Deadline) -> list[Batch]:
        """The next batches, some megabytes at most; none at the end of the log or at the stop.

        Raises:
            StoreUnavailableError: the store stayed away until the deadline.
            QueueStateError, RequestRefusedError: the store will not be read.
            CorruptLogError: the log is broken here. Reading goes no further.
        """
        return drive(self.steps.read(deadline), self._port, deadline)

    def read_once(self, deadline: Deadline) -> list[Batch]:
        """What one request gives: as `read`, but it may be nothing although the log goes on, where
        none of the topics wanted lies; `at_tail` is false then.
        """
        return drive(self.steps.read_once(deadline), self._port, deadline)

    def accept(self, row: Row, deadline: Deadline) -> Batch | None:
        """Take a row in if it is the next one, and give its batch if that is wanted.

        Rows come from `read`, or from a caller that gets the `next_slot` of many readers at once. A
        row that shows that the reader stands at the wrong slot moves it there instead.
        """
        return drive(self.steps.accept(row, deadline), self._port, deadline)

    def take(self, row: Row) -> list[Batch] | None:
        """Take in a row that somebody else has, without asking the store; None if it isn't next.

        As `PartitionCursor.take`.
        """
        return self.steps.take(row)

    def check_tail(self, deadline: Deadline) -> None:
        """Look whether the log goes on elsewhere than at `next_slot`.

        A follower that only asks for its slot would wait for ever after a truncation, or when
        it fell so far behind that its part of the log was collected.
        """
        drive(self.steps.check_tail(deadline), self._port, deadline)

    def release(self) -> None:
        """Free what is held in the store. Reading can go on afterwards."""
        if self.holds:
            drive(self.steps.release(), self._port, Deadline(self._clock, 0))

    def reopened(self, start: int, expired: int) -> PartitionReader:
        """The same reader, reopened: it begins elsewhere, and shares nothing with this one."""
        return reader_of(self.steps.reopened(start, expired), self._port, self._clock)


def reader_of(steps: PartitionCursor, port: ReadPort, clock: Clock) -> PartitionReader:
    """A reader that carries out what a cursor decides."""
    reader = PartitionReader(steps.partition, port, clock=clock)
    reader.steps = steps
    return reader

"""A queue's log, as one can ask about it: its ends, its headers, and whether it is whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from hqueue.consume.polling import appended_since
from hqueue.consume.scanners import Scan
from hqueue.errors import ClosedError
from hqueue.format import Header
from hqueue.log.check import PartitionCheck, PartitionChecker
from hqueue.log.headers import headers_of
from hqueue.log.lag import PartitionLag, lag_at
from hqueue.log.offsets import PartitionOffsets, count_before, id_at, offsets_of
from hqueue.log.ports import ReadPort
from hqueue.message import MessageID, Moment
from hqueue.runtime.clock import Clock, Deadline
from hqueue.settings.attributes import QueueDescription, check_partition
from hqueue.settings.connection import Settings

__all__ = ["QueueLog"]


class QueueLog:
    """Where a queue's partitions begin and end, and what lies between. Gives no messages.

    `Queue` is one that also reads and writes them.
    """

    def __init__(
        self,
        description: QueueDescription,
        describe: Callable[[], QueueDescription],
        *,
        reads: ReadPort,
        settings: Settings,
        clock: Clock,
    ) -> None:
        self.name = description.name
        self.partitions = description.partitions
        self._describe = describe
        self._reads = reads
        self._settings = settings
        self._clock = clock
        self._closed = False

    def close(self) -> None:
        """Refuse further puts and scans through this object. The client's connections stay."""
        self._closed = True

    def describe(self) -> QueueDescription:
        """What HBase says of the queue now."""
        return self._describe()

    def offsets(self, partitions: Sequence[int] | None = None) -> list[PartitionOffsets]:
        """Where each partition begins and ends now. Two small requests a partition.

        The difference of two ordinals is a number of messages. How far a reader is behind that is
        somewhere between the two: `lag`.

        Args:
            partitions: which; all if None.
        """
        return [offsets_of(p, self._reads, self.deadline()) for p in self._partitions(partitions)]

    def lag(self, positions: Mapping[int, MessageID]) -> dict[int, PartitionLag]:
        """How far behind a reader is that goes on from these IDs, by partition.

        Two or three small requests a partition, and no message is read. Messages that have
        expired count as long as their headers are kept.

        Args:
            positions: for each partition the first ID that was not read yet.

        Raises:
            InvalidInputError: there is no such partition.
            StoreUnavailableError: HBase stayed away for ``operation_timeout_ms``.
            CorruptLogError: a header can't be read.
        """
        return {
            partition: lag_at(
                partition, int(positions[partition]), self._reads, self.deadline(), self._clock
            )
            for partition in self._partitions(list(positions))
        }

    def count_before(self, partition: int, message_id: MessageID) -> int:
        """How many messages a partition ever had before an ID, expired ones too.

        One small request, or two.
        """
        self._check_partition(partition)
        return count_before(partition, message_id, self._reads, self.deadline())

    def id_at(self, partition: int, ordinal: int) -> MessageID:
        """An ID that a partition ever had so many messages before: `count_before`, the other way.

        So a part of the log is cut into pieces of equal numbers of messages. Where those
        messages were collected it is the ID of the oldest that is known, and where there were
        never so many, the end of the log. Some tens of small requests at most.
        """
        self._check_partition(partition)
        return id_at(partition, ordinal, self._reads, self.deadline())

    def appended_since(self, offsets: Sequence[PartitionOffsets]) -> list[int]:
        """The partitions that got a batch since these offsets were taken.

        One small request for up to 256 of them, so it can be asked often. What came after a
        truncation it does not find: for that the offsets have to be taken again now and then.
        """
        return appended_since(offsets, self._reads, self.deadline)

    def headers(
        self, partition: int, start: Moment = 0, stop: Moment | None = None
    ) -> Iterator[Header]:
        """The headers of the batches that have messages in ``[start, stop)``, ascending.

        They tell how many messages of which topics were written when, and of what size. No
        message is read for it: HBase keeps headers apart, and 1,000 come with a request.
        """
        self._check_partition(partition)
        scan = Scan(start, stop)
        return headers_of(partition, scan.start, scan.stop, self._reads, self.deadline)

    def check(self, partitions: Sequence[int] | None = None) -> Iterator[PartitionCheck]:
        """Walk the log from its first batch to its last: links, ordinals and every checksum.

        What is wrong in one place does not stop the check of the rest. Yields the result of each
        partition, several times while it grows; the last one of a partition is whole.

        Args:
            partitions: which; all if None.

        Raises:
            StoreUnavailableError: HBase stayed away for ``operation_timeout_ms``.
        """
        ttl_seconds = self.describe().ttl_seconds
        for partition in self._partitions(partitions):
            yield from PartitionChecker(
                partition,
                self._reads,
                self.deadline,
                ttl_ms=None if ttl_seconds is None else ttl_seconds * 1_000,
                clock=self._clock,
            ).run()

    def deadline(self) -> Deadline:
        """The bound on one operation, from now."""
        return Deadline(self._clock, self._settings.operation_timeout_ms)

    def _partitions(self, given: Sequence[int] | None) -> Sequence[int]:
        """These partitions; all if None."""
        for partition in given or ():
            self._check_partition(partition)
        return range(self.partitions) if given is None else given

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("the queue was closed", queue=self.name)

    def _check_partition(self, partition: object) -> None:
        check_partition(partition, self.partitions, queue=self.name)

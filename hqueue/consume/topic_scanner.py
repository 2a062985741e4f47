"""Reading a topic that has an owner: over all its ranges, in the order of IDs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from hqueue.consume.queue_reader import QueueReader
from hqueue.consume.scan import Scan
from hqueue.consume.scanners import BYTES_MAX, PartitionScanner
from hqueue.consume.topic_ranges import TopicRanges
from hqueue.errors import ClosedError
from hqueue.message import ReceivedMessage
from hqueue.settings.limits import SCAN_BYTES_MAX
from hqueue.settings.numbers import check_whole

if TYPE_CHECKING:
    import pyarrow

__all__ = ["TopicScanner"]


class TopicScanner:
    """Reads a topic that has an owner, range after range. Made by `Queue.scan_topic`.

    Iterate over it, or call `next` until it returns None; or take record batches with
    `arrow_batches`. Each message comes once and in the order of IDs, over all ranges. All messages
    that were published before it was opened are read. Of the messages that are published to the
    range that was open then, it reads the first ones without a gap, or none. `expired` counts the
    expired messages. It survives the same faults as a `PartitionScanner`. Not thread-safe,
    except for `close`.

    A range that seems to end too early is read again, as `TopicRanges` says.

    Args:
        reader: the reader of the queue.
        scans: the partition and `Scan` of each range, in the order of IDs.
        bytes_max: about how many bytes of bodies the scanner holds and fetches at a time.
        whole: whether the last range must reach up to the stop of its scan, as closed ranges must.

    Raises:
        InvalidInputError: an argument is out of range.
    """

    def __init__(
        self,
        reader: QueueReader,
        scans: Sequence[tuple[int, Scan]],
        *,
        bytes_max: int = BYTES_MAX,
        whole: bool = False,
    ) -> None:
        self._bytes_max = check_whole(bytes_max, 1, SCAN_BYTES_MAX, option="bytes_max")
        self._reader = reader
        self._ranges = TopicRanges(reader.reading, scans, whole=whole)
        self._scanner: PartitionScanner | None = None
        self._expired = 0
        self._closed = False

    def __enter__(self) -> TopicScanner:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[ReceivedMessage]:
        while (message := self.next()) is not None:
            yield message

    def next(self) -> ReceivedMessage | None:
        """Return the next message; None at the end.

        Raises:
            StoreUnavailableError: HBase was unavailable for ``operation_timeout_ms``.
            CorruptLogError: the log is corrupt at this position.
            ClosedError: the scanner was closed.
        """
        while (scanner := self._current()) is not None:
            message = scanner.next()
            if message is not None:
                return message
            self._advance(scanner)
        return None

    def arrow_batches(self) -> Iterator[pyarrow.RecordBatch]:
        """Iterate over the messages as Arrow record batches of `hqueue.consume.arrow.SCHEMA`, each
        of up to some megabytes. Needs the extra ``hqueue-hbase[arrow]``. Raises as `next`.
        """
        while (scanner := self._current()) is not None:
            yield from scanner.arrow_batches()
            if self._closed:
                return
            if scanner is self._scanner:  # Else `next` went on meanwhile.
                self._advance(scanner)

    @property
    def expired(self) -> int:
        """How many messages of the log had expired before this scanner could read them."""
        return self._expired + (0 if self._scanner is None else self._scanner.expired)

    def close(self) -> None:
        """End the scan and free what it holds in HBase."""
        self._closed = True
        if self._scanner is not None:
            self._scanner.close()

    def _current(self) -> PartitionScanner | None:
        """What reads the range where it is; None after the last one."""
        if self._closed:
            raise ClosedError("the scanner was closed")
        if self._scanner is None and self._ranges.next is not None:
            partition, scan = self._ranges.next
            self._scanner = PartitionScanner(
                self._reader, partition, scan, bytes_max=self._bytes_max
            )
        return self._scanner

    def _advance(self, scanner: PartitionScanner) -> None:
        """The log ended, or that range: go on with the next one, or where the log continues. If
        this is interrupted, the next call does the rest.
        """
        (position,) = scanner.positions().values()
        self._ranges.reach(int(position))
        self._scanner, self._expired = None, self._expired + scanner.expired
        scanner.close()
        self._reader.do_long(self._ranges.advance(int(position)))

"""Scanners: one class for any partitions, and the three names of Alibaba's HQueue."""

from __future__ import annotations

import collections
import dataclasses
import itertools
import sys
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from operator import itemgetter, length_hint
from typing import TYPE_CHECKING, Any, TypedDict

from hqueue.consume.prefetch import PREFETCH_REQUESTS
from hqueue.consume.queue_reader import QueueReader
from hqueue.consume.scan import Scan
from hqueue.consume.scan_reading import ScanReading, interrupted_scan
from hqueue.errors import ClosedError, InvalidInputError
from hqueue.message import ReceivedMessage
from hqueue.message_id import MessageID
from hqueue.runtime.extras import needing_arrow
from hqueue.runtime.forgotten import Watched
from hqueue.runtime.interrupts import is_own
from hqueue.settings.attributes import check_partition
from hqueue.settings.keyword_options import Unpack
from hqueue.settings.kinds import check_flag, check_kind, check_mapping
from hqueue.settings.limits import SCAN_BYTES_MAX
from hqueue.settings.numbers import check_number, check_whole

if TYPE_CHECKING:
    import pyarrow

__all__ = [
    "CheckedOptions",
    "CombinedPartitionScanner",
    "PartitionScanner",
    "QueueScanner",
    "Scanner",
    "ScannerOptions",
    "open_scanner",
]

BYTES_MAX = 16 * 1024 * 1024

MERGED_BYTES_MAX = 1024 * 1024
MESSAGE_OVERHEAD_BYTES = 200
"""Merged messages are in record batches of this many bytes, about."""


class ScannerOptions(TypedDict, total=False):
    """How a scanner reads: whether it follows, in what order, how far, and how much it buffers."""

    follow: bool
    """At the end, wait for new messages instead of ending. One request asks for new messages of all
    partitions. False by default.
    """

    idle_ms_max: int | None
    """When following, end after this long without a message. None, the default, never ends."""

    merge_sorted: bool
    """Return the messages of all partitions merged, in the order of IDs. Not together with
    `follow`: a silent partition could still get an older ID. False by default.
    """

    bytes_max: int
    """About how many bytes of bodies the scanner holds and fetches at a time: at least five
    batches, or with `merge_sorted` one for each partition. A follower, which does not prefetch,
    fetches a fifth of it at a time. 16 MiB by default, at most 512 MiB.
    """

    limit: int | None
    """Return at most this many messages. None, the default, returns all."""


@dataclasses.dataclass(frozen=True)
class CheckedOptions:
    """A scanner's options, which fit one another and what it reads."""

    follow: bool
    idle_ms_max: int | None
    merge_sorted: bool
    limit: int | None
    request_bytes_max: int
    """The bodies asked for in one request, about; at least one batch."""

    @classmethod
    def of(
        cls,
        scans: Mapping[int, Scan],
        *,
        follow: bool = False,
        idle_ms_max: int | None = None,
        merge_sorted: bool = False,
        bytes_max: int = BYTES_MAX,
        limit: int | None = None,
    ) -> CheckedOptions:
        """The options of a scanner of these scans, by partition.

        Raises:
            InvalidInputError: an argument is out of range.
        """
        check_mapping(scans, "scans")
        for scan in scans.values():
            check_kind(scan, Scan, "scans")
        check_flag(follow, "follow")
        check_flag(merge_sorted, "merge_sorted")
        if idle_ms_max is not None:
            if not follow:
                raise InvalidInputError(
                    "idle_ms_max works only with follow=True: other scanners stop at the end of "
                    "the log",
                    idle_ms_max=idle_ms_max,
                )
            check_number(idle_ms_max, 0, float("inf"), option="idle_ms_max")
        if not scans:
            raise InvalidInputError("a scanner needs at least one partition")
        if follow and merge_sorted:
            raise InvalidInputError(
                "a scanner can follow, or merge its partitions sorted by ID, but not both"
            )
        bytes_max = check_whole(bytes_max, 1, SCAN_BYTES_MAX, option="bytes_max")
        request_bytes_max = max(
            1, bytes_max // (len(scans) if merge_sorted else 1 + PREFETCH_REQUESTS)
        )
        if limit is not None:
            limit = check_whole(limit, 0, sys.maxsize, option="limit")
        return cls(follow, idle_ms_max, merge_sorted, limit, request_bytes_max)


class Scanner:
    """Reads one, some or all partitions of a queue. Made by `Queue.scan`.

    Iterate over it, or call `next` until it returns None; or take record batches with
    `arrow_batches`. Each message of a partition comes once and in the order of IDs; between
    partitions no order is promised. All messages that were put before it began are read. Of the
    messages that are put while it reads, it reads the first ones of each partition without a gap,
    or none. It prefetches the next messages while the caller uses these.

    When a gateway, a region or a scan in HBase dies, the scanner continues at its position. It
    raises only when HBase is unavailable for ``operation_timeout_ms``. After an error, or after a
    signal handler interrupted it, every further call raises that error; it never ends as if it had
    read everything. Not thread-safe, except for `close`.

    A scanner that was neither read to its end nor closed is closed when Python collects it, with a
    `ResourceWarning`.

    Args:
        reader: the reader of the queue.
        scans: the `Scan` of each partition.
        options: see `ScannerOptions`.

    Raises:
        InvalidInputError: an argument is out of range.
    """

    def __init__(
        self,
        reader: QueueReader,
        scans: Mapping[int, Scan],
        **options: Unpack[ScannerOptions],
    ) -> None:
        checked = CheckedOptions.of(scans, **options)
        readers = [
            reader.open(partition, scan, checked.request_bytes_max)
            for partition, scan in sorted(scans.items())
        ]
        self._reading = reading = ScanReading(
            reader,
            readers,
            checked.request_bytes_max,
            follow=checked.follow,
            idle_ms_max=checked.idle_ms_max,
            merge_sorted=checked.merge_sorted,
        )
        self._answers = None if checked.merge_sorted else reading.batches()
        self._source: Generator[Any, None, None]
        self._messages: Iterator[ReceivedMessage]
        if self._answers is None:
            self._messages = self._source = reading.merged()
        else:
            self._source = reading.one_by_one(self._answers)
            self._messages = itertools.chain.from_iterable(self._source)
        self._places: Iterator[int] | None = None
        """As many as messages may still be given, if that is limited."""
        if checked.limit is not None:
            self._places = iter(range(checked.limit))
            self._messages = map(itemgetter(1), zip(self._places, self._messages, strict=False))
        prefetcher = reading.prefetcher
        # The source is held by this object, and by what iterates, which may outlive it.
        self._watched = Watched(
            self._source, "a scanner", prefetcher.close, lambda: prefetcher.holds
        )

    def __enter__(self) -> Scanner:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[ReceivedMessage]:
        self._reading.check_failure(self._source)
        return self._messages

    def next(self) -> ReceivedMessage | None:
        """Return the next message; None at the end.

        Raises:
            StoreUnavailableError: HBase was unavailable for ``operation_timeout_ms``.
            CorruptLogError: the log is corrupt at this position.
            ClosedError: the scanner was closed.
        """
        reading = self._reading
        if reading.closed:
            raise ClosedError("the scanner was closed")
        if reading.failure is not None or reading.interrupted:
            self._reading.check_failure(self._source)
        try:
            message = next(self._messages, None)
            if message is None:
                self._reading.check_failure(self._source)
            return message
        except BaseException as exc:
            if not is_own(exc):
                reading.failure = reading.failure or interrupted_scan(exc)
            raise

    def arrow_batches(self) -> Iterator[pyarrow.RecordBatch]:
        """Iterate over the messages as Arrow record batches of `hqueue.consume.arrow.SCHEMA`, each
        of up to some megabytes.

        HBase's cells become columns without a copy of each body; a scanner with ``merge_sorted``
        merges message by message. If the caller leaves the iteration early, the next iteration or
        `next` returns the remaining messages. Needs the extra ``hqueue-hbase[arrow]``. Raises as
        `next`.
        """
        with needing_arrow():
            from hqueue.consume.arrow import (  # noqa: PLC0415  (pyarrow is an extra)
                first_of,
                record_batch,
                record_batch_of,
            )

        reading = self._reading
        if reading.closed or (self._places is not None and not length_hint(self._places)):
            return
        reading.check_failure(self._source)
        try:
            if self._answers is None:
                yield from self._merged_columns(record_batch_of)
                return
            columns = reading.columns(self._answers, first_of, record_batch)
            yield from columns if self._places is None else _limited(columns, self._places)
        except GeneratorExit:
            raise
        except BaseException as exc:
            if not is_own(exc):
                reading.failure = reading.failure or interrupted_scan(exc)
            raise

    def _merged_columns(
        self, record_batch_of: Callable[[Sequence[ReceivedMessage]], pyarrow.RecordBatch]
    ) -> Iterator[pyarrow.RecordBatch]:
        while messages := _some(self._messages):
            yield record_batch_of(messages)
        self._reading.check_failure(self._source)

    @property
    def expired(self) -> int:
        """How many messages of the log had expired before this scanner could read them."""
        return sum(reader.expired for reader in self._reading.readers)

    @property
    def skipped(self) -> int:
        """How many messages could not be read and were skipped, because an operator chose to skip
        their batches (`Queue.skipped_batches`).
        """
        return sum(reader.skipped for reader in self._reading.readers)

    def positions(self) -> dict[int, MessageID]:
        """For each partition, the first ID that was not fetched yet.

        After the scanner has ended, a scan from these positions reads the messages that were added
        since.
        """
        return {r.partition: MessageID.from_int(r.cursor) for r in self._reading.readers}

    def close(self) -> None:
        """End the scan, and free what it holds in HBase. A follower stops waiting."""
        self._reading.close()
        self._watched.closed()


def _some(messages: Iterator[ReceivedMessage]) -> list[ReceivedMessage]:
    """The next messages, of some megabytes; none at the end."""
    taken: list[ReceivedMessage] = []
    left = MERGED_BYTES_MAX
    for message in messages:
        taken.append(message)
        left -= len(message.value) + MESSAGE_OVERHEAD_BYTES
        if left <= 0:
            break
    return taken


def _limited(
    columns: Iterator[pyarrow.RecordBatch], places: Iterator[int]
) -> Iterator[pyarrow.RecordBatch]:
    """Up to this many rows, each of which takes a place."""
    for each in columns:
        given = each.slice(0, length_hint(places))
        collections.deque(itertools.islice(places, given.num_rows), maxlen=0)
        yield given
        if not length_hint(places):
            return


class PartitionScanner(Scanner):
    """A `Scanner` of one partition. Made by `Queue.partition_scanner`."""

    def __init__(
        self, reader: QueueReader, partition: int, scan: Scan, **options: Unpack[ScannerOptions]
    ) -> None:
        number = check_partition(partition, reader.partitions)
        super().__init__(reader, {number: scan}, **options)


class QueueScanner(Scanner):
    """A `Scanner` of all partitions. Made by `Queue.queue_scanner`."""

    def __init__(self, reader: QueueReader, scan: Scan, **options: Unpack[ScannerOptions]) -> None:
        super().__init__(reader, dict.fromkeys(range(reader.partitions), scan), **options)


class CombinedPartitionScanner(Scanner):
    """A `Scanner` of some partitions, each with its own `Scan`. Made by
    `Queue.combined_partition_scanner`.
    """


def open_scanner(
    reader: QueueReader, partition: int | None, scan: Scan, **options: Unpack[ScannerOptions]
) -> Scanner:
    """A scanner over one partition, or over all if it is None.

    Raises:
        InvalidInputError: an option is unknown or out of range, or there is no such partition.
    """
    number = None if partition is None else check_partition(partition, reader.partitions)
    chosen = range(reader.partitions) if number is None else [number]
    return Scanner(reader, dict.fromkeys(chosen, scan), **options)

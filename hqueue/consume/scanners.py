"""The three scanners of Alibaba's HQueue: of a queue, of a partition and of several partitions."""

from __future__ import annotations

import collections
import dataclasses
import heapq
import itertools
import sys
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from operator import attrgetter, itemgetter, length_hint
from types import GeneratorType
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

from hqueue.consume.decode import each_message_of
from hqueue.consume.prefetch import PREFETCH_REQUESTS, Prefetcher
from hqueue.consume.queue_reader import QueueReader
from hqueue.consume.scan import Scan
from hqueue.errors import ClosedError, HQueueError, InvalidInputError
from hqueue.log import Batch, PartitionReader
from hqueue.message import ReceivedMessage
from hqueue.message_id import MessageID
from hqueue.runtime.extras import needing_arrow
from hqueue.runtime.forgotten import Watched
from hqueue.runtime.fork import register
from hqueue.runtime.held import if_free
from hqueue.settings.attributes import check_partition
from hqueue.settings.kinds import check_flag, check_kind, check_mapping
from hqueue.settings.limits import SCAN_BYTES_MAX
from hqueue.settings.numbers import check_number, check_whole
from hqueue.settings.options import Unpack

if TYPE_CHECKING:
    import pyarrow

__all__ = [
    "CombinedPartitionScanner",
    "PartitionScanner",
    "QueueScanner",
    "ScannerOptions",
    "open_scanner",
]

BYTES_MAX = 16 * 1024 * 1024

MERGED_BYTES_MAX = 1024 * 1024
MESSAGE_OVERHEAD_BYTES = 200
"""Merged messages are in record batches of so many bytes, about."""

Result = TypeVar("Result")


class ScannerOptions(TypedDict, total=False):
    """The options of a scanner, besides what it reads."""

    follow: bool
    """At the end, wait for new messages instead of ending. New messages are asked for in one
    request for all partitions. False by default."""

    idle_ms_max: int | None
    """When following, end after so long without a message; None, the default, for never."""

    by_id: bool
    """Give the messages of all partitions merged, in the order of IDs. Not together with `follow`:
    a partition that is silent could still get an older ID. False by default."""

    bytes_max: int
    """The bodies held at a time and on their way, about; at least five batches, or when merging
    one a partition. A follower, which does not prefetch, asks for a fifth of it at a time. 16 MiB
    by default, 512 at most."""

    limit: int | None
    """Give so many messages at most; None, the default, for all."""


class _Reading:
    """What is behind a scanner: it gives the messages, and refers to no face. One thread reads with
    it at a time. In a forked child it goes on, unless a thread of the parent was reading, which the
    child has not: what that read by half can't be gone on with.
    """

    def __init__(
        self,
        reader: QueueReader,
        readers: Sequence[PartitionReader],
        request_bytes_max: int,
        *,
        follow: bool,
        idle_ms_max: int | None,
        by_id: bool,
    ) -> None:
        self._reader = reader
        self.prefetcher = Prefetcher(readers, reader)
        self.readers = self.prefetcher.readers
        self._request_bytes_max = request_bytes_max
        self._follow = follow
        self._idle_ms_max = idle_ms_max
        self._by_id = by_id
        self.closed = False
        self.failure: HQueueError | None = None
        self.lock = threading.Lock()
        self.interrupted = False
        """Whether a thread was reading at the fork."""
        self._ends = 0
        """How many of what it reads by have come to their ends."""
        self._left: collections.deque[Batch] = collections.deque()
        """What came, and was not given."""
        self._begun: tuple[Batch, Iterator[ReceivedMessage]] | None = None
        """The batch that is given message by message, and what is left of it."""
        register(self)

    def after_fork_in_child(self) -> None:
        self.interrupted = self.interrupted or self.lock.locked()
        self.lock = threading.Lock()

    def close(self) -> None:
        self.closed = True
        self._release()

    def one_by_one(
        self, answers: Iterator[list[Batch]]
    ) -> Generator[Iterator[ReceivedMessage], None, None]:
        """The messages of each batch.

        Args:
            answers: the `batches`.
        """
        for left in self._each_left(answers):
            messages = self.noted(each_message_of, left[0])
            self._begun = left.popleft(), messages
            yield messages

    def columns(
        self,
        answers: Iterator[list[Batch]],
        first_of: Callable[[Sequence[Batch]], Sequence[Batch]],
        record_batch: Callable[[Sequence[Batch]], pyarrow.RecordBatch],
    ) -> Iterator[pyarrow.RecordBatch]:
        """What `one_by_one` has not given, as Arrow record batches. What is not taken of them comes
        when more is asked for, in whichever way.

        Args:
            answers: those that `one_by_one` has.
            first_of, record_batch: as in `hqueue.consume.arrow`.
        """
        for left in self._each_left(answers):
            batches = first_of(left)
            columns = self.noted(record_batch, batches)
            for _ in batches:
                left.popleft()
            if columns.num_rows:
                yield columns

    def _each_left(self, answers: Iterator[list[Batch]]) -> Iterator[collections.deque[Batch]]:
        """What is left to give, as long as there is something: it takes from that each time."""
        for batches in itertools.chain([()], answers):
            self._left.extend(batches)
            while self._put_back():
                yield self._left

    def _put_back(self) -> bool:
        """Let what is left of a begun batch be given in whichever way; whether anything is left."""
        if self._begun is not None:
            batch, messages = self._begun
            following = next(messages, None)
            if following is not None:
                self._left.appendleft(dataclasses.replace(batch, start=int(following.id)))
                collections.deque(messages, maxlen=0)  # They are not given by what has them.
            self._begun = None
        return bool(self._left)

    def merged(self) -> Generator[ReceivedMessage, None, None]:
        def messages(reader: PartitionReader) -> Iterator[ReceivedMessage]:
            for batches in self._drain(reader):
                for batch in batches:
                    yield from self.noted(each_message_of, batch)

        yield from heapq.merge(*map(messages, self.readers), key=attrgetter("id"))

    def batches(self) -> Iterator[list[Batch]]:
        if self._follow:
            yield from self._noting_failure(
                self._reader.follow(
                    self.readers,
                    self._request_bytes_max,
                    idle_ms_max=self._idle_ms_max,
                    closed=lambda: self.closed,
                )
            )
            return
        yield from self._noting_failure(self.prefetcher)

    def _drain(self, reader: PartitionReader) -> Iterator[list[Batch]]:
        def batches() -> Iterator[list[Batch]]:
            while not reader.at_tail and not self.closed:
                read = reader.read(self._reader.deadline())
                if read:
                    yield read

        return self._noting_failure(batches())

    def noted(self, function: Callable[..., Result], *arguments: object) -> Result:
        """Call, and keep an error: a generator that raised has ended, as if the log had."""
        try:
            return function(*arguments)
        except HQueueError as exc:
            self.failure = exc
            raise
        except BaseException as exc:
            self.failure = self.failure or _interruption(exc)
            raise

    def _noting_failure(self, batches: Iterator[list[Batch]]) -> Iterator[list[Batch]]:
        self.check_failure()
        read: list[Batch] | None = []
        while read is not None:
            try:
                with self.lock:
                    read = self.noted(next, batches, None)
            finally:
                if self.closed:
                    self._release()
            if read:
                yield read
        self._ends += 1

    def _release(self) -> None:
        """Free what the readers hold in HBase. A thread that reads does it itself afterwards."""
        if_free(self.lock, self.prefetcher.close)

    def check_failure(self, source: Generator[Any, None, None] | None = None) -> None:
        """Raise what ended the scan before its end.

        Args:
            source: what gives its messages, if these are asked for.
        """
        if self.interrupted:
            raise ClosedError(
                "a thread of the parent process was reading at the fork: open another scanner"
            )
        ended = self._ends >= (len(self.readers) if self._by_id else 1)
        if (
            self.failure is None
            and not ended
            and isinstance(source, GeneratorType)
            and source.gi_frame is None
        ):
            # A generator that was interrupted has ended: it gives no more, as if the log had ended.
            self.failure = None if self.closed else _interruption(None)
        if self.failure is not None:
            raise self.failure


class CombinedPartitionScanner:
    """Reads some partitions of a queue, each with its own `Scan`.

    Iterate over it, or call `next` until it gives None; or take the messages batch-wise with
    `arrow_batches`. Each message of a partition comes once and in the order of IDs; between
    partitions no order is promised. All that was put before it began is read; of what is put while
    it reads, a part of each partition without a gap, which may be nothing. While messages are used,
    the next ones are on their way.

    It goes on where it stood when a gateway, a region or a scan in HBase dies, and raises only
    when HBase stays away for ``operation_timeout_ms``. After an error it gives that error again,
    never an end; so it does after a handler of a signal interrupted it. Not thread-safe, but for
    `close`.

    One that is forgotten before its end is closed when it is collected, with a `ResourceWarning`.
    Made by `Queue.combined_partition_scanner`.

    Args:
        reader: reads the queue.
        scans: partition to `Scan`.
        follow, idle_ms_max, by_id, bytes_max, limit: as `ScannerOptions` says.

    Raises:
        InvalidInputError: an argument is out of range.
    """

    def __init__(
        self,
        reader: QueueReader,
        scans: Mapping[int, Scan],
        *,
        follow: bool = False,
        idle_ms_max: int | None = None,
        by_id: bool = False,
        bytes_max: int = BYTES_MAX,
        limit: int | None = None,
    ) -> None:
        check_mapping(scans, "scans")
        for scan in scans.values():
            check_kind(scan, Scan, "scans")
        check_flag(follow, "follow")
        check_flag(by_id, "by_id")
        if idle_ms_max is not None:
            if not follow:
                raise InvalidInputError(
                    "idle_ms_max is for a scanner that follows: any other ends at the end",
                    idle_ms_max=idle_ms_max,
                )
            check_number(idle_ms_max, 0, float("inf"), option="idle_ms_max")
        if not scans:
            raise InvalidInputError("a scanner needs at least one partition")
        if follow and by_id:
            raise InvalidInputError("a scanner can follow, or merge by ID, but not both")
        bytes_max = check_whole(bytes_max, 1, SCAN_BYTES_MAX, option="bytes_max")
        request_bytes_max = max(1, bytes_max // (len(scans) if by_id else 1 + PREFETCH_REQUESTS))
        readers = [
            reader.open(partition, scan, request_bytes_max)
            for partition, scan in sorted(scans.items())
        ]
        self._reading = reading = _Reading(
            reader,
            readers,
            request_bytes_max,
            follow=follow,
            idle_ms_max=idle_ms_max,
            by_id=by_id,
        )
        self._answers = None if by_id else reading.batches()
        self._source: Generator[Any, None, None]
        self._messages: Iterator[ReceivedMessage]
        if self._answers is None:
            self._messages = self._source = reading.merged()
        else:
            self._source = reading.one_by_one(self._answers)
            self._messages = itertools.chain.from_iterable(self._source)
        self._places: Iterator[int] | None = None
        """As many as messages may still be given, if that is limited."""
        if limit is not None:
            self._places = iter(range(check_whole(limit, 0, sys.maxsize, option="limit")))
            self._messages = map(itemgetter(1), zip(self._places, self._messages, strict=False))
        prefetcher = reading.prefetcher
        # The source is held by this object, and by what iterates, which may outlive it.
        self._watched = Watched(
            self._source, "a scanner", prefetcher.close, lambda: prefetcher.holds
        )

    def __enter__(self) -> CombinedPartitionScanner:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[ReceivedMessage]:
        self._reading.check_failure(self._source)
        return self._messages

    def next(self) -> ReceivedMessage | None:
        """The next message; None at the end.

        Raises:
            StoreUnavailableError: HBase stayed away for ``operation_timeout_ms``.
            CorruptLogError: the log is broken where it is read.
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
        except HQueueError:
            raise
        except BaseException as exc:
            reading.failure = reading.failure or _interruption(exc)
            raise

    def arrow_batches(self) -> Iterator[pyarrow.RecordBatch]:
        """The messages as Arrow record batches of `hqueue.consume.arrow.SCHEMA`, of up to
        some megabytes.

        The bodies are not touched one by one: HBase's cells become the column as they are; but for
        a scanner ``by_id``, which merges message by message. What an iteration that is left did not
        give comes with the next one, or by `next`. Needs the extra ``hqueue[arrow]``. Raises as
        `next`.
        """
        with needing_arrow():
            from hqueue.consume import arrow  # noqa: PLC0415  (pyarrow is an extra)

        reading = self._reading
        if reading.closed or (self._places is not None and not length_hint(self._places)):
            return
        reading.check_failure(self._source)
        try:
            if self._answers is None:
                yield from self._merged_columns(arrow.record_batch_of)
                return
            columns = reading.columns(self._answers, arrow.first_of, arrow.record_batch)
            yield from columns if self._places is None else _limited(columns, self._places)
        except (HQueueError, GeneratorExit):
            raise
        except BaseException as exc:
            reading.failure = reading.failure or _interruption(exc)
            raise

    def _merged_columns(
        self, record_batch_of: Callable[[Sequence[ReceivedMessage]], pyarrow.RecordBatch]
    ) -> Iterator[pyarrow.RecordBatch]:
        while messages := _some(self._messages):
            yield record_batch_of(messages)
        self._reading.check_failure(self._source)

    @property
    def expired(self) -> int:
        """Messages that were in the log's count but had expired before they could be read."""
        return sum(reader.expired for reader in self._reading.readers)

    @property
    def skipped(self) -> int:
        """Messages that could not be read, and were passed by because an operator decided so
        (`Queue.skipped_batches`).
        """
        return sum(reader.skipped for reader in self._reading.readers)

    def positions(self) -> dict[int, MessageID]:
        """For each partition the ID from which on nothing was fetched yet.

        Once the scanner has ended, a scan from there gives what came since.
        """
        return {r.partition: MessageID.from_int(r.cursor) for r in self._reading.readers}

    def close(self) -> None:
        """End the scan and free what it holds in HBase. A follower stops waiting."""
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
    """Up to so many rows, each of which takes a place."""
    for each in columns:
        given = each.slice(0, length_hint(places))
        collections.deque(itertools.islice(places, given.num_rows), maxlen=0)
        yield given
        if not length_hint(places):
            return


def _interruption(error: BaseException | None) -> HQueueError:
    """What a scanner raises after a handler of a signal interrupted it."""
    interruption = HQueueError(
        "the scan was interrupted, and may have lost messages that were on their way: begin "
        "another one behind the last message that came"
    )
    interruption.__cause__ = error
    return interruption


class PartitionScanner(CombinedPartitionScanner):
    """Reads one partition, as a `CombinedPartitionScanner`. Made by `Queue.partition_scanner`."""

    def __init__(
        self, reader: QueueReader, partition: int, scan: Scan, **options: Unpack[ScannerOptions]
    ) -> None:
        number = check_partition(partition, reader.partitions)
        super().__init__(reader, {number: scan}, **options)


class QueueScanner(CombinedPartitionScanner):
    """Reads all partitions, as a `CombinedPartitionScanner`. Made by `Queue.queue_scanner`."""

    def __init__(self, reader: QueueReader, scan: Scan, **options: Unpack[ScannerOptions]) -> None:
        super().__init__(reader, dict.fromkeys(range(reader.partitions), scan), **options)


def open_scanner(
    reader: QueueReader, partition: int | None, scan: Scan, **options: Unpack[ScannerOptions]
) -> PartitionScanner | QueueScanner:
    """A scanner over one partition, or over all if it is None.

    Raises:
        InvalidInputError: an option is unknown or out of range, or there is no such partition.
    """
    if partition is None:
        return QueueScanner(reader, scan, **options)
    return PartitionScanner(reader, partition, scan, **options)

"""Behind a scanner: reads, and gives each message once, one by one or in record batches."""

from __future__ import annotations

import collections
import dataclasses
import heapq
import itertools
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from operator import attrgetter
from types import GeneratorType
from typing import TYPE_CHECKING, Any, TypeVar

from hqueue.consume.decode import each_message_of, messages_and_ids_of
from hqueue.consume.prefetch import Prefetcher
from hqueue.consume.queue_reader import QueueReader
from hqueue.errors import ClosedError, HQueueError, Outcome
from hqueue.log import Batch, PartitionReader
from hqueue.message import ReceivedMessage
from hqueue.message_id import MessageID
from hqueue.runtime.fork import register
from hqueue.runtime.held import if_free
from hqueue.runtime.interrupts import is_own

if TYPE_CHECKING:
    import pyarrow

__all__ = ["ScanReading", "interrupted_scan"]

Result = TypeVar("Result")


class ScanReading:
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
        merge_sorted: bool,
    ) -> None:
        self._reader = reader
        self.prefetcher = Prefetcher(readers, reader)
        self.readers = self.prefetcher.readers
        self._request_bytes_max = request_bytes_max
        self._follow = follow
        self._idle_ms_max = idle_ms_max
        self._merge_sorted = merge_sorted
        self.closed = False
        self.failure: HQueueError | None = None
        self.lock = threading.Lock()
        self.interrupted = False
        """Whether a thread was reading at the fork."""
        self._ends = 0
        """How many of what it reads by have come to their ends."""
        self._left: collections.deque[Batch] = collections.deque()
        """What came, and was not given."""
        self._begun: tuple[Batch, Iterator[ReceivedMessage], Iterator[MessageID]] | None = None
        """The batch that is given message by message, and what is left of it, with the IDs."""
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
            messages, ids = self.noted(messages_and_ids_of, left[0])
            self._begun = left.popleft(), messages, ids
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
        """Let the rest of a begun batch be given in any way. Returns whether there is a rest."""
        if self._begun is not None:
            batch, messages, ids = self._begun
            following = next(messages, None)
            if following is None and next(ids, None) is not None:
                self.failure = interrupted_scan(None)
                raise self.failure
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
        except BaseException as exc:
            self.failure = exc if is_own(exc) else self.failure or interrupted_scan(exc)
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
                "the process was forked while a thread was reading: open another scanner"
            )
        ended = self._ends >= (len(self.readers) if self._merge_sorted else 1)
        if (
            self.failure is None
            and not ended
            and isinstance(source, GeneratorType)
            and source.gi_frame is None
        ):
            # A generator that was interrupted has ended: it gives no more, as if the log had ended.
            self.failure = None if self.closed else interrupted_scan(None)
        if self.failure is not None:
            raise self.failure


def interrupted_scan(error: BaseException | None) -> HQueueError:
    """What a scanner raises after a handler of a signal interrupted it."""
    interruption = HQueueError(
        "the scan was interrupted and may have lost messages: open another scanner after the "
        "last message that it returned",
        outcome=Outcome.NOT_APPLIED,
    )
    interruption.__cause__ = error
    return interruption

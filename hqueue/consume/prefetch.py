"""Prefetching: while some batches are used, the next ones are on their way."""

from __future__ import annotations

import collections
import dataclasses
import threading
from collections.abc import Callable, Sequence

from hqueue.consume.fetcher import Fetch, Fetcher, Pace
from hqueue.log import Batch, PartitionReader
from hqueue.runtime.clock import Deadline
from hqueue.runtime.fork import register
from hqueue.runtime.threads import try_start
from hqueue.runtime.waiting import InterruptibleFuture

__all__ = ["PREFETCH_REQUESTS", "Prefetcher"]

PREFETCH_REQUESTS = 4
"""What is on its way beside what is used. One request at a time keeps a gateway, a region server
and this process waiting for each other, so that most of a second core stays idle; two still left a
fifth of both."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Request:
    """What a reader was asked for, and where it stood before."""

    fetch: Fetch[PartitionReader]
    cursor: int
    expired: int
    batches: InterruptibleFuture[list[Batch]]


class Prefetcher:
    """Gives the batches of some partitions up to their ends, one answer at a time.

    The answers of a partition come in order, those of several partitions in turns. A reader has
    one request under way, in a thread that ends with it: so nothing is left to be ended when this
    object is forgotten. In a forked child what the parent had asked for is asked for again.

    One thread takes the answers; any may close.

    Args:
        readers: of different partitions; nobody else reads with them. In a forked child some are
            replaced in `readers`.
        deadline: makes the bound on one request with its repetitions.
    """

    def __init__(
        self, readers: Sequence[PartitionReader], deadline: Callable[[], Deadline]
    ) -> None:
        self.readers = list(readers)
        self._deadline = deadline
        self._fetcher = Fetcher(Fetch(reader, Pace(), 0.0) for reader in self.readers)
        self._asked: collections.deque[_Request] = collections.deque()
        self._busy: set[PartitionReader] = set()
        self._lock = threading.Lock()
        self._forked = False
        self._closed = False
        register(self)

    def after_fork_in_child(self) -> None:
        self._lock = threading.Lock()
        self._busy.clear()
        self._forked = True

    def __iter__(self) -> Prefetcher:
        return self

    def __next__(self) -> list[Batch]:
        """The batches of the next answer, when it is there.

        Raises:
            StopIteration: all partitions are at their ends, or this object was closed.
            HQueueError: as `PartitionReader.read`; that partition is not read any further.
        """
        while not self._closed:
            if self._forked:
                self._ask_again()
            self._ask()
            if not self._asked:
                break
            request = self._asked.popleft()
            batches = request.batches.result()
            if not request.fetch.reader.at_tail:
                self._fetcher.want(request.fetch)
            self._ask()
            if batches:
                return batches
        raise StopIteration

    @property
    def holds(self) -> bool:
        """Whether something is held in the store, or on its way. Takes no lock."""
        return bool(self._busy) or any(reader.holds for reader in self.readers)

    def close(self) -> None:
        """Free what is held in the store. What is on its way is freed when it has come."""
        with self._lock:
            self._closed = True
            for reader in filter(lambda reader: reader not in self._busy, self.readers):
                reader.release()

    def _ask(self) -> None:
        while len(self._asked) < PREFETCH_REQUESTS:
            fetch = self._fetcher.take_first(0.0)
            if fetch is None:
                return
            reader = fetch.reader
            request = _Request(fetch, reader.cursor, reader.expired, InterruptibleFuture())
            with self._lock:
                if self._closed:
                    return
                self._busy.add(reader)
            self._asked.append(request)
            name = f"hqueue-scan-{reader.partition}"
            if try_start(self._read, request, name=name) is None:
                self._read(request)

    def _read(self, request: _Request) -> None:
        reader = request.fetch.reader
        batches: list[Batch] = []
        error: BaseException | None = None
        try:
            batches = reader.read(self._deadline())
        except BaseException as exc:  # Whatever it is, the taker must learn it.
            error = exc
        with self._lock:
            self._busy.discard(reader)
            if self._closed:
                reader.release()
        if error is None:
            request.batches.set_result(batches)
        else:
            request.batches.set_exception(error)

    def _ask_again(self) -> None:
        """Give up what the parent's threads read, and the readers that they were reading with."""
        self._forked = False
        for request in reversed(self._asked):
            fetch = request.fetch
            reader = fetch.reader.reopened(request.cursor, request.expired)
            self.readers[self.readers.index(fetch.reader)] = reader
            fetch.reader = reader
            self._fetcher.want(fetch)
        self._asked.clear()

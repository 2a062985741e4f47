"""Prefetching: while some batches are used, the next ones are on their way."""

from __future__ import annotations

import collections
import dataclasses
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from functools import partial
from itertools import filterfalse

from hqueue.consume.fetcher import Fetch, Fetcher, Pace
from hqueue.consume.queue_reader import QueueReader
from hqueue.log import Batch, PartitionReader
from hqueue.log.steps import Work
from hqueue.runtime.clock import Deadline
from hqueue.runtime.fork import register
from hqueue.runtime.loop import LoopThread, background
from hqueue.runtime.waiting import InterruptibleFuture, wait_for_all

__all__ = ["PREFETCH_REQUESTS", "Prefetcher"]

PREFETCH_REQUESTS = 4
"""What is on its way beside what is used. One request at a time keeps a gateway, a region server
and this process waiting for each other, so that most of a second core stays idle; two still left a
fifth of both."""

FREE_S = 10.0
"""How long it is waited for until what is held in the store is freed."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Request:
    """What a reader was asked for, and where it stood before."""

    fetch: Fetch[PartitionReader]
    cursor: int
    expired: int
    batches: Future[list[Batch]]


class Prefetcher:
    """Gives the batches of some partitions up to their ends, one answer at a time.

    The answers of a partition come in order, those of several partitions in turns. A reader has
    one request under way, which a task of the process's loop makes: so nothing is left to be ended
    when this object is forgotten. Where there is no loop the taker makes it. In a forked child what
    the parent had asked for is asked for again.

    One thread takes the answers; any may close.

    Args:
        readers: of different partitions; nobody else reads with them. In a forked child some are
            replaced in `readers`.
        queue: the reader of their queue.
    """

    def __init__(self, readers: Sequence[PartitionReader], queue: QueueReader) -> None:
        self.readers = list(readers)
        self._queue = queue
        self._loop: LoopThread | None = None
        """What reads: from the first request on, and for good."""
        self._fetcher = Fetcher(Fetch(reader, Pace(), 0.0) for reader in self.readers)
        self._asked: collections.deque[_Request] = collections.deque()
        self._busy: set[PartitionReader] = set()
        self._lock = threading.RLock()
        self._begun = self._forked = False
        self._closed = False
        register(self)

    def after_fork_in_child(self) -> None:
        self._lock = threading.RLock()
        self._busy.clear()
        self._begun, self._forked = False, True

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
                self._fetcher.request(request.fetch)
            self._ask()
            if batches:
                return batches
        raise StopIteration

    @property
    def asks(self) -> bool:
        """Whether a request is under way."""
        return bool(self._busy)

    @property
    def holds(self) -> bool:
        """Whether something is held in the store, or on its way. Takes no lock."""
        return bool(self._busy) or any(reader.holds for reader in self.readers)

    def close(self) -> None:
        """Free what is held in the store. What is on its way is freed when it has come."""
        with self._lock:
            self._closed = True
            unused = list(filterfalse(self._busy.__contains__, self.readers))
        if self._loop is None:
            for reader in unused:
                reader.release()
        elif self._begun:  # Else what is held is the parent process's, and so is the loop.
            work = self._queue.in_loop.release
            held = [self._loop.start(work, each.steps) for each in unused if each.holds]
            wait_for_all(held, FREE_S)

    def _ask(self) -> None:
        while len(self._asked) < PREFETCH_REQUESTS:
            fetch = self._fetcher.take_first(0.0)
            if fetch is None:
                return
            reader = fetch.reader
            with self._lock:
                if self._closed:
                    return
                self._busy.add(reader)
            if not self._begun:
                self._loop, self._begun = background(), True
            cursor, expired = reader.cursor, reader.expired
            self._asked.append(_Request(fetch, cursor, expired, self._begin(reader)))

    def _begin(self, reader: PartitionReader) -> Future[list[Batch]]:
        work = partial(self._read, reader)
        if self._loop is not None:
            return self._loop.start(self._queue.in_loop.do, work)
        batches: Future[list[Batch]] = InterruptibleFuture()
        try:
            batches.set_result(self._queue.do(work))
        except BaseException as exc:  # Whatever it is, the taker must learn it.
            batches.set_exception(exc)
        return batches

    def _read(self, reader: PartitionReader, deadline: Deadline) -> Work[list[Batch]]:
        try:
            return (yield from reader.steps.read(deadline))
        finally:
            with self._lock:
                self._busy.discard(reader)
            if self._closed:
                yield from reader.steps.release()

    def _ask_again(self) -> None:
        """Give up what the parent's loop reads, and the readers that they were reading with."""
        self._forked = False
        for request in reversed(self._asked):
            fetch = request.fetch
            reader = fetch.reader.reopened(request.cursor, request.expired)
            self.readers[self.readers.index(fetch.reader)] = reader
            fetch.reader = reader
            self._fetcher.request(fetch)
        self._asked.clear()

"""Reading ahead: while some batches are used, the next ones are on their way."""

from __future__ import annotations

import collections
import concurrent.futures
import dataclasses
import threading
from collections.abc import Callable, Sequence

from hqueue.clock import Deadline
from hqueue.fork import register
from hqueue.log import Batch, PartitionReader

__all__ = ["REQUESTS_AHEAD", "ReadAhead"]

REQUESTS_AHEAD = 4
"""What is on its way beside what is used. One request at a time keeps a gateway, a region server
and this process waiting for each other, so that most of a second core stays idle; two still left a
fifth of both."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Portion:
    """What a reader was asked for, and where it stood before."""

    reader: PartitionReader
    cursor: int
    expired: int
    batches: concurrent.futures.Future[list[Batch]]


class ReadAhead:
    """Gives the batches of some partitions up to their ends, a portion at a time.

    The portions of a partition come in order, those of several partitions in turns. A reader asks
    for one portion at a time, in a thread that ends with it: so nothing is left to be ended when
    this object is forgotten. In a forked child what the parent had asked for is asked for again.

    One thread takes the portions; any may close.

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
        self._waiting = collections.deque(self.readers)
        self._asked: collections.deque[_Portion] = collections.deque()
        self._busy: set[PartitionReader] = set()
        self._lock = threading.Lock()
        self._forked = False
        self._closed = False
        register(self)

    def after_fork_in_child(self) -> None:
        self._lock = threading.Lock()
        self._busy.clear()
        self._forked = True

    def __iter__(self) -> ReadAhead:
        return self

    def __next__(self) -> list[Batch]:
        """The next portion, when it is there.

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
            portion = self._asked.popleft()
            batches = portion.batches.result()
            if not portion.reader.at_tail:
                self._waiting.appendleft(portion.reader)
            self._ask()
            if batches:
                return batches
        raise StopIteration

    def close(self) -> None:
        """Free what is held in the store. What is on its way is freed when it has come."""
        with self._lock:
            self._closed = True
            for reader in self.readers:
                if reader not in self._busy:
                    reader.rest()

    def _ask(self) -> None:
        while self._waiting and len(self._asked) < REQUESTS_AHEAD:
            reader = self._waiting.popleft()
            portion = _Portion(reader, reader.cursor, reader.expired, concurrent.futures.Future())
            with self._lock:
                if self._closed:
                    return
                self._busy.add(reader)
            self._asked.append(portion)
            name = f"hqueue-scan-{reader.partition}"
            threading.Thread(target=self._read, args=(portion,), name=name, daemon=True).start()

    def _read(self, portion: _Portion) -> None:
        reader = portion.reader
        batches: list[Batch] = []
        error: BaseException | None = None
        try:
            batches = reader.read(self._deadline())
        except BaseException as exc:  # Whatever it is, the taker must learn it.
            error = exc
        with self._lock:
            self._busy.discard(reader)
            if self._closed:
                reader.rest()
        if error is None:
            portion.batches.set_result(batches)
        else:
            portion.batches.set_exception(error)

    def _ask_again(self) -> None:
        """Give up what the parent's threads read, and the readers that they were reading with."""
        self._forked = False
        for portion in reversed(self._asked):
            reader = portion.reader.anew(portion.cursor, portion.expired)
            self.readers[self.readers.index(portion.reader)] = reader
            self._waiting.appendleft(reader)
        self._asked.clear()

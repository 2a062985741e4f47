"""What comes next in some partitions: which of them to ask for and when, and what an answer means.

A reader is behind, or at its partition's tail, where the row of the next batch is known:

    behind ── read to the end ──▶ at the tail ── nothing came ──▶ asked for after a pause that grows
      ▲                             │    │
      │                             │    └── a batch came: asked for again soon; after some in a
      └── more than was asked for, ─┘        row for several at a time
          or the log goes on elsewhere

Who asks, in which thread or loop, and what becomes of the batches, is for the driver to say: here
is no thread, no clock and no store. Time is passed in.
"""

from __future__ import annotations

import dataclasses
import math
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Generic, Protocol, TypeVar

from hqueue.errors import HQueueError, QueueStateError
from hqueue.log import Batch, PartitionReader
from hqueue.runtime.backoff import Backoff
from hqueue.runtime.clock import Deadline

__all__ = [
    "SEVERAL_ROWS",
    "Fetch",
    "Fetcher",
    "Pace",
    "Poll",
    "fetch_once",
    "to_check",
    "together",
]

SEVERAL_ROWS = 100
HITS_TO_SEVERAL = 4
"""After this many answers with a batch, one after another, several are asked for at a time: that
takes two requests, and is worth it where several come."""
HITS_UNTIL_NEXT_TRY = 16
GOLDEN_RATIO = 0.618

Poll = Callable[[Sequence[PartitionReader], int], Iterator[list[Batch]]]
"""Asks once for up to this many next batches of each of some readers, like `hqueue.Queue.poll`."""


NO_PAUSE = Backoff(0.0, 0.0)


@dataclasses.dataclass(frozen=True, slots=True)
class Pace:
    """How often to poll a partition's tail; by default without a pause.

    Args:
        idle: the pauses after answers without a batch.
        failed: the pauses after errors.
        after_batch_ms: the pause after an answer with a batch.
        check_every_ms: how often to check the end of the log itself while no batch comes, in case
            the log continues elsewhere.
        gather_share: when one partition is polled, others that are due within this share of their
            own pause are polled together with it, in fewer requests.
    """

    idle: Backoff = NO_PAUSE
    failed: Backoff = NO_PAUSE
    after_batch_ms: float = 0.0
    check_every_ms: float = 0.0
    gather_share: float = 0.0


class Placed(Protocol):
    """A reader, or a cursor: where it stands."""

    @property
    def partition(self) -> int: ...

    @property
    def next_slot(self) -> tuple[int, int]: ...

    @property
    def at_tail(self) -> bool: ...


ReaderT = TypeVar("ReaderT", bound=Placed)


class Fetch(Generic[ReaderT]):
    """The state of polling one partition.

    Args:
        reader: the partition's reader. Nothing else may use it during a poll.
        pace: how often to poll. It may be replaced.
        now_ms: the present time.
    """

    __slots__ = (
        "_slot", "came", "check", "checked_ms", "due_ms", "hits", "pace", "pause_ms", "reader",
        "several",
    )  # fmt: skip

    def __init__(self, reader: ReaderT, pace: Pace, now_ms: float) -> None:
        self.reader = reader
        self.pace = pace
        self.due_ms = now_ms
        """When it is time to ask for it. A driver that knows better may change it."""
        self.pause_ms = 0.0
        """The pause after the last answer."""
        self.hits = 0
        """Answers with a batch, one after another; less than none where asking for several brought
        one."""
        # The checks of many spread over the time between two of one.
        self.checked_ms = now_ms - pace.check_every_ms * (reader.partition * GOLDEN_RATIO % 1)
        self._slot = reader.next_slot
        """Where the reader stood when it was asked for last."""
        self.check = False
        """Whether to look at the end of the log itself, too."""
        self.several = False
        """Whether to ask for more than one batch: they come in quick succession."""
        self.came = 0
        """Batches that came since it was asked for last."""

    @property
    def advanced(self) -> bool:
        """Whether the reader has moved since the last poll."""
        return self.reader.next_slot != self._slot

    def begin(self, now_ms: float) -> None:
        """Note that a poll of this partition begins now."""
        self._slot, self.came = self.reader.next_slot, 0
        self.check = now_ms - self.checked_ms >= self.pace.check_every_ms
        self.several = self.hits >= HITS_TO_SEVERAL

    def answered(self, now_ms: float, error: HQueueError | None = None) -> bool:
        """Note the answer of a poll. Returns whether the answer had a batch, or showed that there
        is more to read.

        Args:
            now_ms: the present time.
            error: the error that ended the poll, if any. Batches that came before it count.
        """
        moved = self.advanced or not self.reader.at_tail
        self.pause_ms = self._pause_ms(moved, error)
        self.due_ms = now_ms + self.pause_ms
        if not self.advanced:
            self.hits = min(self.hits, 0)
        elif self.several and self.came <= 1:
            self.hits = HITS_TO_SEVERAL - HITS_UNTIL_NEXT_TRY
        else:
            self.hits = min(self.hits + 1, HITS_TO_SEVERAL)
        if isinstance(error, QueueStateError):
            self.checked_ms = -math.inf  # It may be a truncation.
        elif error is None and (self.check or self.advanced):
            self.checked_ms = now_ms
        return moved

    def _pause_ms(self, moved: bool, error: HQueueError | None) -> float:
        if error is not None:
            return self.pace.failed.longer(self.pause_ms)
        if moved:
            return self.pace.after_batch_ms
        return self.pace.idle.longer(self.pause_ms)


FetchT = TypeVar("FetchT", bound=Fetch[Any])


class Fetcher(Generic[FetchT]):
    """Schedules the polls of partitions. Used by one thread.

    After a partition was taken, it is not scheduled until its driver calls `request` again.

    Args:
        fetches: the partitions to poll, in the order of their first polls.
    """

    def __init__(self, fetches: Iterable[FetchT] = ()) -> None:
        self._waiting = OrderedDict.fromkeys(fetches)
        self.next_due_ms = min((each.due_ms for each in self._waiting), default=math.inf)
        """Nothing is due before."""

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, fetch: FetchT) -> bool:
        return fetch in self._waiting

    def request(self, fetch: FetchT) -> None:
        """Schedule a poll of this partition when it is due. A partition whose reader is behind goes
        first.
        """
        self._waiting[fetch] = None
        if not fetch.reader.at_tail:
            self._waiting.move_to_end(fetch, last=False)
        self.next_due_ms = min(self.next_due_ms, fetch.due_ms)

    def drop(self, fetch: FetchT) -> None:
        """Stop polling this partition."""
        self._waiting.pop(fetch, None)

    def take(self, fetch: FetchT, now_ms: float) -> None:
        """Take this partition to poll now, whether or not it is due."""
        del self._waiting[fetch]
        fetch.begin(now_ms)

    def take_first(self, now_ms: float) -> FetchT | None:
        """Take the first scheduled partition to poll now, whether or not it is due."""
        fetch = next(iter(self._waiting), None)
        if fetch is not None:
            self.take(fetch, now_ms)
        return fetch

    def take_due(self, now_ms: float) -> list[FetchT]:
        """Take the partitions that are due, and the partitions to poll together with them."""
        if now_ms < self.next_due_ms:
            return []
        due: list[FetchT] = []
        if any(each.due_ms <= now_ms for each in self._waiting):
            due += (
                each
                for each in self._waiting
                if each.due_ms <= now_ms + each.pace.gather_share * each.pause_ms
            )
        for each in due:
            self.take(each, now_ms)
        self.next_due_ms = min((each.due_ms for each in self._waiting), default=math.inf)
        return due


def fetch_once(
    fetches: Sequence[Fetch[PartitionReader]], poll: Poll, deadline: Callable[[], Deadline]
) -> Iterator[list[Batch]]:
    """Poll the tails of these partitions once, as each `Fetch` says.

    Readers that are behind are left out, even if this shows only during the poll.

    Raises:
        HQueueError: as `poll`. Batches that were returned before the error stay valid, and the
            readers stand after them.
    """
    for reader in to_check(fetches):
        reader.check_tail(deadline())
    for asked in together(fetches):
        for batches in poll(asked.readers, asked.rows_max):
            asked.note(batches)
            yield batches


def to_check(fetches: Iterable[Fetch[ReaderT]]) -> Iterator[ReaderT]:
    """The readers that must look at their log's end themselves, before the others are asked for."""
    return (each.reader for each in fetches if each.check and each.reader.at_tail)


class Asked(Generic[ReaderT]):
    """Some partitions' tails that are asked for together, for up to this many batches of each."""

    def __init__(self, fetches: Iterable[Fetch[ReaderT]], rows_max: int) -> None:
        self._fetches = {each.reader.partition: each for each in fetches}
        self.readers = [each.reader for each in self._fetches.values()]
        self.rows_max = rows_max

    def note(self, batches: Iterable[Batch]) -> None:
        """These came."""
        for batch in batches:
            self._fetches[batch.partition].came += 1


def together(fetches: Sequence[Fetch[ReaderT]]) -> Iterator[Asked[ReaderT]]:
    """What is asked for now, one after the other: those whose readers are not behind."""
    for several in (False, True):
        asked = [each for each in fetches if each.reader.at_tail and each.several is several]
        if asked:
            yield Asked(asked, SEVERAL_ROWS if several else 1)

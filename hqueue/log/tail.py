"""The end of a partition's chain, as far as a writer knows it."""

from __future__ import annotations

from typing import NamedTuple

from hqueue.errors import Outcome, StoreUnavailableError
from hqueue.format.header import Header
from hqueue.log.ports import Row, header_of
from hqueue.log.steps import Newest, Work
from hqueue.runtime.clock import Clock, Deadline
from hqueue.settings.limits import MESSAGE_ID_MAX, TAIL_TRUST_MS

__all__ = ["LogPosition", "TailCache"]

READS_MAX = 3


class LogPosition(NamedTuple):
    """A position in the chain between two batches: the slot of the next one, and its ordinal."""

    slot: int
    ordinal: int

    @classmethod
    def before(cls, row: Row) -> LogPosition:
        """Where the batch in this row went.

        Raises:
            CorruptLogError: its header can't be read.
        """
        return cls(row.slot, header_of(row).ordinal)

    @classmethod
    def after(cls, header: Header) -> LogPosition:
        """Where the batch after this one goes."""
        return cls(header.end, header.next_ordinal)


class TailCache:
    """Where the next batch goes, and since when that is known. Not thread-safe.

    Knowledge is trusted for ``TAIL_TRUST_MS``: what is older could be of a log that was truncated,
    or whose end was collected.

    Args:
        partition: the partition.
        clock: where time comes from.
    """

    def __init__(self, partition: int, clock: Clock) -> None:
        self._partition = partition
        self._clock = clock
        self._position: LogPosition | None = None
        self.seen_ms = 0.0
        """When the store was asked for what is known."""

    def update(self, position: LogPosition, seen_ms: float) -> None:
        """Take in where the chain ends."""
        self._position, self.seen_ms = position, seen_ms

    def invalidate(self) -> None:
        """Read it again before the next use."""
        self._position = None

    def trusted(self, deadline: Deadline) -> Work[LogPosition]:
        """What is known, if it is fresh, else what is read now."""
        return self.known() or (yield from self.fresh(deadline))

    def known(self) -> LogPosition | None:
        """What is known, if it is fresh."""
        if self._position is not None and self._is_fresh():
            return self._position
        return None

    def fresh(self, deadline: Deadline) -> Work[LogPosition]:
        """Read it; again, when the answer was so slow that it is old already.

        A store that is always so slow is written to nevertheless: an append is checked to be a
        link of the chain then.
        """
        for _ in range(READS_MAX):
            position = yield from deadline.insist(self._read)
            if self._is_fresh():
                break
            if deadline.expired:
                raise StoreUnavailableError(
                    "the answer about the log's end came too late",
                    outcome=Outcome.NOT_APPLIED,
                    partition=self._partition,
                )
        return position

    def _read(self) -> Work[LogPosition]:
        asked_ms = self._clock.monotonic_ms()
        row: Row | None = yield Newest(self._partition, MESSAGE_ID_MAX)
        position = LogPosition(0, 0)
        if row is not None:
            position = LogPosition.after(header_of(row))
        self.update(position, asked_ms)
        return position

    def _is_fresh(self) -> bool:
        return self._clock.monotonic_ms() - self.seen_ms <= TAIL_TRUST_MS

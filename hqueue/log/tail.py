"""The end of a partition's chain, as far as a writer knows it."""

from __future__ import annotations

from typing import NamedTuple

from hqueue.batch import Header, decode_header
from hqueue.clock import Clock, Deadline
from hqueue.errors import StoreUnavailableError
from hqueue.limits import MESSAGE_ID_MAX, TAIL_TRUST_MS
from hqueue.ports import HeaderPort

__all__ = ["Place", "Tail"]

READS_MAX = 3


class Place(NamedTuple):
    """A place in the chain between two batches: the slot of the next one, and its ordinal."""

    slot: int
    ordinal: int

    @classmethod
    def after(cls, header: Header) -> Place:
        """Where the batch after this one goes."""
        return cls(header.end, header.next_ordinal)


class Tail:
    """Where the next batch goes, and since when that is known. Not thread-safe.

    Knowledge is trusted for ``TAIL_TRUST_MS``: what is older could be of a log that was truncated,
    or whose end was collected.

    Args:
        partition: the partition.
        port: the store.
        clock: where time comes from.
    """

    def __init__(self, partition: int, port: HeaderPort, clock: Clock) -> None:
        self._partition = partition
        self._port = port
        self._clock = clock
        self._place: Place | None = None
        self.seen_ms = 0.0
        """When the store was asked for what is known."""

    def know(self, place: Place, seen_ms: float) -> None:
        """Note where the chain ends."""
        self._place, self.seen_ms = place, seen_ms

    def forget(self) -> None:
        """Read it again before the next use."""
        self._place = None

    def trusted(self, deadline: Deadline) -> Place:
        """What is known, if it is fresh, else what is read now."""
        if self._place is not None and self._is_fresh():
            return self._place
        return self.fresh(deadline)

    def fresh(self, deadline: Deadline) -> Place:
        """Read it; again, when the answer was so slow that it is old already.

        A store that is always so slow is written to nevertheless: an append is checked to be a
        link of the chain then.
        """
        for _ in range(READS_MAX):
            place = self.read(deadline)
            if self._is_fresh():
                break
            if deadline.expired:
                raise StoreUnavailableError(
                    "the end of the log was learned too late", partition=self._partition
                )
        return place

    def read(self, deadline: Deadline) -> Place:
        """Read it."""
        return deadline.run(self._read)

    def _read(self) -> Place:
        asked_ms = self._clock.monotonic_ms()
        row = self._port.newest(self._partition, MESSAGE_ID_MAX)
        place = Place(0, 0)
        if row is not None:
            place = Place.after(decode_header(row.key, row.header or b""))
        self.know(place, asked_ms)
        return place

    def _is_fresh(self) -> bool:
        return self._clock.monotonic_ms() - self.seen_ms <= TAIL_TRUST_MS

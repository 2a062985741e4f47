"""What a writer has seen of the chain: enough to know a batch that is put again."""

from __future__ import annotations

import dataclasses
import struct

from hqueue.errors import CorruptLogError, IdempotencyKeyTooOldError, Outcome, StoreUnavailableError
from hqueue.format import rowkey
from hqueue.format.header import Bodies
from hqueue.log.ports import Row
from hqueue.log.steps import Headers, Newest, Work
from hqueue.log.tail import LogPosition
from hqueue.log.walk import WALKED_HEADERS, BrokenOffError, HeaderWalk
from hqueue.runtime.clock import Deadline

__all__ = ["History", "SeenBatch"]

REMEMBERED_MAX = 1 << 18
"""Headers remembered: 6 MiB. What is older is read again if it is asked for."""
BEGINNINGS_MAX = 3

_RECORD = struct.Struct(">8sQII")


@dataclasses.dataclass(frozen=True, slots=True)
class SeenBatch:
    """A batch whose header was seen."""

    base: int
    count: int
    fingerprint: int


class History:
    """Every header of one unbroken part of the chain, up to `end`. Not thread-safe.

    It grows by what is walked and by what its owner appends at its end, so a stream of appends
    reads each header of the others once, and those of its own never.

    Args:
        partition: the partition.
    """

    def __init__(self, partition: int, remembered_max: int = REMEMBERED_MAX) -> None:
        self._remembered_max = remembered_max
        self._partition = partition
        self._records = bytearray()
        self._first: int | None = None
        self._from_oldest = False
        self._lacks: tuple[bytes, int | None] | None = None
        """A nonce that no header from this `since` to `end` has, also of those forgotten again."""
        self._walk = HeaderWalk(partition, LogPosition(0, 0))

    @property
    def end(self) -> LogPosition:
        """The position behind the last header that was seen."""
        return self._walk.end

    def find(
        self, nonce: bytes, since: int | None, tail: LogPosition, deadline: Deadline
    ) -> Work[SeenBatch | None]:
        """The batch with this nonce; None if no header from `since` to `end` has it.

        Args:
            nonce: the nonce.
            since: an ID; batches that end before it are not looked at. If None, the search
                begins at the oldest header.
            tail: where the log is known to end: nothing is read when `end` is there.
            deadline: the bound. What was walked is remembered for the next time.

        Raises:
            IdempotencyKeyTooOldError: headers after `since` were deleted.
            CorruptLogError: the chain is broken.
            StoreUnavailableError: the deadline passed.
        """
        for _ in range(BEGINNINGS_MAX):
            try:
                found = None
                if self._lacks != (nonce, since):
                    if not self._covers(since):
                        yield from self._begin(since, deadline)
                    found = self._remembered(nonce)
                    self._lacks = (nonce, since) if found is None else None
                if self.end != tail:
                    # Also if it was found: it counts while the log goes on from what was seen.
                    found = (yield from self._go_on(nonce, deadline)) or found
                return found
            except BrokenOffError:
                self._first = self._lacks = None  # It was truncated, or collected up to here.
        raise CorruptLogError(
            "the log does not continue after this row",
            row=rowkey.encode(self._partition, self.end.slot).hex(),
        )

    def note(self, position: LogPosition, nonce: bytes, base: int, bodies: Bodies) -> None:
        """Take in a batch that was appended at a position, if that is the end."""
        if self._first is not None and position == self.end:
            self._remember(nonce, SeenBatch(base, bodies.count, bodies.fingerprint))
            self._walk.end = LogPosition(base + bodies.span, position.ordinal + bodies.count)

    def _covers(self, since: int | None) -> bool:
        if self._first is None or since is None:
            return self._first is not None and self._from_oldest
        return self._first <= since

    def _begin(self, since: int | None, deadline: Deadline) -> Work[None]:
        """Forget what was seen, and begin with the batch that covers `since`."""
        row = yield from deadline.insist(lambda: self._row_at(since))
        begin = LogPosition(0, 0) if row is None else LogPosition.before(row)
        self._walk = HeaderWalk(self._partition, begin)
        self._first, self._from_oldest = begin.slot, since is None or begin.slot == 0
        self._records.clear()

    def _row_at(self, since: int | None) -> Work[Row | None]:
        if since is not None:
            row: Row | None = yield Newest(self._partition, since)
            if row is not None:
                return row
        oldest: list[Row] = yield Headers(self._partition, 0, 1)
        if oldest and oldest[0].slot and since is not None:
            raise IdempotencyKeyTooOldError(
                "the headers at the start of the search for the idempotency key were deleted, so "
                "it is unknown whether the batch was put",
                partition=self._partition,
                since=since,
            )
        return oldest[0] if oldest else None

    def _go_on(self, nonce: bytes, deadline: Deadline) -> Work[SeenBatch | None]:
        """Look at every header from `end` on, up to a page with a header that has the nonce."""
        while True:
            found = None
            page = yield from deadline.insist(self._walk.page)
            for _, header in page:
                seen = SeenBatch(header.base, header.count, header.fingerprint)
                self._remember(header.nonce, seen)
                if header.nonce == nonce and found is None:
                    found = seen
            if found is not None or len(page) < WALKED_HEADERS:
                return found
            if deadline.expired:
                raise StoreUnavailableError(
                    "the log was not searched to its end in time; try again: the search goes on "
                    "from where it stopped",
                    outcome=Outcome.NOT_APPLIED,
                    partition=self._partition,
                )

    def _remembered(self, nonce: bytes) -> SeenBatch | None:
        at = self._records.find(nonce)
        while at % _RECORD.size and at >= 0:
            at = self._records.find(nonce, at + 1)
        if at < 0:
            return None
        return SeenBatch(*_RECORD.unpack_from(self._records, at)[1:])

    def _remember(self, nonce: bytes, batch: SeenBatch) -> None:
        if self._lacks is not None and self._lacks[0] == nonce:
            self._lacks = None
        self._records += _RECORD.pack(nonce, batch.base, batch.count, batch.fingerprint)
        if len(self._records) >= self._remembered_max * _RECORD.size:
            del self._records[: len(self._records) // (2 * _RECORD.size) * _RECORD.size]
            self._first, self._from_oldest = _RECORD.unpack_from(self._records)[1], False

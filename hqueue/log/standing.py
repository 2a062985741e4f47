"""Where a cursor stands in a partition, and what it makes of the rows there: it asks nothing."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
from collections.abc import Collection, Sequence
from functools import partial

from hqueue.errors import CorruptLogError
from hqueue.format.control import owners_of
from hqueue.format.header import CONTROL, Header, TopicEntry
from hqueue.log.decoding import are_much
from hqueue.log.ports import Row, header_of
from hqueue.log.skipping import (
    NO_DECISIONS,
    HeldUpError,
    SkipDecisions,
    Skips,
    UnreadableError,
    missing,
    readable,
)
from hqueue.log.steps import Work
from hqueue.runtime.clock import SYSTEM_CLOCK, Clock
from hqueue.runtime.loop import computing, is_much
from hqueue.settings.limits import MESSAGE_ID_MAX

__all__ = ["Batch", "CursorPosition", "GapError", "Standing", "accept_ahead"]

HERE_BYTES = 4 * 1024 * 1024
"""What is decompressed and compared in a loop, at most: in three milliseconds. Most answers of a
scan have no more, and to hand one of those to a thread would cost a twentieth of all that is done
with it."""


@dataclasses.dataclass(frozen=True, slots=True)
class Batch:
    """A batch that was read and checked: some or all of its topics' cells, decompressed.

    The reader selected its messages with IDs in ``[start, stop)``.
    """

    partition: int
    key: bytes
    header: Header
    cells: tuple[tuple[TopicEntry, bytes], ...]
    start: int
    stop: int
    skips: Skips = dataclasses.field(default_factory=Skips, compare=False, repr=False)
    """Decides whether to skip cells with malformed content."""


CursorPosition = tuple[int | None, int | None, int, int]
"""Where a cursor stands."""


class GapError(HeldUpError):
    """A row lies after a gap."""

    def __init__(self, header: Header) -> None:
        super().__init__()
        self.header = header


class Standing:
    """Where a cursor stands: its arguments, and what is seen of it, are a `PartitionReader`'s."""

    def __init__(
        self,
        partition: int,
        *,
        start: int = 0,
        stop: int = MESSAGE_ID_MAX + 1,
        topics: frozenset[str] | None = None,
        clock: Clock = SYSTEM_CLOCK,
        bytes_max: int = 4 * 1024 * 1024,
        ordinal: int | None = None,
        owner_epoch: int | None = None,
        decisions: SkipDecisions = NO_DECISIONS,
    ) -> None:
        self.partition = partition
        self.topics = topics
        self.expired = 0
        """Wanted messages that were gone before they could be read."""
        self.at_tail = False
        """Whether the last read met the end of the log, or the stop."""
        self._decisions = decisions
        self._skips = Skips(decisions)
        self._floor = start
        self._stop = stop
        self._clock = clock
        self._bytes_max = bytes_max
        # The slot read next. Until a header was seen it is a lower bound, and no ordinal is known.
        self._slot: int | None = 0 if start == 0 else None
        self._ordinal: int | None = None
        self._ordinal_before = ordinal
        self._owner_epoch = owner_epoch
        self._known: dict[int, tuple[bytes | None, Header]] = {}
        """The headers of rows ahead that were read."""

    @property
    def next_slot(self) -> tuple[int, int]:
        """Like `PartitionReader.next_slot`."""
        return self.partition, self._slot or 0

    @property
    def cursor(self) -> int:
        """Like `PartitionReader.cursor`."""
        return max(self._floor, self._slot or 0)

    @property
    def ordinal(self) -> int | None:
        """Like `PartitionReader.ordinal`."""
        return self._ordinal

    @property
    def skipped(self) -> int:
        """Like `PartitionReader.skipped`."""
        return self._skips.messages

    @property
    def finished(self) -> bool:
        """Like `PartitionReader.finished`."""
        return self.cursor >= self._stop

    @property
    def short(self) -> bool:
        """Like `PartitionReader.short`."""
        return self.at_tail and self._slot is not None and self._slot < self._floor

    @property
    def position(self) -> CursorPosition:
        """The cursor's position, for `return_to`."""
        return self._slot, self._ordinal, self._floor, self.expired

    def return_to(self, position: CursorPosition) -> None:
        """Return to an earlier position. The batches that were read since then must have reached no
        caller.
        """
        self._slot, self._ordinal, self._floor, self.expired = position

    def accept_at_once(self, row: Row, passed: Collection[str] = ()) -> Batch | None:
        """Like `accept`, but without a request to the store. If a request is needed, because the
        row lies after a gap or can't be read, the row is not accepted, and a `HeldUpError` of
        `hqueue.log.skipping` is raised: call `accept` then.

        Args:
            row: the row.
            passed: topics whose messages in the row are skipped.

        Raises:
            CorruptLogError: the log is broken here.
        """
        slot = self._slot or 0
        if row.header is None or row.slot < slot:
            return None
        data, header = self._known.pop(row.slot, (None, None))
        if header is None or data != row.header:
            header = header_of(row)
        if self._ordinal is not None and row.slot != slot:
            raise GapError(header)
        if self._ordinal is not None and header.ordinal != self._ordinal:
            raise CorruptLogError(
                "messages are missing from the log: its ordinals don't add up",
                row=row.key.hex(),
                ordinal=header.ordinal,
                ordinal_expected=self._ordinal,
            )
        batch = self._batch(row, header, passed)
        self._slot, self._ordinal = header.end, header.next_ordinal
        return batch

    def _size_of(self, rows: Sequence[Row]) -> int:
        """How many bytes are wanted of the next rows, decompressed, as far as that can be read."""
        size = 0
        with contextlib.suppress(CorruptLogError):
            for row in rows:
                if row.header is not None:
                    data, header = self._known.get(row.slot, (None, None))
                    if header is None or data != row.header:
                        header = header_of(row)
                        self._known[row.slot] = row.header, header
                    size += sum(entry.size for entry in self._wanted(header))
        return size

    def take(self, row: Row) -> list[Batch] | None:
        """Accept a row that the caller has, without a request to the store; None if it isn't the
        next one.

        This works only at the end of the log, where the next row's slot is known, and never for
        the first slot: after a truncation the first slot is filled again, and its earlier row may
        arrive late. The row is checked as if it were read. It gives one batch, or none if it has
        no messages to read.

        Raises:
            CorruptLogError: the row can't lie here. The cursor keeps its position.
        """
        if not self.at_tail or row.slot != self._slot or row.slot == 0:
            return None
        header = header_of(row)
        if row.cells.keys() != {entry.topic for entry in header.topics}:
            # In the store they could have expired; of what was just written they can't.
            raise missing(row)
        self._known[row.slot] = (row.header, header)
        if self.topics is not None:
            cells = {topic: cell for topic, cell in row.cells.items() if topic in self.topics}
            row = dataclasses.replace(row, cells=cells)
        try:
            batch = self.accept_at_once(row)
        except UnreadableError as exc:
            raise exc.error from None
        return [] if batch is None else [batch]

    def _wanted(self, header: Header) -> list[TopicEntry]:
        return [e for e in header.topics if self.topics is None or e.topic in self.topics]

    def _batch(self, row: Row, header: Header, passed: Collection[str]) -> Batch | None:
        start, stop = max(header.base, self._floor), min(header.end, self._stop)
        wanted = self._wanted(header)
        if header.kind == CONTROL or start >= stop or not wanted:
            return None
        there = [entry for entry in wanted if entry.topic in row.cells]
        counted = self._by_the_owner(row, header, wanted)
        if not there:
            self.expired += min(stop - start, sum(entry.count for entry in counted))
            return None
        if not counted:
            return None
        if passed:
            counted = [entry for entry in counted if entry.topic not in passed]
        cells = readable(row, header, counted, strange=len(row.cells) != len(there))
        if not cells:
            return None
        return Batch(self.partition, row.key, header, cells, start, stop, self._skips)

    def _by_the_owner(self, row: Row, header: Header, wanted: list[TopicEntry]) -> list[TopicEntry]:
        """Those of a batch that the owner appended whose messages are wanted."""
        if self._owner_epoch is None:
            return wanted
        owners = owners_of(row.key, header)
        return [entry for entry in wanted if owners.get(entry.topic) == self._owner_epoch]


def accept_ahead(
    standing: Standing, rows: Sequence[Row], batches: list[Batch]
) -> Work[Sequence[Row]]:
    """Have the next rows taken in beside an event loop, if they are much; those that are left:
    where they are little, and from one on that `accept_at_once` does not take in.

    Where this is cut off it stands where it stood.
    """
    if not are_much(rows) and not is_much(len(rows), partial(standing._size_of, rows), HERE_BYTES):
        return rows
    ahead = copy.copy(standing)
    accepted: list[Batch | None] = yield computing(partial(_accepted, ahead, rows))
    standing.return_to(ahead.position)
    batches += [batch for batch in accepted if batch is not None]
    return rows[len(accepted) :]


def _accepted(standing: Standing, rows: Sequence[Row]) -> list[Batch | None]:
    accepted: list[Batch | None] = []
    with contextlib.suppress(HeldUpError, CorruptLogError):
        accepted.extend(map(standing.accept_at_once, rows))
    return accepted

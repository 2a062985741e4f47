"""Reading a partition in order, from any ID."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Collection, Iterable

from hqueue.errors import CorruptLogError, HQueueError
from hqueue.format.control import owners_of
from hqueue.format.header import CONTROL, Header, TopicEntry
from hqueue.log.ports import Row, RowStream
from hqueue.log.rows import header_of
from hqueue.log.skipping import (
    NO_DECISIONS,
    HeldUpError,
    SkipDecisions,
    Skips,
    UnreadableError,
    missing,
    readable,
)
from hqueue.log.steps import Close, Headers, Newest, Open, Read, Work
from hqueue.runtime.clock import SYSTEM_CLOCK, Clock, Deadline
from hqueue.runtime.steps import Pause
from hqueue.settings.limits import BATCH_BYTES_MAX, MESSAGE_ID_MAX

__all__ = ["Batch", "PartitionCursor", "Place"]

logger = logging.getLogger(__name__)

LOOKAHEAD_HEADERS = 1_000
MENDING_MS = 10_000
ROW_OVERHEAD_BYTES = 200


@dataclasses.dataclass(frozen=True, slots=True)
class Batch:
    """A batch that was read and checked: some or all of its topics' cells, decompressed.

    The messages wanted of it are those with IDs in ``[start, stop)``.
    """

    partition: int
    key: bytes
    header: Header
    cells: tuple[tuple[TopicEntry, bytes], ...]
    start: int
    stop: int
    skips: Skips = dataclasses.field(default_factory=Skips, compare=False, repr=False)
    """What the reader passes by, of cells whose content makes no sense."""


Place = tuple[int | None, int | None, int, int]
"""Where a cursor stands."""


class _GapError(HeldUpError):
    """A row lies behind a gap."""

    def __init__(self, header: Header) -> None:
        super().__init__()
        self.header = header


class PartitionCursor:
    """A cursor in one partition, in steps. Not thread-safe. Made by `LoopReader.cursor`.

    It gives every batch once and in order, and checks that each follows the one before: by its
    slot and by its ordinal. Batches that expired, or were collected, before they could be read
    are counted in `expired`. When a request fails it goes on from where it stood.

    Args:
        partition: the partition.
        start: the first ID that is wanted.
        stop: the first ID that isn't any more.
        topics: the topics wanted; None for all.
        clock: where time comes from.
        bytes_max: the bodies asked of the store in one request, about; at least one batch.
        ordinal: messages that the partition had before the start, if that is known: then what was
            collected from there on is counted in `expired`, too.
        owner_epoch: only messages that the owner of their topic with this epoch appended; whoever
            wrote them if None.
        decisions: which batches are passed by where they can't be read.
    """

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
        self._stream: RowStream | None = None
        self._is_torn = False
        """Whether a read was cut off: what the stream gives next is not what comes next here."""
        # Rows ahead whose headers were read: their sizes, the next one last, and the headers.
        self._sizes: list[int] = []
        self._known: dict[int, tuple[bytes | None, Header]] = {}

    @property
    def next_slot(self) -> tuple[int, int]:
        """The partition and the slot that is read next: where a new batch will lie."""
        return self.partition, self._slot or 0

    @property
    def cursor(self) -> int:
        """The ID from which another reader would go on after what this one has given."""
        return max(self._floor, self._slot or 0)

    @property
    def ordinal(self) -> int | None:
        """Messages that the partition had up to here; None before the first header."""
        return self._ordinal

    @property
    def skipped(self) -> int:
        """Messages that could not be read, and were passed by because an operator decided so. Of
        batches that were given they count once these are decoded.
        """
        return self._skips.messages

    @property
    def finished(self) -> bool:
        """Whether the stop was reached: no further batch can hold a wanted message."""
        return self.cursor >= self._stop

    @property
    def short(self) -> bool:
        """Whether the log ended before the first ID that is wanted, when that was looked at last.

        A region server that lost the partition and does not know yet may say so, for a while; a log
        that stays so short is another one: the partition was truncated.
        """
        return self.at_tail and self._slot is not None and self._slot < self._floor

    def read(self, deadline: Deadline) -> Work[list[Batch]]:
        """The next batches, some megabytes at most; none at the end of the log or at the stop.

        Where this is cut off, as by cancelling, nothing is passed: they come with the next read.

        Raises:
            StoreUnavailableError: the store stayed away until the deadline.
            QueueStateError, RequestRefusedError: the store will not be read.
            CorruptLogError: the log is broken here. Reading goes no further.
        """

        def read() -> Work[list[Batch]]:
            while not self.finished:
                batches = yield from self._read_rows(deadline)
                if batches or self.at_tail:
                    return batches
            self.at_tail = True
            return []

        return deadline.insist(read)

    def read_once(self, deadline: Deadline) -> Work[list[Batch]]:
        """What one request gives: as `read`, but it may be nothing although the log goes on, where
        none of the topics wanted lies; `at_tail` is false then.
        """

        def read() -> Work[list[Batch]]:
            if self.finished:
                self.at_tail = True
                return []
            return (yield from self._read_rows(deadline))

        return deadline.insist(read)

    def reopened(self, start: int, expired: int) -> PartitionCursor:
        """The same cursor, reopened: it begins elsewhere, and shares nothing with this one."""
        cursor = PartitionCursor(
            self.partition,
            start=start,
            stop=self._stop,
            topics=self.topics,
            clock=self._clock,
            bytes_max=self._bytes_max,
            owner_epoch=self._owner_epoch,
            decisions=self._decisions,
        )
        cursor.expired = expired
        return cursor

    def _read_rows(self, deadline: Deadline) -> Work[list[Batch]]:
        batches: list[Batch] = []
        if self._is_torn:
            yield from self.release()
        if self._slot is None:
            yield from self._seek(self._floor)
        before = self.place
        try:
            try:
                yield from self._read_on(deadline, batches)
            except HQueueError:
                yield from self.release()
                self.at_tail = False
                if not batches:
                    raise  # Else it comes back with the next read, if it stays.
            else:
                if self.at_tail:
                    yield from self.release()
        except HQueueError:
            raise
        except BaseException:
            self.return_to(before)
            self._is_torn, self.at_tail = True, False
            raise
        return batches

    def _read_on(self, deadline: Deadline, batches: list[Batch]) -> Work[None]:
        """Take in the next rows."""
        if self._stream is None:
            self._stream = yield Open(self.partition, self.next_slot[1], self._stop, self.topics)
            self._sizes, self._known = [], {}
            wanted = max(1, self._bytes_max // BATCH_BYTES_MAX)
        else:
            wanted = yield from self._rows_that_fit()
        rows: list[Row] = yield Read(self._stream, wanted)
        self.at_tail = len(rows) < wanted
        yield from self._accept_each(rows, deadline, batches)

    def _accept_each(
        self, rows: Iterable[Row], deadline: Deadline, batches: list[Batch]
    ) -> Work[None]:
        for row in rows:
            try:
                batch = self.accept_at_once(row)
            except HeldUpError:
                batch = yield from self.accept(row, deadline)
            if batch is not None:
                batches.append(batch)
            if self._stream is None:  # Moved to another slot.
                break

    @property
    def place(self) -> Place:
        """Where it stands, to return to."""
        return self._slot, self._ordinal, self._floor, self.expired

    def return_to(self, place: Place) -> None:
        """Stand where it stood: what it gave since then has come to nobody."""
        self._slot, self._ordinal, self._floor, self.expired = place

    def _rows_that_fit(self) -> Work[int]:
        """How many rows to ask for, by their sizes: a row weighs 100 bytes or megabytes."""
        if not self._sizes:
            yield from self._look_ahead()
        count, room = 0, self._bytes_max
        while self._sizes and (count == 0 or self._sizes[-1] <= room):
            room -= self._sizes.pop() + ROW_OVERHEAD_BYTES
            count += 1
        return count or max(1, self._bytes_max // BATCH_BYTES_MAX)

    def _look_ahead(self) -> Work[None]:
        self._known = {}
        rows: list[Row] = yield Headers(self.partition, self.next_slot[1], LOOKAHEAD_HEADERS)
        for row in rows:
            try:
                self._known[row.slot] = (row.header, header_of(row))
            except CorruptLogError:
                break  # What lies before it is read; then `accept` meets it.
        self._sizes = [
            sum(entry.size for entry in self._wanted(header))
            for _, header in reversed(self._known.values())
        ]

    @property
    def holds(self) -> bool:
        """Whether something is held in the store."""
        return self._stream is not None

    def release(self) -> Work[None]:
        """Free what is held in the store. Never raises. Reading can go on afterwards."""
        self._is_torn = False
        if self._stream is not None:
            stream, self._stream = self._stream, None
            yield Close(stream)

    def accept(self, row: Row, deadline: Deadline) -> Work[Batch | None]:
        """Take a row in if it is the next one, and give its batch if that is wanted. One try.

        Rows come from `read`, or from a caller that gets the `next_slot` of many cursors at once. A
        row that shows that the cursor stands at the wrong slot moves it there instead.
        """
        passed: set[str] = set()
        while True:
            try:
                return self.accept_at_once(row, passed)
            except _GapError as exc:
                if not (yield from self._jump(row, exc.header, deadline)):
                    return None
            except UnreadableError as exc:
                yield from self._skips.passing_by(row.key, exc.header, exc.entry, exc.error)
                passed.add(exc.entry.topic)

    def accept_at_once(self, row: Row, passed: Collection[str] = ()) -> Batch | None:
        """As `accept`, where nothing has to be asked for. Else, behind a gap or where the row can't
        be read, nothing is taken in: a `HeldUpError` of `hqueue.log.skipping` says that `accept`
        has to be used.

        Args:
            row: the row.
            passed: topics whose messages in it are passed by.

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
            raise _GapError(header)
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

    def take(self, row: Row) -> list[Batch] | None:
        """Take in a row that somebody else has, without asking the store; None if it isn't next.

        Only at the end of the log, where the next row's slot is known, and never for the first
        slot: that is filled again after a truncation, and what the row was before that may come
        late. What the row has is checked as if it were read, and gives one batch, or none if
        nothing of it is wanted.

        Raises:
            CorruptLogError: it can't lie here. The reader stands where it stood.
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

    def check_tail(self, deadline: Deadline) -> Work[None]:
        """Look whether the log goes on elsewhere than at `next_slot`.

        A follower that only asks for its slot would wait for ever after a truncation, or when
        it fell so far behind that its part of the log was collected.
        """

        def read_newest() -> Work[Row | None]:
            if self._slot is None:
                yield from self._seek(self._floor)
            row: Row | None = yield Newest(self.partition, MESSAGE_ID_MAX)
            return row

        newest = yield from deadline.insist(read_newest)
        if newest is None:
            if self._ordinal is not None:
                logger.warning("partition %d was truncated", self.partition)
                yield from self._move(0, None)
            return
        header = header_of(newest)
        if header.end > self.cursor:
            self.at_tail = False
            if self._ordinal is not None and newest.slot < self.cursor:
                logger.warning("partition %d was truncated", self.partition)
                yield from self._move(newest.slot, header.ordinal)
        elif header.end < (self._slot or 0):
            logger.warning("partition %d was truncated", self.partition)
            yield from self._move(header.end, header.next_ordinal)

    def _seek(self, start: int) -> Work[None]:
        """Stand at the batch that covers an ID, or where the one that will lie there begins."""
        row: Row | None = yield Newest(self.partition, start)
        if row is None:
            if self._ordinal_before and (yield Newest(self.partition, MESSAGE_ID_MAX)):
                # Collected up to here, and further: the next row shows how much.
                self._slot, self._ordinal = start, self._ordinal_before
            else:
                self._slot = 0
            return
        header = header_of(row)
        if header.end > start:
            self._slot, self._ordinal = row.slot, header.ordinal
        else:
            self._slot, self._ordinal = header.end, header.next_ordinal

    def _jump(self, row: Row, header: Header, deadline: Deadline) -> Work[bool]:
        """Tell why there is a gap before a row; whether to go on with that row.

        Headers are collected from the oldest on. So where the batch before the gap is gone as
        well, the gap was collected; where it is still there, the log is broken.
        """
        slot, ordinal = self._slot or 0, self._ordinal or 0
        ends_ms = self._clock.monotonic_ms() + MENDING_MS
        while True:
            before: Row | None = yield Newest(self.partition, slot)
            if before is None:
                break
            end = header_of(before)
            if end.end > slot:
                logger.warning("partition %d was truncated", self.partition)
                yield from self._move(before.slot, end.ordinal)
                return False
            if end.end < slot:
                break
            # A collection may be under way that has not come to the batch before the gap.
            if self._clock.monotonic_ms() >= ends_ms or deadline.expired:
                raise CorruptLogError(
                    "batches are missing from the log",
                    row=row.key.hex(),
                    slot_expected=slot,
                    ordinal=header.ordinal,
                    ordinal_expected=ordinal,
                )
            yield Pause(200)
        self._slot, self._ordinal = row.slot, header.ordinal
        self.expired += max(0, header.ordinal - ordinal)
        logger.warning(
            "partition %d: %d messages expired before they were read",
            self.partition,
            header.ordinal - ordinal,
        )
        return True

    def _move(self, slot: int, ordinal: int | None) -> Work[None]:
        """Go on from another slot; messages below the cursor are not given again."""
        self._floor = self.cursor
        self._slot, self._ordinal = slot, ordinal
        self.at_tail = False
        yield from self.release()

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

"""Reading a partition in order, from any ID."""

from __future__ import annotations

import dataclasses
import logging

from hqueue.errors import CorruptLogError, HQueueError
from hqueue.format import CONTROL, Header, TopicEntry, owners_of
from hqueue.log.ports import ReadPort, Row, RowStream
from hqueue.log.rows import header_of
from hqueue.log.skipping import NO_DECISIONS, SkipDecisions, Skips, missing
from hqueue.runtime.clock import SYSTEM_CLOCK, Clock, Deadline
from hqueue.settings.limits import BATCH_BYTES_MAX, MESSAGE_ID_MAX

__all__ = ["Batch", "PartitionReader"]

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


class PartitionReader:
    """A cursor in one partition. Not thread-safe. Made by `Queue.reader`.

    It gives every batch once and in order, and checks that each follows the one before: by its
    slot and by its ordinal. Batches that expired, or were collected, before they could be read
    are counted in `expired`. When a request fails it goes on from where it stood.

    Args:
        partition: the partition.
        port: the store.
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
        port: ReadPort,
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
        self._port = port
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

    def read(self, deadline: Deadline) -> list[Batch]:
        """The next batches, some megabytes at most; none at the end of the log or at the stop.

        Raises:
            StoreUnavailableError: the store stayed away until the deadline.
            QueueStateError, RequestRefusedError: the store will not be read.
            CorruptLogError: the log is broken here. Reading goes no further.
        """

        def read() -> list[Batch]:
            while not self.finished:
                batches = self._read_rows(deadline)
                if batches or self.at_tail:
                    return batches
            self.at_tail = True
            return []

        return deadline.run(read)

    def read_once(self, deadline: Deadline) -> list[Batch]:
        """What one request gives: as `read`, but it may be nothing although the log goes on, where
        none of the topics wanted lies; `at_tail` is false then.
        """

        def read() -> list[Batch]:
            if self.finished:
                self.at_tail = True
                return []
            return self._read_rows(deadline)

        return deadline.run(read)

    def reopened(self, start: int, expired: int) -> PartitionReader:
        """The same reader, reopened: it begins elsewhere, and shares nothing with this one."""
        reader = PartitionReader(
            self.partition,
            self._port,
            start=start,
            stop=self._stop,
            topics=self.topics,
            clock=self._clock,
            bytes_max=self._bytes_max,
            owner_epoch=self._owner_epoch,
            decisions=self._decisions,
        )
        reader.expired = expired
        return reader

    def _read_rows(self, deadline: Deadline) -> list[Batch]:
        batches = []
        try:
            if self._slot is None:
                self._seek(self._floor)
            if self._stream is None:
                self._stream = self._port.open(
                    self.partition, self.next_slot[1], self._stop, self.topics
                )
                self._sizes, self._known = [], {}
                wanted = max(1, self._bytes_max // BATCH_BYTES_MAX)
            else:
                wanted = self._rows_that_fit()
            rows = self._stream.read(wanted)
            self.at_tail = len(rows) < wanted
            for row in rows:
                batch = self.accept(row, deadline)
                if batch is not None:
                    batches.append(batch)
                if self._stream is None:  # Moved to another slot.
                    break
        except HQueueError:
            self.release()
            self.at_tail = False
            if batches:
                return batches  # The error comes back with the next read, if it stays.
            raise
        if self.at_tail:
            self.release()
        return batches

    def _rows_that_fit(self) -> int:
        """How many rows to ask for, by their sizes: a row weighs 100 bytes or megabytes."""
        if not self._sizes:
            self._look_ahead()
        count, room = 0, self._bytes_max
        while self._sizes and (count == 0 or self._sizes[-1] <= room):
            room -= self._sizes.pop() + ROW_OVERHEAD_BYTES
            count += 1
        return count or max(1, self._bytes_max // BATCH_BYTES_MAX)

    def _look_ahead(self) -> None:
        self._known = {}
        for row in self._port.headers(self.partition, self.next_slot[1], LOOKAHEAD_HEADERS):
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

    def release(self) -> None:
        """Free what is held in the store. Reading can go on afterwards."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def accept(self, row: Row, deadline: Deadline) -> Batch | None:
        """Take a row in if it is the next one, and give its batch if that is wanted.

        Rows come from `read`, or from a caller that gets the `next_slot` of many readers at once. A
        row that shows that the reader stands at the wrong slot moves it there instead.
        """
        return self._accept(row, deadline, self._skips)

    def _accept(self, row: Row, deadline: Deadline, skips: Skips) -> Batch | None:
        slot = self._slot or 0
        if row.header is None or row.slot < slot:
            return None
        data, header = self._known.pop(row.slot, (None, None))
        if header is None or data != row.header:
            header = header_of(row)
        if self._ordinal is not None and row.slot != slot:
            if not self._jump(row, header, deadline):
                return None
        elif self._ordinal is not None and header.ordinal != self._ordinal:
            raise CorruptLogError(
                "messages are missing from the log: its ordinals don't add up",
                row=row.key.hex(),
                ordinal=header.ordinal,
                ordinal_expected=self._ordinal,
            )
        batch = self._batch(row, header, skips)
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
        batch = self._accept(row, Deadline(self._clock, 0), Skips())
        return [] if batch is None else [batch]

    def check_tail(self, deadline: Deadline) -> None:
        """Look whether the log goes on elsewhere than at `next_slot`.

        A follower that only asks for its slot would wait for ever after a truncation, or when
        it fell so far behind that its part of the log was collected.
        """

        def read_newest() -> Row | None:
            if self._slot is None:
                self._seek(self._floor)
            return self._port.newest(self.partition, MESSAGE_ID_MAX)

        newest = deadline.run(read_newest)
        if newest is None:
            if self._ordinal is not None:
                logger.warning("partition %d was truncated", self.partition)
                self._move(0, None)
            return
        header = header_of(newest)
        if header.end > self.cursor:
            self.at_tail = False
            if self._ordinal is not None and newest.slot < self.cursor:
                logger.warning("partition %d was truncated", self.partition)
                self._move(newest.slot, header.ordinal)
        elif header.end < (self._slot or 0):
            logger.warning("partition %d was truncated", self.partition)
            self._move(header.end, header.next_ordinal)

    def _seek(self, start: int) -> None:
        """Stand at the batch that covers an ID, or where the one that will lie there begins."""
        row = self._port.newest(self.partition, start)
        if row is None:
            self._slot = 0
            if self._ordinal_before and self._port.newest(self.partition, MESSAGE_ID_MAX):
                # Collected up to here, and further: the next row shows how much.
                self._slot, self._ordinal = start, self._ordinal_before
            return
        header = header_of(row)
        if header.end > start:
            self._slot, self._ordinal = row.slot, header.ordinal
        else:
            self._slot, self._ordinal = header.end, header.next_ordinal

    def _jump(self, row: Row, header: Header, deadline: Deadline) -> bool:
        """Tell why there is a gap before a row; whether to go on with that row.

        Headers are collected from the oldest on. So where the batch before the gap is gone as
        well, the gap was collected; where it is still there, the log is broken.
        """
        slot, ordinal = self._slot or 0, self._ordinal or 0
        ends_ms = self._clock.monotonic_ms() + MENDING_MS
        while True:
            before = self._port.newest(self.partition, slot)
            if before is None:
                break
            end = header_of(before)
            if end.end > slot:
                logger.warning("partition %d was truncated", self.partition)
                self._move(before.slot, end.ordinal)
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
            self._clock.sleep_ms(200)
        self.expired += max(0, header.ordinal - ordinal)
        logger.warning(
            "partition %d: %d messages expired before they were read",
            self.partition,
            header.ordinal - ordinal,
        )
        return True

    def _move(self, slot: int, ordinal: int | None) -> None:
        """Go on from another slot; messages below the cursor are not given again."""
        self._floor = self.cursor
        self._slot, self._ordinal = slot, ordinal
        self.at_tail = False
        self.release()

    def _wanted(self, header: Header) -> list[TopicEntry]:
        return [e for e in header.topics if self.topics is None or e.topic in self.topics]

    def _batch(self, row: Row, header: Header, skips: Skips) -> Batch | None:
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
        cells = skips.readable(row, header, counted, strange=len(row.cells) != len(there))
        if not cells:
            return None
        return Batch(self.partition, row.key, header, cells, start, stop, self._skips)

    def _by_the_owner(self, row: Row, header: Header, wanted: list[TopicEntry]) -> list[TopicEntry]:
        """Those of a batch that the owner appended whose messages are wanted."""
        if self._owner_epoch is None:
            return wanted
        owners = owners_of(row.key, header)
        return [entry for entry in wanted if owners.get(entry.topic) == self._owner_epoch]

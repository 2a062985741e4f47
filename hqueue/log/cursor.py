"""Reading a partition in order, from any ID."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from hqueue.errors import CorruptLogError, HQueueError, RowsUnreadableError
from hqueue.format import rowkey
from hqueue.format.header import Header
from hqueue.log.decoding import decoded_headers
from hqueue.log.ports import Row, RowStream, header_of
from hqueue.log.skipping import HeldUpError, UnreadableError
from hqueue.log.standing import Batch, GapError, Standing, accept_ahead
from hqueue.log.steps import Close, Headers, Newest, Open, Read, Work
from hqueue.runtime.clock import Deadline
from hqueue.runtime.interrupts import is_interruption, is_own
from hqueue.runtime.logs import Log
from hqueue.runtime.steps import Pause
from hqueue.settings.limits import BATCH_BYTES_MAX, MESSAGE_ID_MAX

__all__ = ["PartitionCursor"]

logger = Log(__name__)

LOOKAHEAD_HEADERS = 1_000
MENDING_MS = 10_000
ROW_OVERHEAD_BYTES = 200


class PartitionCursor(Standing):
    """Reads one partition as `PartitionReader` does, with the same arguments, in steps. Not
    thread-safe. Made by `LoopReader.cursor`.
    """

    _stream: RowStream | None = None
    _is_torn = False
    """Whether a read was cut off: what the stream gives next is not what comes next here."""
    _sizes: list[int]
    """Of rows ahead whose headers were read, the next one last: from opening a stream on."""

    def read(self, deadline: Deadline) -> Work[list[Batch]]:
        """Read the next batches, as `PartitionReader.read`. A read that is cancelled does not move
        the cursor: the next read returns its batches.
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
        """Like `PartitionReader.read_once`."""

        def read() -> Work[list[Batch]]:
            if self.finished:
                self.at_tail = True
                return []
            return (yield from self._read_rows(deadline))

        return deadline.insist(read)

    def reopened(self, start: int, expired: int) -> PartitionCursor:
        """Like `PartitionReader.reopened`."""
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
        before = self.position
        try:
            try:
                yield from self._read_on(deadline, batches)
            except HQueueError as exc:
                if is_interruption(exc):
                    raise
                if isinstance(exc, RowsUnreadableError):
                    exc.facts.setdefault("row", rowkey.encode(*self.next_slot).hex())
                yield from self.release()
                self.at_tail = False
                if not batches:
                    raise  # Else it comes back with the next read, if it stays.
            else:
                if self.at_tail:
                    yield from self.release()
        except BaseException as exc:
            if not is_own(exc):
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
        self, rows: Sequence[Row], deadline: Deadline, batches: list[Batch]
    ) -> Work[None]:
        for row in (yield from accept_ahead(self, rows, batches)):
            try:
                batch = self.accept_at_once(row)
            except HeldUpError:
                batch = yield from self.accept(row, deadline)
            if batch is not None:
                batches.append(batch)
            if self._stream is None:  # Moved to another slot.
                break

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
        with contextlib.suppress(CorruptLogError):  # `accept` meets it, after what lies before it.
            for row, header in (yield from decoded_headers(rows)):
                self._known[row.slot] = (row.header, header)
        self._sizes = [
            sum(entry.size for entry in self._wanted(header))
            for _, header in reversed(self._known.values())
        ]

    @property
    def holds(self) -> bool:
        """Whether the cursor holds resources in the store."""
        return self._stream is not None

    def release(self) -> Work[None]:
        """Free what the cursor holds in the store. Never raises. Reading can continue
        afterwards.
        """
        self._is_torn = False
        if self._stream is not None:
            stream, self._stream = self._stream, None
            yield Close(stream)

    def accept(self, row: Row, deadline: Deadline) -> Work[Batch | None]:
        """Like `PartitionReader.accept`. One try."""
        passed: set[str] = set()
        while True:
            try:
                return self.accept_at_once(row, passed)
            except GapError as exc:
                if not (yield from self._jump(row, exc.header, deadline)):
                    return None
            except UnreadableError as exc:
                yield from self._skips.skip_in_steps(row.key, exc.header, exc.entry, exc.error)
                passed.add(exc.entry.topic)

    def check_tail(self, deadline: Deadline) -> Work[None]:
        """Like `PartitionReader.check_tail`."""

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
        """Find out why there is a gap before a row. Returns whether to go on with that row.

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

"""Batches that can't be read, and that readers skip because an operator chose so.

They are named in a record that lies with the queue, and goes when it is truncated. A batch is named
by its row and its nonce, so no other is ever meant. The record is only read when something can't be
read: it costs nothing else, and no reader has to be started again.
"""

from __future__ import annotations

import collections
import threading
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from hqueue.errors import CorruptLogError, InvalidInputError, Outcome, StoreUnavailableError
from hqueue.format import rowkey
from hqueue.format.header import MESSAGES, Header, TopicEntry
from hqueue.log.context import QueueContext
from hqueue.log.ports import Row, header_of
from hqueue.log.steps import Get, ReadRecord, ReplaceRecord, Work, ask
from hqueue.log.table_ports import AsyncLogPort, LogPort
from hqueue.log.verify import problems_found
from hqueue.metadata import PartitionKey, encoding
from hqueue.runtime.clock import do_step, do_step_in_loop, drive
from hqueue.runtime.logs import Log
from hqueue.runtime.stepwise import Stepwise, stepwise

__all__ = ["SKIPPED_MAX", "SkipCounts", "SkipRecord", "SkippedBatches", "Skipping"]

logger = Log(__name__)

Result = TypeVar("Result")

RECORD = "skipped/batches"
"""No producer has such a name."""

SKIPPED_MAX = 100
"""Batches that readers skip in a queue. A reader can't skip more damage than this."""

_Named = tuple[bytes, bytes]
"""A batch's row and its nonce."""


class SkipCounts:
    """What a process has skipped in all queues, each counted and logged once. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._noted: set[tuple[str, bytes, bytes, str]] = set()
        self._messages: collections.Counter[PartitionKey] = collections.Counter()

    def messages(self) -> Mapping[PartitionKey, int]:
        """How many messages were skipped."""
        with self._lock:
            return dict(self._messages)

    def note(
        self, queue: str, row: bytes, header: Header, entry: TopicEntry, error: CorruptLogError
    ) -> None:
        """A reader has skipped a topic's messages in a batch."""
        partition, _ = rowkey.decode(row)
        noted = (queue, row, header.nonce, entry.topic)
        with self._lock:
            if noted in self._noted:
                return
            self._noted.add(noted)
            self._messages[PartitionKey(queue, partition)] += entry.count
        logger.warning(
            "partition %d of %s: skipping %d unreadable messages of a topic in row %s, as an "
            "operator decided: %s",
            partition, queue, entry.count, row.hex(), error.text,
        )  # fmt: skip


class SkipRecord:
    """Which batches of a queue its readers skip. Thread-safe.

    Args:
        context: the queue.
        log: where the record lies, and the batches.
        counts: learns what readers skip.
    """

    def __init__(self, context: QueueContext, log: LogPort, counts: SkipCounts) -> None:
        self._context = context
        self._log = log
        self._counts = counts

    def is_skipped(self, row: bytes, header: Header) -> Work[bool]:
        """Like `SkipDecisions` has it."""
        named, _ = yield from self.read()
        return (row, header.nonce) in named

    def decide(self, row: bytes, header: Header) -> bool:
        """Like `SkipDecisions` has it."""
        deadline = self._context.deadline()
        decided = deadline.insist(lambda: self.is_skipped(row, header))
        return drive(decided, self._log, deadline)

    def note(self, row: bytes, header: Header, entry: TopicEntry, error: CorruptLogError) -> None:
        """Like `SkipDecisions` has it."""
        self._counts.note(self._context.name, row, header, entry, error)

    def read(self) -> Work[tuple[set[_Named], bytes | None]]:
        """The batches, and the record that names them. One try."""
        found: bytes | None = yield ReadRecord(RECORD)
        return set() if found is None else set(encoding.decode_skipped(found, RECORD)), found

    def replace(self, found: bytes | None, named: set[_Named]) -> Work[None]:
        """Name these batches, if the record is what was found. One try.

        Raises:
            StoreUnavailableError: it is another by now. Try again.
        """
        if not (yield ReplaceRecord(RECORD, found, encoding.encode_skipped(named))):
            raise StoreUnavailableError(
                "other programs keep changing which batches of this queue are skipped: try again "
                "later",
                outcome=Outcome.NOT_APPLIED,
                queue=self._context.name,
            )


class Skipping(Stepwise):
    """Lists and changes the batches of a queue that readers skip, for both faces of
    `SkippedBatches`.

    Args:
        context: the queue.
        record: names the batches.
        port: where the record lies, and the batches.
        loop_port: the same, for event loops.
    """

    def __init__(
        self, context: QueueContext, record: SkipRecord, port: LogPort, loop_port: AsyncLogPort
    ) -> None:
        self._context = context
        self._record = record
        self._port = port
        self._loop_port = loop_port

    @stepwise
    def rows(self) -> Work[list[str]]:
        """Like `SkippedBatches.rows`."""
        named, _ = yield from self._insist(self._record.read)
        return sorted(row.hex() for row, _ in named)

    @stepwise
    def add(self, row: str) -> Work[int]:
        """Like `SkippedBatches.add`."""
        key = self._key(row)
        header = yield from self._unreadable(key)
        named = key, header.nonce
        yield from self._insist(lambda: self._change(lambda before: before | {named}))
        return header.count

    @stepwise
    def remove(self, row: str) -> Work[bool]:
        """Like `SkippedBatches.remove`."""
        key = self._key(row)
        return (
            yield from self._insist(
                lambda: self._change(lambda before: {each for each in before if each[0] != key})
            )
        )

    def _insist(self, attempt: Callable[[], Work[Result]]) -> Work[Result]:
        deadline = self._context.deadline()
        return (yield from deadline.bound(deadline.insist(attempt)))

    def _do(self, step: Any) -> object:
        return do_step(self._port, self._context.clock, step)

    async def _do_in_loop(self, step: Any) -> object:
        return await do_step_in_loop(self._loop_port, self._context.clock, step)

    def _key(self, row: str) -> bytes:
        try:
            key = bytes.fromhex(row)
            partition, _ = rowkey.decode(key)
        except (ValueError, TypeError, CorruptLogError) as exc:
            raise InvalidInputError(
                "name the batch by its row in hexadecimal, as `hqueue verify` and errors show it",
                row=row,
            ) from exc
        self._context.check_partition(partition)
        return key

    def _unreadable(self, key: bytes) -> Work[Header]:
        """The header of a batch that is there and can't be read."""
        place = rowkey.decode(key)
        found: list[Row] = yield from self._insist(lambda: ask(Get([place], None)))
        row: Row | None = next(iter(found), None)
        if row is None or row.header is None:
            raise InvalidInputError("there is no batch in this row", row=key.hex())
        try:
            header = header_of(row)
        except CorruptLogError as exc:
            raise InvalidInputError(
                "the batch can't be skipped: its header, which says where the next batch begins, "
                "can't be read",
                row=key.hex(),
                problem=exc.text,
            ) from exc
        problems: list[str] = []
        if header.kind == MESSAGES and row.cells:
            problems = yield from problems_found(row, header, row.cells)
        if not problems:
            raise InvalidInputError(
                "readers can read this batch: there is nothing to skip",
                row=key.hex(),
            )
        return header

    def _change(self, change: Callable[[set[_Named]], set[_Named]]) -> Work[bool]:
        """Try once to change which batches are named. Returns whether that changed anything."""
        before, found = yield from self._record.read()
        after = change(before)
        if after == before:
            return False
        if len(after) > SKIPPED_MAX:
            after = (after - before) | (yield from self._there(after & before))
        if len(after) > SKIPPED_MAX:
            raise InvalidInputError(
                "the queue has the maximum number of skipped batches: copy the messages that can "
                "be read to another queue",
                batches_max=SKIPPED_MAX,
            )
        yield from self._record.replace(found, after)
        return True

    def _there(self, named: set[_Named]) -> Work[set[_Named]]:
        """Those of some batches that were not collected yet."""
        places = [rowkey.decode(row) for row, _ in named]
        rows: list[Row] = yield Get(places, frozenset())
        there = {row.key for row in rows if row.header is not None}
        return {each for each in named if each[0] in there}


class SkippedBatches:
    """The unreadable batches of a queue that readers skip, because an operator added them.
    Thread-safe. Made by `Queue.skipped_batches`.

    A change takes effect at once for all readers, also for those that are stuck at such a batch
    now: scanners, followers, consumers, workers, hubs, the Thrift API and Spark. They skip the
    messages that can't be read (a topic's messages in a batch are readable or unreadable together),
    and return the others. Each process logs and counts the messages that it skips
    (`Client.skipped_messages`). Positions, lags and ordinals stay right, as if the messages had
    been read. Readable messages are never skipped.
    """

    def __init__(self, skipping: Skipping) -> None:
        self._skipping = skipping

    def rows(self) -> list[str]:
        """The rows of these batches, as errors and `hqueue verify` name them, sorted."""
        return self._skipping.rows()

    def add(self, row: str) -> int:
        """Make readers skip a batch that can't be read. Adding a batch again changes nothing.

        Args:
            row: its row in hexadecimal, as the fact ``row`` of the `CorruptLogError` says it.

        Returns:
            How many messages the batch has, of all topics.

        Raises:
            InvalidInputError: there is no batch in this row; the batch can be read; its header
                can't be read, so that readers could not find the next batch; or the record has no
                room for more batches.
            StoreUnavailableError: HBase was unavailable. The error's outcome says whether the
                change may have been made.
        """
        return self._skipping.add(row)

    def remove(self, row: str) -> bool:
        """Make readers stop at a batch again. Returns whether they skipped it before.

        Raises:
            InvalidInputError: the queue can't have such a row.
            StoreUnavailableError: HBase was unavailable. The error's outcome says whether the
                change may have been made.
        """
        return self._skipping.remove(row)

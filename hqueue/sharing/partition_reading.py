"""Reads a partition's log for a share group: ahead, and once more in ranges further back."""

from __future__ import annotations

import hashlib
import itertools
from bisect import bisect_left
from collections.abc import Collection, Sequence
from functools import partial
from typing import Any

from hqueue.consume.decode import consumed_messages_of, ids_of, may_be_delayed
from hqueue.consume.scan import Scan
from hqueue.dead_letters.of_groups import GroupDeadLetters
from hqueue.handle import QueueLog
from hqueue.log import Batch, PartitionCursor
from hqueue.message import ConsumedMessage
from hqueue.message_id import MessageID
from hqueue.runtime.steps import Wait, Work
from hqueue.sharing.acquisition import Part
from hqueue.sharing.window import NO_KEY
from hqueue.sharing.window_record import SLOTS

__all__ = ["PartitionReading", "slot_of"]

BYTES_MAX = 4 * 1024 * 1024
READS_MAX = 4
"""How often the store is asked until so many messages were read as are wanted: its first answer is
short."""


def slot_of(message: ConsumedMessage) -> int:
    """The slot of a message's key. All consumers of a group must compute the same one."""
    if message.key is None:
        return NO_KEY
    return int.from_bytes(hashlib.blake2b(message.key, digest_size=8).digest(), "big") % SLOTS


class _Chunk:
    """Messages that were read. They are decoded when one of them is needed."""

    def __init__(self, begin: int, end: int, batch: Batch | None, ids: Sequence[int]) -> None:
        self.begin = begin
        self.end = end
        self.batch = batch
        self.ids = ids
        self.messages: dict[int, ConsumedMessage] | None = {} if batch is None else None
        self.dues_ms: dict[int, int] = {}


class PartitionReading:
    """Reads a partition. One thread or task at a time may use it.

    Args:
        log: the queue's log.
        partition: the partition's number.
        topics: the topics to read; all if empty.
        letters: the group's dead letters: those that were put back to the group are read, too.
        by_key: whether keys are kept in order. If so, messages are decoded as soon as they are
            read.
    """

    def __init__(
        self,
        log: QueueLog,
        partition: int,
        topics: Collection[str],
        letters: GroupDeadLetters,
        *,
        by_key: bool,
    ) -> None:
        self._log = log
        self.partition = partition
        self._topics = topics
        self._letters = letters
        self.by_key = by_key
        self._chunks: list[_Chunk] = []
        """The chunks that were read ahead, which follow one another."""
        self._aside: list[_Chunk] = []
        """The chunks that `between` has read."""
        self._cursor: PartitionCursor | None = None
        """Where reading ahead goes on."""
        self._begin = 0
        """Where the next chunk begins while there is none."""

    @property
    def cursor(self) -> PartitionCursor | None:
        """The cursor at the end of what was read ahead; None if nothing was read yet."""
        return self._cursor

    @property
    def at_tail(self) -> bool:
        """Whether reading ahead has reached the log's end, as it was a moment ago."""
        return self._cursor is not None and self._cursor.at_tail

    def has_more(self, begin: int) -> bool:
        """Whether the log may already have messages from an ID on."""
        if not self.at_tail or begin < self._begin_of_ahead:
            return True
        return any(chunk.end > begin and chunk.ids for chunk in self._chunks)

    @property
    def read_to(self) -> int:
        """The ID up to which the log was read ahead, whatever topics its messages have."""
        return self._chunks[-1].end if self._chunks else self._begin

    def is_short(self, end: int) -> bool:
        """Whether the log ended before an ID a moment ago."""
        cursor = self._cursor
        return cursor is not None and cursor.at_tail and cursor.next_slot[1] < end

    def check_tail(self) -> Work[Any, None]:
        """Check the log's end in the store: the log may have been truncated."""
        if self._cursor is not None:
            yield Wait(
                partial(self._log.reader.do, self._cursor.check_tail),
                partial(self._log.loop_reader.check_tail, self._cursor),
            )

    def ahead(self, begin: int, messages: int) -> Work[Any, Part]:
        """Read the log from an ID on: about so many messages, if the log has them, and some
        megabytes at most. Asks the store only if too few were read ahead.
        """
        self._forget_before(begin)
        if self._cursor is None or not self._begin_of_ahead <= begin <= self._cursor.cursor:
            yield from self._release_ahead()
            self._cursor = self._open(begin, None)
            self._begin = begin
        for reads in range(READS_MAX):
            known = sum(len(chunk.ids) for chunk in self._chunks)
            # At the log's end one look is enough: answers wait to be written after it.
            if known >= messages or (self.at_tail and (self._chunks or reads)):
                break
            yield from self.add((yield from self._read(self._cursor)))
        first: list[_Chunk] = []
        for chunk in self._chunks:
            if messages <= 0:
                break
            first.append(chunk)
            messages -= len(chunk.ids) - bisect_left(chunk.ids, begin)
        return self._part(first, begin, first[-1].end if first else begin)

    def add(self, read: Sequence[Batch]) -> Work[Any, None]:
        """Add batches that the cursor has read; none if it only passed those of other topics."""
        assert self._cursor is not None
        batches = yield from self._letters.delivered(read, self._topics)
        begin = self.read_to
        self._chunks += yield from self._chunked(batches, begin, self._cursor.cursor)

    def between(self, begin: int, end: int, messages: int) -> Work[Any, Part]:
        """Read the log between two IDs: about so many messages, if the log has them, and some
        megabytes at most. They are kept until `forget_between`.
        """
        cursor = self._open(begin, end)
        batches: list[Batch] = []
        try:
            for _ in range(READS_MAX):
                batches += yield from self._read(cursor)
                known = sum(batch.header.count for batch in batches)
                if known >= messages or cursor.at_tail or cursor.cursor >= end:
                    break
            reached = min(end, cursor.cursor) if not cursor.at_tail else end
        finally:
            yield from self._released(cursor)
        delivered = yield from self._letters.delivered(batches, self._topics)
        chunks = yield from self._chunked(delivered, begin, reached)
        self._aside += chunks
        return self._part(chunks, begin, reached)

    def forget_between(self) -> None:
        """Drop the messages that `between` has read."""
        self._aside = []

    def messages(self, ids: Sequence[int]) -> Work[Any, dict[int, ConsumedMessage | None]]:
        """Messages that were read, by their IDs. The value is None for a message that can't be read
        and that an operator chose to skip. Messages that were dropped since are left out.

        Args:
            ids: the messages' IDs, in ascending order.

        Raises:
            CorruptLogError: a batch that has one of the messages can't be read.
        """
        found: dict[int, ConsumedMessage | None] = {}
        for chunk in (*self._aside, *self._chunks):
            wanted = ids[bisect_left(ids, chunk.begin) : bisect_left(ids, chunk.end)]
            if wanted:
                decoded = yield from self._decoded(chunk)
                for each in wanted:  # Another chunk may have read the same range.
                    if found.get(each) is None:
                        found[each] = decoded.get(each)
        return found

    def release(self) -> Work[Any, None]:
        """Free the cursor in the store, and what was read. Reading can continue afterwards."""
        self._aside = []
        yield from self._release_ahead()

    def _release_ahead(self) -> Work[Any, None]:
        self._chunks, self._begin = [], 0
        cursor, self._cursor = self._cursor, None
        if cursor is not None:
            yield from self._released(cursor)

    @property
    def _begin_of_ahead(self) -> int:
        return self._chunks[0].begin if self._chunks else self._begin

    def _forget_before(self, begin: int) -> None:
        self._begin = self.read_to
        self._chunks = list(itertools.dropwhile(lambda each: each.end <= begin, self._chunks))

    def _open(self, begin: int, end: int | None) -> PartitionCursor:
        stop = None if end is None else MessageID.from_int(end)
        scan = Scan(MessageID.from_int(begin), stop, self._letters.read_topics(self._topics))
        return self._log.reader.reading.cursor(self.partition, scan, BYTES_MAX)

    def _read(self, cursor: PartitionCursor) -> Work[Any, list[Batch]]:
        batches: list[Batch] = yield Wait(
            partial(self._log.reader.do, cursor.read), partial(self._log.loop_reader.read, cursor)
        )
        return batches

    def _released(self, cursor: PartitionCursor) -> Work[Any, None]:
        yield Wait(
            lambda: self._log.reader.do(lambda _: cursor.release()),
            partial(self._log.loop_reader.release, cursor),
        )

    def _chunked(self, batches: Sequence[Batch], begin: int, end: int) -> Work[Any, list[_Chunk]]:
        chunks: list[_Chunk] = []
        for batch in batches:
            ids = ids_of(batch)
            chunk = _Chunk(begin, min(batch.stop, batch.header.end), batch, ids)
            chunks.append(chunk)
            begin = chunk.end
            if self.by_key or may_be_delayed(batch):
                messages = yield from self._decoded(chunk)
                chunk.dues_ms = {
                    each: due_ms
                    for each, message in messages.items()
                    if message.headers and (due_ms := message.deliver_at_ms) is not None
                }
        if begin < end:
            chunks.append(_Chunk(begin, end, None, ()))
        return chunks

    def _decoded(self, chunk: _Chunk) -> Work[Any, dict[int, ConsumedMessage]]:
        if chunk.messages is None:
            assert chunk.batch is not None
            decode = partial(_by_id, queue=self._log.name)
            chunk.messages = yield Wait(
                partial(decode, chunk.batch),
                partial(self._log.loop_reader.decoded, chunk.batch, decode),
            )
        assert chunk.messages is not None
        return chunk.messages

    def _part(self, chunks: Sequence[_Chunk], begin: int, end: int) -> Part:
        ids: list[int] = []
        for chunk in chunks:  # Slices, since few of up to 10,000 IDs are wanted.
            ids += chunk.ids[bisect_left(chunk.ids, begin) : bisect_left(chunk.ids, end)]
        slots = None
        if self.by_key:
            slots = [
                slot_of(message) for chunk in chunks for message in (chunk.messages or {}).values()
            ]
            ids = [each for chunk in chunks for each in (chunk.messages or {})]
        first = chunks[0].begin if chunks else begin
        dues_ms = {each: due_ms for chunk in chunks for each, due_ms in chunk.dues_ms.items()}
        return Part(min(first, begin), end, ids, slots, dues_ms).between(begin, end)


def _by_id(batch: Batch, queue: str) -> dict[int, ConsumedMessage]:
    return {int(each.id): each for each in consumed_messages_of(batch, queue)}

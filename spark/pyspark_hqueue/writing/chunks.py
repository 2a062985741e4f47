"""A task's rows, cut into the batches that are put: the same rows give the same batches.

Where they are cut is decided row by row, and not by how Spark hands them over: so a task that is
repeated cuts as it did before, and each of its batches has the idempotency key that it had.
"""

from __future__ import annotations

import collections
from bisect import bisect_right
from collections.abc import Iterator
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from hqueue import InvalidInputError
from hqueue.message import partition_of_key
from hqueue.settings.attributes import check_partition
from hqueue.settings.limits import HEADER_ROOM_BYTES, TOPICS_PER_BATCH_MAX

__all__ = ["ANY", "Chunk", "Chunks", "largest_row"]

ANY = -1
"""The target of rows that name neither a partition nor a key."""

CHUNK_MESSAGES = 10_000
CHUNK_BYTES = 4 * 1024 * 1024
TASK_BYTES = 128 * 1024 * 1024
"""What a task holds at most: of a queue with many partitions the chunks are smaller."""

MESSAGE_OVERHEAD_BYTES = 8


class Chunk(NamedTuple):
    """Messages that are put as one batch."""

    target: int
    """A partition of the queue, or `ANY`."""
    number: int
    """How many chunks the task had for that target before."""
    messages: pa.RecordBatch
    """Its columns are ``topic`` and ``value``, ``key`` and ``headers`` where rows have them, and
    ``row``: how many rows the task had before it."""


class Chunks:
    """Cuts what a task is given.

    Args:
        partitions: how many the queue has.
        topic: the topic of all messages; None if they have a column for it.
    """

    def __init__(self, partitions: int, topic: str | None) -> None:
        self._partitions = partitions
        self._topic = topic
        self._bytes_max = min(CHUNK_BYTES, TASK_BYTES // partitions)
        self._pending: dict[int, _Pending] = collections.defaultdict(_Pending)
        self._rows = 0

    def add(self, rows: pa.RecordBatch) -> Iterator[Chunk]:
        """The chunks that are full with these rows.

        Raises:
            InvalidInputError: a row can't be a message, or names no partition of the queue.
        """
        messages = self._messages(rows)
        for target, there in self._by_target(rows, messages):
            pending = self._pending[target]
            pending.add(there)
            yield from pending.full(target, self._bytes_max)

    def flush(self) -> Iterator[Chunk]:
        """What is left when there are no more rows."""
        for target in sorted(self._pending):
            pending = self._pending[target]
            while pending.messages:
                yield pending.cut(target, pending.messages)

    def _messages(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        values = rows.column("value").cast(pa.binary())
        if self._topic is None:
            topics = rows.column("topic").cast(pa.string())
        else:
            topics = pa.repeat(pa.scalar(self._topic, pa.string()), rows.num_rows)
        if topics.null_count or values.null_count:
            raise InvalidInputError("a message's topic and value can't be null")
        columns = {"topic": topics, "value": values}
        if "key" in rows.schema.names:
            columns["key"] = rows.column("key").cast(pa.binary())
        if "headers" in rows.schema.names:
            columns["headers"] = rows.column("headers")
        first, self._rows = self._rows, self._rows + rows.num_rows
        columns["row"] = pa.array(range(first, self._rows), pa.int64())
        return pa.RecordBatch.from_pydict(columns)

    def _by_target(
        self, rows: pa.RecordBatch, messages: pa.RecordBatch
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """The messages of each target, in their order."""
        targets = self._targets(rows, messages)
        if targets is None:
            yield ANY, messages
            return
        order = pc.array_sort_indices(targets)  # Stable.
        runs = pc.run_end_encode(targets.take(order))
        start = 0
        for target, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
            yield target, messages.take(order.slice(start, end - start))
            start = end

    def _targets(self, rows: pa.RecordBatch, messages: pa.RecordBatch) -> pa.Array | None:
        """Each row's target; None if no row names one."""
        names = rows.schema.names
        targets = pa.nulls(rows.num_rows, pa.int64())
        if "partition" in names:
            targets = rows.column("partition").cast(pa.int64())
            self._check_partitions(targets)
        if "key" in names and targets.null_count:
            keys = messages.column("key").dictionary_encode()
            distinct = keys.dictionary.to_pylist()
            chosen = [partition_of_key(key, self._partitions) for key in distinct]
            targets = pc.coalesce(targets, pa.array(chosen, pa.int64()).take(keys.indices))
        if targets.null_count == len(targets):
            return None
        return targets.fill_null(ANY)

    def _check_partitions(self, targets: pa.Array) -> None:
        ends = pc.min_max(targets).as_py()
        for partition in (ends["min"], ends["max"]):
            if partition is not None:
                check_partition(partition, self._partitions)


class _Pending:
    """The messages of one target that are not cut yet."""

    def __init__(self) -> None:
        self.messages = 0
        self._bytes = 0
        self._pieces: list[pa.RecordBatch] = []
        self._cut = 0

    def add(self, piece: pa.RecordBatch) -> None:
        self._pieces.append(piece)
        self.messages += piece.num_rows
        self._bytes += _bytes_of(piece)

    def full(self, target: int, bytes_max: int) -> Iterator[Chunk]:
        """The chunks that the next message would make too large."""
        while self.messages >= CHUNK_MESSAGES or self._bytes > bytes_max:
            sums = pc.cumulative_sum(_sizes(self._whole()))
            most = min(CHUNK_MESSAGES, self.messages)
            fitting = bisect_right(range(most), bytes_max, key=lambda row: sums[row].as_py())
            yield self.cut(target, max(1, fitting))

    def cut(self, target: int, messages: int) -> Chunk:
        """The first messages, this many, or fewer if these have too many topics."""
        whole = self._whole()
        chunk = whole.slice(0, messages)
        topics = chunk.column("topic").dictionary_encode()
        if len(topics.dictionary) > TOPICS_PER_BATCH_MAX:
            # Topics are numbered in the order in which they come.
            chunk = chunk.slice(0, pc.index(topics.indices, TOPICS_PER_BATCH_MAX).as_py())
        self._pieces = [whole.slice(chunk.num_rows)]
        self.messages -= chunk.num_rows
        self._bytes -= _bytes_of(chunk)
        self._cut += 1
        return Chunk(target, self._cut - 1, chunk)

    def _whole(self) -> pa.RecordBatch:
        if len(self._pieces) > 1:
            self._pieces = [pa.concat_batches(self._pieces)]
        return self._pieces[0]


def largest_row(messages: pa.RecordBatch) -> dict[str, Any]:
    """The message of a chunk that has the most bytes, by its columns."""
    sizes = _sizes(messages)
    found: dict[str, Any] = messages.slice(pc.index(sizes, pc.max(sizes)).as_py(), 1).to_pylist()[0]
    return found


def _bytes_of(messages: pa.RecordBatch) -> int:
    return int(pc.sum(_sizes(messages)).as_py() or 0)


def _sizes(messages: pa.RecordBatch) -> pa.Array:
    """The bytes of each message, and of what tells it and its headers apart."""
    sizes = pc.add(_lengths(messages.column("value")), MESSAGE_OVERHEAD_BYTES)
    if "key" in messages.schema.names:
        sizes = pc.add(sizes, _lengths(messages.column("key")))
    if "headers" in messages.schema.names:
        sizes = pc.add(sizes, _headers_sizes(messages.column("headers")))
    return sizes


def _lengths(column: pa.Array) -> pa.Array:
    return pc.binary_length(column).cast(pa.int64()).fill_null(0)


def _headers_sizes(headers: pa.Array) -> pa.Array:
    names, values = headers.flatten().flatten()
    pairs = pc.add(pc.add(_lengths(names), _lengths(values)), HEADER_ROOM_BYTES)
    before = _sums(pairs).take(_sums(pc.list_value_length(headers).cast(pa.int64()).fill_null(0)))
    return pc.subtract(before.slice(1), before.slice(0, len(headers)))


def _sums(numbers: pa.Array) -> pa.Array:
    """The sums of none of these numbers, of the first, of the first two, …"""
    return pa.concat_arrays([pa.array([0], pa.int64()), pc.cumulative_sum(numbers)])

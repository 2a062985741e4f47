"""Batches as Arrow record batches. Needs the extra ``hqueue[arrow]``.

HBase's cells hold Arrow's own binary layout, so a column of bodies is made from a cell
without touching its messages: the offsets and the bytes are taken where they lie.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from itertools import groupby

import pyarrow as pa
import pyarrow.compute as pc

from hqueue.consume.decode import messages_of
from hqueue.errors import CorruptLogError
from hqueue.format import RAW, SCATTERED, TopicEntry, positions
from hqueue.log import Batch
from hqueue.settings.limits import BATCH_MESSAGES_MAX, SEQUENCE_BITS

__all__ = ["SCHEMA", "record_batch", "with_queue"]

SCHEMA = pa.schema(
    [
        pa.field("partition", pa.int16(), nullable=False),
        pa.field("timestamp", pa.timestamp("ms", tz="UTC"), nullable=False),
        pa.field("id", pa.int64(), nullable=False),
        pa.field("topic", pa.string(), nullable=False),
        pa.field("value", pa.binary(), nullable=False),
    ]
)
"""``id`` is the MessageID as an integer; ``timestamp`` its time."""

SMALL_BATCH = 64
"""Batches of fewer messages are put together message by message, which costs less there."""

_Columns = tuple[pa.Array, pa.Array, pa.Array, pa.Array]

_POSITIONS = pa.array(array("q", range(BATCH_MESSAGES_MAX)))


def record_batch(batches: Sequence[Batch]) -> pa.RecordBatch:
    """The wanted messages of some batches, in order: by batch, and by ID in each.

    Raises:
        CorruptLogError: the offsets or positions in a cell make no sense, although its checksum
            fits: a writer with a fault wrote it. Nothing is read outside of a cell.
    """
    pieces: list[_Columns] = []
    for small, run in groupby(batches, lambda batch: batch.header.count < SMALL_BATCH):
        if small:
            pieces.append(_by_message(run))
        else:
            pieces.extend(map(_by_cell, run))
    partitions, ids, topics, values = map(_together, zip(*pieces, strict=True))
    stamps = pc.shift_right(ids, pa.scalar(SEQUENCE_BITS, pa.int64()))
    timestamps = stamps.cast(SCHEMA.field("timestamp").type)
    return pa.RecordBatch.from_arrays([partitions, timestamps, ids, topics, values], schema=SCHEMA)


def with_queue(batches: Sequence[Batch], queue: str) -> pa.RecordBatch:
    """As `record_batch`, with the queue's name in a first column, ``queue``."""
    columns = record_batch(batches)
    return pa.RecordBatch.from_arrays(
        [pa.repeat(pa.scalar(queue, pa.string()), columns.num_rows), *columns.columns],
        schema=SCHEMA.insert(0, pa.field("queue", pa.string(), nullable=False)),
    )


def _together(arrays: Sequence[pa.Array]) -> pa.Array:
    """One after another; what is alone is not copied."""
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)


def _by_message(batches: Iterable[Batch]) -> _Columns:
    messages = [message for batch in batches for message in messages_of(batch)]
    return (
        pa.array([message.partition for message in messages], pa.int16()),
        pa.array([int(message.id) for message in messages], pa.int64()),
        pa.array([message.topic for message in messages], pa.string()),
        pa.array([message.value for message in messages], pa.binary()),
    )


def _by_cell(batch: Batch) -> _Columns:
    try:
        parts = [_columns(batch, entry, cell) for entry, cell in batch.cells]
    except CorruptLogError as exc:
        exc.facts["row"] = batch.key.hex()
        raise
    ids, topics, values = parts[0] if len(parts) == 1 else _merged(parts)
    if batch.start > batch.header.base or batch.stop < batch.header.end:
        wanted = pc.and_(pc.greater_equal(ids, batch.start), pc.less(ids, batch.stop))
        ids, topics, values = (column.filter(wanted) for column in (ids, topics, values))
    return pa.repeat(pa.scalar(batch.partition, pa.int16()), len(ids)), ids, topics, values


def _columns(batch: Batch, entry: TopicEntry, cell: bytes) -> tuple[pa.Array, pa.Array, pa.Array]:
    if entry.layout == SCATTERED:
        offsets_at = 4 * entry.count
        indexes = pa.array(positions(batch.header, entry, cell), pa.int64())
    else:
        offsets_at = 0
        indexes = _POSITIONS.slice(entry.first, entry.count)
    if entry.layout == RAW:
        values = pa.array([cell], pa.binary())
    else:
        buffer = pa.py_buffer(cell)
        data_at = offsets_at + 4 * (entry.count + 1)
        values = pa.Array.from_buffers(
            pa.binary(),
            entry.count,
            [None, buffer.slice(offsets_at, data_at - offsets_at), buffer.slice(data_at)],
        )
        try:
            values.validate(full=True)  # Users of the column trust its offsets.
        except pa.ArrowInvalid as exc:
            raise CorruptLogError("the bodies have impossible offsets", topic=entry.topic) from exc
    ids = pc.add(indexes, pa.scalar(batch.header.base, pa.int64()))
    return ids, pa.repeat(entry.topic, entry.count), values


def _merged(
    parts: Sequence[tuple[pa.Array, pa.Array, pa.Array]],
) -> tuple[pa.Array, pa.Array, pa.Array]:
    ids, topics, values = (pa.concat_arrays(columns) for columns in zip(*parts, strict=True))
    order = pc.array_sort_indices(ids)
    return ids.take(order), topics.take(order), values.take(order)

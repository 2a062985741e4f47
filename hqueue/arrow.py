"""Batches as Arrow record batches. Needs the extra ``hqueue[arrow]``.

HBase's cells hold Arrow's own binary layout, so a column of bodies is made from a cell, and a cell
from a column, without touching its messages: the offsets and the bytes are taken where they lie.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from hqueue.batch import (
    RAW,
    SCATTERED,
    Bodies,
    Column,
    TopicEntry,
    bodies_of,
    check_count,
    check_size,
    positions,
)
from hqueue.decode import messages_of
from hqueue.errors import CorruptLogError, InvalidInputError
from hqueue.limits import BATCH_MESSAGES_MAX, SEQUENCE_BITS
from hqueue.log import Batch

__all__ = ["SCHEMA", "encode_record_batch", "record_batch"]

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


def _together(arrays: Sequence[pa.Array]) -> pa.Array:
    """One after another; what is alone is not copied."""
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)


def _by_message(batches: Iterable[Batch]) -> _Columns:
    messages = [message for batch in batches for message in messages_of(batch)]
    return (
        pa.array([message.partition for message in messages], pa.int16()),
        pa.array([int(message.id or 0) for message in messages], pa.int64()),
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
        places = pa.array(positions(batch.header, entry, cell), pa.int64())
    else:
        offsets_at = 0
        places = _POSITIONS.slice(entry.first, entry.count)
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
            values.validate(full=True)  # Whoever uses the column trusts its offsets.
        except pa.ArrowInvalid as exc:
            raise CorruptLogError("the bodies have impossible offsets", topic=entry.topic) from exc
    ids = pc.add(places, pa.scalar(batch.header.base, pa.int64()))
    return ids, pa.repeat(entry.topic, entry.count), values


def _merged(
    parts: Sequence[tuple[pa.Array, pa.Array, pa.Array]],
) -> tuple[pa.Array, pa.Array, pa.Array]:
    ids, topics, values = (pa.concat_arrays(columns) for columns in zip(*parts, strict=True))
    order = pc.array_sort_indices(ids)
    return ids.take(order), topics.take(order), values.take(order)


def encode_record_batch(batch: pa.RecordBatch) -> Bodies:
    """Pack the messages of a record batch, in its order: its columns ``topic`` and ``value``.

    Other columns are left out, so what `record_batch` made can be written again. Gives the same
    bytes as `hqueue.batch.encode_bodies` does for the same messages.

    Raises:
        InvalidInputError: there are no messages or too many, too many topics, a null, or no such
            column, or one of another type.
        MessageTooLargeError: together they are larger than a batch may be.
    """
    check_count(batch.num_rows)
    values = _given(batch, "value", pa.binary(), (*_TEXT, *_BINARY))
    _, first, last = _offsets(values)
    check_size(last - first)
    topics = _given(batch, "topic", pa.string(), _TEXT)
    if pc.all(pc.equal(topics, topics[0])).as_py():
        return bodies_of([_column(topics[0].as_py(), range(batch.num_rows), values)])
    topics = topics.dictionary_encode()
    names = topics.dictionary.to_pylist()
    # A stable sort: the messages of a topic stay in their order.
    order = pc.array_sort_indices(topics.indices)
    runs = pc.run_end_encode(topics.indices.take(order))
    values = values.take(order)
    columns = []
    start = 0
    for name, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
        places = order.slice(start, end - start).to_pylist()
        columns.append(_column(names[name], places, values.slice(start, end - start)))
        start = end
    return bodies_of(columns)


_TEXT = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
_BINARY = (
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_fixed_size_binary,
    pa.types.is_binary_view,
)


def _given(
    batch: pa.RecordBatch, name: str, kind: pa.DataType, accepted: Sequence[Callable[[Any], bool]]
) -> pa.Array:
    """A column as this type, without nulls."""
    if batch.schema.names.count(name) != 1:
        raise InvalidInputError(
            "a record batch to put has one column topic and one column value",
            columns=batch.schema.names,
        )
    column = batch.column(name)
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if not any(is_kind(column.type) for is_kind in accepted):
        raise InvalidInputError(
            "topics are strings, and values are binary or strings",
            column=name,
            type=str(column.type),
        )
    if column.null_count:
        raise InvalidInputError("a message has a topic and a value, never null", column=name)
    if column.type == kind:
        return column
    try:
        return column.cast(kind)
    except pa.ArrowInvalid as exc:  # More than 2 GiB of it.
        raise InvalidInputError("a column is larger than a batch may be", column=name) from exc


def _offsets(values: pa.Array) -> tuple[pa.Array, int, int]:
    """Where the values of a binary array begin and end in its bytes; the first, and the last."""
    count = len(values)
    offsets = pa.Array.from_buffers(
        pa.int32(), count + 1, [None, values.buffers()[1]], offset=values.offset
    )
    return offsets, offsets[0].as_py(), offsets[count].as_py()


def _column(topic: str, places: Sequence[int], values: pa.Array) -> Column:
    """The column of a slice of a binary array, whose buffers are those of the whole."""
    offsets, first, last = _offsets(values)
    data = values.buffers()[2]
    if first:
        offsets = pc.subtract(offsets, pa.scalar(first, pa.int32()))
    begin = 4 * offsets.offset
    return Column(
        topic,
        places,
        memoryview(offsets.buffers()[1])[begin : begin + 4 * len(offsets)],
        [memoryview(data)[first:last]] if data is not None else [],
        last - first,
    )

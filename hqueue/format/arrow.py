"""Record batches as the bytes of a batch. Needs the extra ``hqueue[arrow]``.

HBase's cells hold Arrow's own binary layout, so a cell is made from a column without
touching its messages: the offsets and the bytes are taken where they lie.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from hqueue.errors import InvalidInputError
from hqueue.format import Bodies, Column, bodies_of, check_count, check_size

__all__ = ["encode_record_batch"]


def encode_record_batch(batch: pa.RecordBatch) -> Bodies:
    """Pack the messages of a record batch, in its order: its columns ``topic`` and ``value``.

    Other columns are left out, so what `record_batch` made can be written again. Gives the same
    bytes as `hqueue.format.encode_bodies` does for the same messages.

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
        indexes = order.slice(start, end - start).to_pylist()
        columns.append(_column(names[name], indexes, values.slice(start, end - start)))
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


def _column(topic: str, indexes: Sequence[int], values: pa.Array) -> Column:
    """The column of a slice of a binary array, whose buffers are those of the whole."""
    offsets, first, last = _offsets(values)
    data = values.buffers()[2]
    if first:
        offsets = pc.subtract(offsets, pa.scalar(first, pa.int32()))
    begin = 4 * offsets.offset
    return Column(
        topic,
        indexes,
        memoryview(offsets.buffers()[1])[begin : begin + 4 * len(offsets)],
        [memoryview(data)[first:last]] if data is not None else [],
        last - first,
    )

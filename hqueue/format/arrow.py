"""Record batches as the bytes of a batch. Needs the extra ``hqueue-hbase[arrow]``.

HBase's cells hold Arrow's own layout of binary columns, so a cell is made from a batch's columns
without touching its messages: the offsets and the bytes are taken where they lie.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from hqueue.errors import InvalidInputError
from hqueue.format.arrow_checks import (
    check_layout,
    check_lists,
    check_text,
    decoded,
    offsets_in,
    offsets_of,
    only_text,
    refusing,
)
from hqueue.format.cells import Column, bodies_of, check_count, check_size
from hqueue.format.columns import aligned, packed_bits
from hqueue.format.header import Bodies
from hqueue.message import check_header_count
from hqueue.settings.reserved import PREFIX

__all__ = [
    "HEADERS",
    "distinct_keys",
    "encode_arrow",
    "encode_record_batch",
    "header_names",
    "without_headers",
]

HEADERS = pa.list_(
    pa.field(
        "element",
        pa.struct(
            [
                pa.field("key", pa.string(), nullable=False),
                pa.field("value", pa.binary(), nullable=False),
            ]
        ),
        nullable=False,
    )
)
"""The type of a column of headers: Kafka's in Spark. A message without headers has null."""


REFUSED = "these columns can't be put; cast them to string and binary"


@refusing(REFUSED)
def encode_arrow(messages: pa.RecordBatch | pa.Table) -> Bodies:
    """Pack the messages of a record batch or of a table, as `encode_record_batch`."""
    if isinstance(messages, pa.RecordBatch):
        return encode_record_batch(messages)
    check_count(messages.num_rows)
    with refusing("a table's columns have no possible layout"):
        messages.validate()
        batches = messages.combine_chunks().to_batches()
    if len(batches) > 1:  # A column has more than 2 GiB.
        raise InvalidInputError(
            "a column is larger than the maximum size of a batch: put fewer rows at a time",
            rows=messages.num_rows,
        )
    return encode_record_batch(batches[0])


@refusing(REFUSED)
def encode_record_batch(batch: pa.RecordBatch) -> Bodies:
    """Pack the messages of a record batch, in its order: its columns ``topic`` and ``value``, and
    if it has them ``key`` (null where there is none) and ``headers`` (lists of structs of a name
    and a value; null is an empty list).

    Other columns are left out, so what `record_batch` made can be written again. Gives the same
    bytes as `hqueue.format.encode_bodies` does for the same messages.

    Raises:
        InvalidInputError: there are no messages or too many, too many topics, a null that may not
            be, or no such column, one of another type, or one that is not what its type says, as a
            topic or a header's name that is not UTF-8. So all that is written can be read.
        MessageTooLargeError: together they are larger than a batch may be.
    """
    check_count(batch.num_rows)
    values = _given(batch, "value", pa.binary(), (*_TEXT, *_BINARY))
    offsets = offsets_of(values)
    check_size(offsets[-1] - offsets[0])
    topics = _given(batch, "topic", pa.string(), _TEXT)
    keys, headers = _keys(batch), _headers(batch)
    if headers is not None:
        _check_header_count(headers)
    topic = only_text("topic", topics)
    if topic is not None:
        one = _Columns(values, keys, headers)
        return bodies_of([_column(topic, range(batch.num_rows), one)])
    check_layout("topic", topics)
    topics = topics.dictionary_encode()
    check_text("topic", topics.dictionary)
    names = topics.dictionary.to_pylist()
    # A stable sort: the messages of a topic stay in their order.
    order = pc.array_sort_indices(topics.indices)
    runs = pc.run_end_encode(topics.indices.take(order))
    ordered = _Columns(values, keys, headers).take(order)
    columns = []
    start = 0
    for name, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
        indexes = order.slice(start, end - start).to_pylist()
        columns.append(_column(names[name], indexes, ordered.slice(start, end - start)))
        start = end
    return bodies_of(columns)


@refusing(REFUSED)
def distinct_keys(batch: pa.RecordBatch | pa.Table) -> Iterable[bytes | None]:
    """The keys in a record batch or a table that can be encoded."""
    if "key" not in batch.schema.names:
        return ()
    column = batch.column("key")
    if column.null_count == len(column):  # Perhaps of a type that no key has.
        return [None] if len(column) else ()
    keys = column if column.type == pa.binary() else column.cast(pa.binary())
    distinct: list[bytes | None] = pc.unique(keys).to_pylist()
    return distinct


@refusing(REFUSED)
def header_names(batch: pa.RecordBatch | pa.Table) -> Sequence[str]:
    """The distinct names of the headers in a record batch or a table that can be encoded."""
    if "headers" not in batch.schema.names:
        return ()
    column = batch.column("headers")
    found: set[str] = set()
    for chunk in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
        if chunk.null_count < len(chunk):
            found.update(pc.unique(chunk.flatten().flatten()[0]).to_pylist())
    return sorted(found)


@refusing(REFUSED)
def without_headers(
    batch: pa.RecordBatch | pa.Table, is_dropped: Callable[[str], bool]
) -> pa.RecordBatch | pa.Table:
    """The same messages without the headers of these names. Takes a loop over all headers."""
    at = batch.schema.names.index("headers")
    column = batch.column(at)
    kept: list[list[tuple[str, bytes]]] = []
    for chunk in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
        given = chunk.flatten().flatten()
        names = _as_type("headers", given[0], pa.string(), _TEXT).to_pylist()
        values = _as_type("headers", given[1], pa.binary(), (*_TEXT, *_BINARY)).to_pylist()
        pairs = zip(names, values, strict=True)
        for count in pc.list_value_length(chunk).to_pylist():
            kept.append([pair for pair in islice(pairs, count or 0) if not is_dropped(pair[0])])
    return batch.set_column(at, "headers", pa.array(kept, HEADERS))


FEW = 64
"""This many offsets are counted from 0 on one by one: to call Arrow for them takes longer."""


class _Columns(NamedTuple):
    """The messages of a topic, by column."""

    values: pa.Array
    keys: pa.Array | None
    headers: pa.Array | None
    """Lists of pairs as `HEADERS`, without nulls."""

    def take(self, order: pa.Array) -> _Columns:
        return _Columns(*(None if each is None else each.take(order) for each in self))

    def slice(self, start: int, count: int) -> _Columns:
        return _Columns(*(None if each is None else each.slice(start, count) for each in self))


_TEXT = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
_BINARY = (
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_fixed_size_binary,
    pa.types.is_binary_view,
)
_LISTS = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)


def _given(
    batch: pa.RecordBatch,
    name: str,
    kind: pa.DataType,
    accepted: Sequence[Callable[[Any], bool]],
) -> pa.Array:
    """A column as this type, without nulls."""
    if batch.schema.names.count(name) != 1:
        raise InvalidInputError(
            "a record batch to put needs one column named topic and one column named value",
            columns=batch.schema.names,
        )
    column = _as_type(name, batch.column(name), kind, accepted)
    if column.null_count:
        raise InvalidInputError("a message's topic and value can't be null", column=name)
    return column


def _as_type(
    name: str, column: pa.Array, kind: pa.DataType, accepted: Sequence[Callable[[Any], bool]]
) -> pa.Array:
    """A column as this type. What is not text has a layout that was checked."""
    if column.type == kind:
        if not pa.types.is_string(kind):  # More is asked of those, which is looked at together.
            check_layout(name, column)
        return column
    if pa.types.is_dictionary(column.type):
        column = decoded(name, column)
    if not any(is_kind(column.type) for is_kind in accepted):
        raise InvalidInputError(
            "topics must be strings, and values and keys must be binary or strings",
            column=name,
            type=str(column.type),
        )
    check_layout(name, column)
    # It may have more than 2 GiB, or text that is not UTF-8.
    with refusing("a column can't be in a batch", column=name):
        return column.cast(kind)


def _optional(batch: pa.RecordBatch, name: str) -> pa.Array | None:
    """A column that need not be there; None if it isn't, or has nulls only."""
    count = batch.schema.names.count(name)
    if count > 1:
        raise InvalidInputError(
            "a record batch to put can't have two columns of the same name",
            columns=batch.schema.names,
        )
    column = batch.column(name) if count else None
    return None if column is None or column.null_count == len(column) else column


def _keys(batch: pa.RecordBatch) -> pa.Array | None:
    keys = _optional(batch, "key")
    return None if keys is None else _as_type("key", keys, pa.binary(), (*_TEXT, *_BINARY))


def _headers(batch: pa.RecordBatch) -> pa.Array | None:
    """The column of headers as a list of structs."""
    headers = _optional(batch, "headers")
    if headers is None:
        return None
    kind = headers.type
    element = kind.value_type if any(is_kind(kind) for is_kind in _LISTS) else None
    if element is None or not pa.types.is_struct(element) or element.num_fields != 2:
        raise InvalidInputError(
            "headers must be lists of structs with a name and a value", type=str(kind)
        )
    check_lists("headers", headers)
    pairs = headers.flatten()
    given = pairs.flatten()
    if pairs.null_count or any(each.null_count for each in given):
        raise InvalidInputError("a header's name and value can't be null", column="headers")
    names = _as_type("headers", given[0], pa.string(), _TEXT)
    values = _as_type("headers", given[1], pa.binary(), (*_TEXT, *_BINARY))
    if len(names):
        check_text("headers", names)
    if (
        pa.types.is_list(kind)
        and not headers.null_count
        and names is given[0]
        and values is given[1]
    ):
        return headers
    lengths = pc.list_value_length(headers).cast(pa.int32()).fill_null(0)
    ends = pc.cumulative_sum(lengths)
    of_messages = pa.concat_arrays([pa.array([0], pa.int32()), ends])
    pairs = pa.StructArray.from_arrays([names, values], fields=list(HEADERS.value_type))
    return pa.ListArray.from_arrays(of_messages, pairs, HEADERS)


def _check_header_count(headers: pa.Array) -> None:
    """Refuse a column with more headers than a batch may have."""
    offsets = offsets_in(headers.buffers()[1], headers.offset, len(headers))
    first, count = offsets[0], offsets[-1] - offsets[0]

    def count_own() -> int:
        names, _ = headers.values.slice(first, count).flatten()
        return int(pc.sum(pc.starts_with(names, PREFIX)).as_py() or 0)

    check_header_count(count, count_own)


def _from_zero(offsets: memoryview) -> memoryview:
    """Offsets as they are counted from 0 on."""
    first = offsets[0]
    if not first:
        return offsets
    if len(offsets) <= FEW:
        return memoryview(array("i", [each - first for each in offsets]))
    given = pa.Array.from_buffers(pa.int32(), len(offsets), [None, pa.py_buffer(offsets)])
    return offsets_in(
        pc.subtract(given, pa.scalar(first, pa.int32())).buffers()[1], 0, len(offsets) - 1
    )


def _pieces(values: pa.Array) -> tuple[memoryview, list[memoryview], int]:
    """The offsets of a binary array from 0 on, its bytes, and how many these are."""
    offsets = offsets_of(values)
    first, last = offsets[0], offsets[-1]
    data = values.buffers()[2]
    pieces = [memoryview(data)[first:last]] if data is not None else []
    return _from_zero(offsets), pieces, last - first


def _column(topic: str, indexes: Sequence[int], columns: _Columns) -> Column:
    """The column of slices, whose buffers are those of the whole arrays."""
    keys = b"" if columns.keys is None else _keys_column(columns.keys)
    headers = b"" if columns.headers is None else _headers_column(columns.headers)
    return Column(topic, indexes, *_pieces(columns.values), keys, headers)


def _keys_column(keys: pa.Array) -> bytes:
    """Like `hqueue.format.columns.encode_keys`."""
    if keys.null_count == len(keys):
        return b""
    valid = keys.is_valid().cast(pa.uint8())
    flags = memoryview(valid.buffers()[1])[valid.offset : valid.offset + len(valid)].tobytes()
    offsets, data, _ = _pieces(keys.fill_null(b"") if keys.null_count else keys)
    return aligned([offsets, packed_bits(flags), *data])


def _headers_column(headers: pa.Array) -> bytes:
    """Like `hqueue.format.columns.encode_headers`."""
    offsets = offsets_in(headers.buffers()[1], headers.offset, len(headers))
    first, last = offsets[0], offsets[-1]
    if first == last:
        return b""
    names, values = headers.values.slice(first, last - first).flatten()
    name_offsets, name_data, _ = _pieces(names)
    value_offsets, value_data, _ = _pieces(values)
    return aligned([_from_zero(offsets), name_offsets, value_offsets, *name_data, *value_data])

"""Batches as Arrow record batches. Needs the extra ``hqueue-hbase[arrow]``.

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
from hqueue.format.arrow import HEADERS
from hqueue.format.cells import offsets_at, positions
from hqueue.format.columns import HeadersColumn, KeysColumn
from hqueue.format.header import RAW, SCATTERED, TopicEntry
from hqueue.log import Batch
from hqueue.message import ReceivedMessage
from hqueue.runtime.pieces import PIECE, drop_in_pieces
from hqueue.settings.limits import BATCH_MESSAGES_MAX, SEQUENCE_BITS

__all__ = ["SCHEMA", "first_of", "record_batch", "record_batch_of", "with_queue"]

SCHEMA = pa.schema(
    [
        pa.field("partition", pa.int16(), nullable=False),
        pa.field("timestamp", pa.timestamp("ms", tz="UTC"), nullable=False),
        pa.field("id", pa.int64(), nullable=False),
        pa.field("topic", pa.string(), nullable=False),
        pa.field("value", pa.binary(), nullable=False),
        pa.field("key", pa.binary()),
        pa.field("headers", HEADERS),
    ]
)
"""``id`` is the MessageID as an integer; ``timestamp`` its time. ``key`` is null where there is
none, and ``headers`` where there are none.
"""

SMALL_BATCH = 64
"""Batches of fewer messages are put together message by message, which costs less there, unless
they are large."""

LARGE_BYTES = 512 * 1024
"""To copy this many bytes costs more than a record batch does."""

_Columns = tuple[pa.Array, ...]

ARRAYS_FREED_TOGETHER = 100
"""The partitions, IDs, topics, values, keys and headers of some messages."""

_POSITIONS = pa.array(array("q", range(BATCH_MESSAGES_MAX)))


def record_batch(batches: Sequence[Batch]) -> pa.RecordBatch:
    """The wanted messages of some batches, in order: by batch, and by ID in each.

    Raises:
        CorruptLogError: the offsets or positions in a cell are impossible, although its checksum
            fits: a writer with a fault wrote it. Nothing is read outside of a cell. Where an
            operator chose so, there is no error, and that cell's messages are skipped.
        StoreUnavailableError: it is not known whether one did.
    """
    pieces: list[_Columns] = []
    for small, run in groupby(batches, _is_small):
        if small:
            pieces.append(_by_message(run))
        else:
            pieces.extend(map(_by_cell, run))
    return _with_timestamps(*map(_together, zip(*pieces, strict=True)))


def _is_small(batch: Batch) -> bool:
    return batch.header.count < SMALL_BATCH and not _is_large(batch)


def record_batch_of(messages: Sequence[ReceivedMessage]) -> pa.RecordBatch:
    """Messages as a record batch."""
    return _with_timestamps(*_by_pieces(messages))


def _with_timestamps(partitions: pa.Array, ids: pa.Array, *fields: pa.Array) -> pa.RecordBatch:
    stamps = pc.shift_right(ids, pa.scalar(SEQUENCE_BITS, pa.int64()))
    timestamps = stamps.cast(SCHEMA.field("timestamp").type)
    return pa.RecordBatch.from_arrays([partitions, timestamps, ids, *fields], schema=SCHEMA)


def first_of(batches: Iterable[Batch]) -> list[Batch]:
    """The first of some batches, for a record batch: a large one is not copied to be put together
    with others.
    """
    large, run = next(groupby(batches, _is_large))
    return [next(run)] if large else list(run)


def _is_large(batch: Batch) -> bool:
    return sum(len(cell) for _, cell in batch.cells) >= LARGE_BYTES


def with_queue(batches: Sequence[Batch], queue: str) -> pa.RecordBatch:
    """Like `record_batch`, with the queue's name in a first column, ``queue``."""
    columns = record_batch(batches)
    return pa.RecordBatch.from_arrays(
        [pa.repeat(pa.scalar(queue, pa.string()), columns.num_rows), *columns.columns],
        schema=SCHEMA.insert(0, pa.field("queue", pa.string(), nullable=False)),
    )


def _together(arrays: Sequence[pa.Array]) -> pa.Array:
    """One after another; what is alone is not copied."""
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)


def _by_message(batches: Iterable[Batch]) -> _Columns:
    return _by_pieces([message for batch in batches for message in messages_of(batch)])


def _by_pieces(messages: Sequence[ReceivedMessage]) -> _Columns:
    starts = range(0, len(messages) or 1, PIECE)
    pieces = [_columns_of(messages[at : at + PIECE]) for at in starts]
    return tuple(map(_together, zip(*pieces, strict=True)))


def _columns_of(messages: Sequence[ReceivedMessage]) -> _Columns:
    return (
        pa.array([message.partition for message in messages], pa.int16()),
        pa.array([int(message.id) for message in messages], pa.int64()),
        pa.array([message.topic for message in messages], pa.string()),
        pa.array([message.value for message in messages], pa.binary()),
        pa.array([message.key for message in messages], pa.binary()),
        pa.array([message.headers or None for message in messages], HEADERS),
    )


def _by_cell(batch: Batch) -> _Columns:
    parts = []
    for entry, cell in batch.cells:
        try:
            parts.append(_columns(batch, entry, cell))
        except CorruptLogError as exc:
            exc.facts["row"] = batch.key.hex()
            batch.skips.skip(batch.key, batch.header, entry, exc)
    if not parts:  # All of it is skipped.
        return _by_message([])
    columns = parts[0] if len(parts) == 1 else _merged(parts)
    if batch.start > batch.header.base or batch.stop < batch.header.end:
        ids = columns[0]
        wanted = pc.and_(pc.greater_equal(ids, batch.start), pc.less(ids, batch.stop))
        columns = tuple(column.filter(wanted) for column in columns)
    return pa.repeat(pa.scalar(batch.partition, pa.int16()), len(columns[0])), *columns


def _columns(batch: Batch, entry: TopicEntry, cell: bytes) -> _Columns:
    """The columns of a cell, but for the partition."""
    if entry.layout == SCATTERED:
        indexes = pa.array(positions(batch.header, entry, cell), pa.int64())
    else:
        indexes = _POSITIONS.slice(entry.first, entry.count)
    ids = pc.add(indexes, pa.scalar(batch.header.base, pa.int64()))
    buffer = pa.py_buffer(cell)
    return (
        ids,
        pa.repeat(entry.topic, entry.count),
        _values(entry, buffer),
        _keys(entry, cell, buffer),
        _headers(entry, cell, buffer),
    )


def _values(entry: TopicEntry, cell: pa.Buffer) -> pa.Array:
    if entry.layout == RAW:
        return pa.array([cell[entry.values_at :].to_pybytes()], pa.binary())
    at = offsets_at(entry)
    data_at = at + 4 * (entry.count + 1)
    buffers = [None, cell.slice(at, data_at - at), cell.slice(data_at)]
    values = pa.Array.from_buffers(pa.binary(), entry.count, buffers)
    _validate(values, "a topic's messages in a batch have impossible offsets", entry)
    return values


def _keys(entry: TopicEntry, cell: bytes, buffer: pa.Buffer) -> pa.Array:
    if not entry.key_bytes:
        return pa.nulls(entry.count, pa.binary())
    parts = KeysColumn.of(cell[: entry.key_bytes], entry.count)
    if parts is None:
        raise CorruptLogError("the column of keys is malformed", topic=entry.topic)
    buffers = _cut(buffer, 0, (parts.validity_at, parts.data_at, parts.end))
    offsets, validity, data = buffers
    keys = pa.Array.from_buffers(pa.binary(), entry.count, [validity, offsets, data])
    _validate(keys, "the column of keys is malformed", entry)
    return keys


def _headers(entry: TopicEntry, cell: bytes, buffer: pa.Buffer) -> pa.Array:
    if not entry.header_bytes:
        return pa.nulls(entry.count, HEADERS)
    parts = HeadersColumn.of(cell[entry.key_bytes : entry.values_at], entry.count)
    if parts is None:
        raise CorruptLogError("the column of headers is malformed", topic=entry.topic)
    of_messages, of_names, of_values, name_data, value_data = _cut(
        buffer, entry.key_bytes, parts[1:]
    )
    names = pa.Array.from_buffers(pa.string(), parts.headers, [None, of_names, name_data])
    values = pa.Array.from_buffers(pa.binary(), parts.headers, [None, of_values, value_data])
    # Checked before anything is done with them; and names for being UTF-8.
    _validate(names, "the column of headers is malformed", entry)
    _validate(values, "the column of headers is malformed", entry)
    pairs = pa.StructArray.from_arrays([names, values], fields=list(HEADERS.value_type))
    headers = pa.Array.from_buffers(HEADERS, entry.count, [None, of_messages], children=[pairs])
    _validate(headers, "the column of headers is malformed", entry)
    none = pc.equal(pc.list_value_length(headers), 0)
    return pc.if_else(none, pa.scalar(None, HEADERS), headers)


def _cut(buffer: pa.Buffer, start: int, ends: Iterable[int]) -> list[pa.Buffer]:
    """Parts of a buffer one after another, whose ends are counted from `start`."""
    parts, at = [], start
    for end in ends:
        parts.append(buffer.slice(at, start + end - at))
        at = start + end
    return parts


def _validate(array: pa.Array, text: str, entry: TopicEntry) -> None:
    """See that users of a column can trust its offsets.

    Raises:
        CorruptLogError: they can't.
    """
    try:
        array.validate(full=True)
    except pa.ArrowException as exc:
        raise CorruptLogError(text, topic=entry.topic) from exc


def _merged(parts: list[_Columns]) -> _Columns:
    columns = [pa.concat_arrays(each) for each in zip(*parts, strict=True)]
    drop_in_pieces(parts, ARRAYS_FREED_TOGETHER)
    order = pc.array_sort_indices(columns[0])
    return tuple(column.take(order) for column in columns)

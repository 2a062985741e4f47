"""Batches as Arrow record batches. Needs the extra ``hqueue[arrow]``.

HBase's cells hold Arrow's own binary layout, so a column of bodies is made from a cell without
touching its messages: the offsets and the bytes are taken where they lie.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from hqueue.batch import RAW, SCATTERED, TopicEntry, positions
from hqueue.limits import BATCH_MESSAGES_MAX, SEQUENCE_BITS
from hqueue.log import Batch

__all__ = ["SCHEMA", "record_batch"]

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

_POSITIONS = pa.array(array("q", range(BATCH_MESSAGES_MAX)))


def record_batch(batches: Sequence[Batch]) -> pa.RecordBatch:
    """The wanted messages of some batches, in order: by batch, and by ID in each.

    Raises:
        CorruptLogError: never; batches were checked when they were read.
    """
    partition, ids, topics, values = [], [], [], []
    for batch in batches:
        parts = [_columns(batch, entry, cell) for entry, cell in batch.cells]
        id_column, topic, value = parts[0] if len(parts) == 1 else _merged(parts)
        if batch.start > batch.header.base or batch.stop < batch.header.end:
            wanted = pc.and_(
                pc.greater_equal(id_column, batch.start), pc.less(id_column, batch.stop)
            )
            id_column, topic, value = (
                column.filter(wanted) for column in (id_column, topic, value)
            )
        ids.append(id_column)
        topics.append(topic)
        values.append(value)
        partition.append(pa.repeat(pa.scalar(batch.partition, pa.int16()), len(id_column)))
    id_all = pa.concat_arrays(ids)
    stamps = pc.shift_right(id_all, pa.scalar(SEQUENCE_BITS, pa.int64()))
    return pa.RecordBatch.from_arrays(
        [
            pa.concat_arrays(partition),
            stamps.cast(SCHEMA.field("timestamp").type),
            id_all,
            pa.concat_arrays(topics),
            pa.concat_arrays(values),
        ],
        schema=SCHEMA,
    )


def _columns(batch: Batch, entry: TopicEntry, cell: bytes) -> tuple[pa.Array, pa.Array, pa.Array]:
    if entry.layout == SCATTERED:
        offsets_at = 4 * entry.count
        places = pa.array(positions(entry, cell), pa.int64())
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
    ids = pc.add(places, pa.scalar(batch.header.base, pa.int64()))
    return ids, pa.repeat(entry.topic, entry.count), values


def _merged(
    parts: Sequence[tuple[pa.Array, pa.Array, pa.Array]],
) -> tuple[pa.Array, pa.Array, pa.Array]:
    ids, topics, values = (pa.concat_arrays(columns) for columns in zip(*parts, strict=True))
    order = pc.array_sort_indices(ids)
    return ids.take(order), topics.take(order), values.take(order)

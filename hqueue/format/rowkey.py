"""Row keys: where a batch lies in the table.

offset  size  field                big-endian, so that byte order is the order of IDs
0       2     partition            0 to 32,766
2       8     timestamp            ┐ the slot: the MessageID at which the batch before
10      2     sequence             ┘ this one ends, 0 for the first of a partition
"""

from __future__ import annotations

import struct

from hqueue.errors import CorruptLogError
from hqueue.message_id import id_of, sequence_of, timestamp_of
from hqueue.settings.limits import (
    MESSAGE_ID_MAX,
    PARTITIONS_MAX,
    SEQUENCE_MAX,
    TIMESTAMP_MS_MAX,
)

__all__ = [
    "ROW_KEY_BYTES",
    "before_first_of",
    "decode",
    "encode",
    "first_of",
    "partitions_between",
    "split_keys",
]

_LAYOUT = struct.Struct(">HQH")
ROW_KEY_BYTES = _LAYOUT.size


def encode(partition: int, slot: int) -> bytes:
    """The row key of a slot. The caller has checked the ranges.

    A slot of ``MESSAGE_ID_MAX + 1`` gives the first key beyond the partition's last.
    """
    if slot > MESSAGE_ID_MAX:
        return first_of(partition + 1)
    return _LAYOUT.pack(partition, timestamp_of(slot), sequence_of(slot))


def decode(row: bytes) -> tuple[int, int]:
    """The partition and the slot of a row key.

    Raises:
        CorruptLogError: no queue writes such a row key.
    """
    if len(row) == ROW_KEY_BYTES:
        partition, timestamp, sequence = _LAYOUT.unpack(row)
        if (
            partition < PARTITIONS_MAX
            and timestamp <= TIMESTAMP_MS_MAX
            and sequence <= SEQUENCE_MAX
        ):
            return partition, id_of(timestamp, sequence)
    raise CorruptLogError("the row key does not belong to a queue", row=row.hex())


def first_of(partition: int) -> bytes:
    """The smallest row key that a partition can have."""
    return _LAYOUT.pack(partition, 0, 0)


def before_first_of(partition: int) -> bytes:
    """Below the first row of a partition, above those of the one before it.

    It is where a reversed scan of the partition stops, for stop rows are exclusive. Empty, which
    means no stop, for partition 0.
    """
    return b"" if partition == 0 else _LAYOUT.pack(partition - 1, 2**64 - 1, 2**16 - 1)


def split_keys(partitions: int, partitions_per_region: int) -> list[bytes]:
    """Where the regions of a queue begin, but for the first: whole partitions each."""
    return [
        partition.to_bytes(2, "big")
        for partition in range(partitions_per_region, partitions, partitions_per_region)
    ]


def partitions_between(start: bytes, end: bytes, partitions: int) -> tuple[int, int]:
    """The first and the last partition that may have rows in a region.

    Args:
        start: the region's first row key; empty for that of the table.
        end: the first row key beyond it; empty for none.
        partitions: how many the queue has.
    """
    first = int.from_bytes(start[:2].ljust(2, b"\0"), "big")
    if not end:
        return first, partitions - 1
    last = int.from_bytes(end[:2].ljust(2, b"\0"), "big")
    return first, last if end[2:].strip(b"\0") else last - 1

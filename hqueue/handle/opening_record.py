"""The record by which a queue can be opened without the table's description: HBase describes tables
only to those who may alter them, and lets readers read this record.

It lies with the queue's other records, and says only what never changes:

    {"version": 1, "format": 1, "partitions": 4}

``format`` is that of the table. An earlier release that does not know it does not open the queue.
"""

from __future__ import annotations

from typing import Any

from hqueue.errors import UnsupportedFormatError
from hqueue.metadata.encoding import decode_fields, encode_fields
from hqueue.settings.attributes import QueueDescription, check_partitions

__all__ = ["NAME", "decode_opening", "encode_opening"]

NAME = "opening"
FORMAT = 1


def encode_opening(partitions: int) -> bytes:
    """Write the record of a queue."""
    return encode_fields(format=FORMAT, partitions=partitions)


def decode_opening(data: bytes, queue: str) -> QueueDescription:
    """Read the record of a queue. The description has the name and the partitions alone.

    Raises:
        UnsupportedFormatError: a later release made it, or the table.
    """

    def read(fields: dict[str, Any]) -> tuple[object, int]:
        return fields["format"], check_partitions(fields["partitions"])

    form, partitions = decode_fields(data, queue, read)
    if form != FORMAT:
        raise UnsupportedFormatError(
            "a queue's table has a format that this release does not know",
            queue=queue,
            format=form,
        )
    return QueueDescription(queue, partitions, None, {})

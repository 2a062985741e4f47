"""What a table's attributes say: whether it is a queue's, or that of records, and how it is set."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from hqueue.errors import InvalidInputError, NotAQueueError, UnsupportedFormatError
from hqueue.runtime.logs import Log
from hqueue.settings.attributes import ATTRIBUTES, QueueDescription
from hqueue.settings.limits import PARTITIONS_MAX, TTL_SECONDS_MAX

__all__ = [
    "FIXED_ATTRIBUTES",
    "FORMAT",
    "ID",
    "PARTITIONS",
    "RECORDS",
    "RECORDS_FORMAT",
    "SMALL_BLOCK_BYTES",
    "describe",
    "describe_all",
    "text",
]

logger = Log(__name__)

_Table = TypeVar("_Table")

FORMAT = b"hqueue.format"
PARTITIONS = b"hqueue.partitions"

ID = b"hqueue.id"
"""By which a try to create a table is known again whose answer was lost."""

RECORDS = b"hqueue.records"
RECORDS_FORMAT = b"1"

SMALL_BLOCK_BYTES = 16 * 1024
"""Of a block of records that is read one small row is wanted."""

FIXED_ATTRIBUTES = {
    b"SPLIT_POLICY": b"org.apache.hadoop.hbase.regionserver.DisabledRegionSplitPolicy",
    b"NORMALIZATION_ENABLED": b"false",
    b"SPLIT_ENABLED": b"false",
    b"MERGE_ENABLED": b"false",
    FORMAT: b"1",
}
"""Those of every queue's table: partitions lie in one region each, and stay there."""


def text(value: bytes) -> str:
    """An attribute, which an operator may have given any bytes."""
    return value.decode(errors="backslashreplace")


def describe(
    name: str,
    table: Mapping[bytes, bytes],
    message: Mapping[bytes, bytes] | None,
    ttl_seconds: int | None,
    enabled: bool | None,
) -> QueueDescription:
    """A queue, by its table.

    Args:
        name: its name.
        table: the table's attributes.
        message: those of the family of bodies; None if there is none.
        ttl_seconds: how long that one keeps them.
        enabled: whether the table is.

    Raises:
        NotAQueueError: it is not a queue's.
        UnsupportedFormatError: a later release made it.
    """
    values = {text(key): text(value) for key, value in table.items()}
    partitions = values.get(PARTITIONS.decode(), "")
    counted = re.fullmatch(r"\d{1,5}", partitions) and 1 <= int(partitions) <= PARTITIONS_MAX
    if message is None or not counted:
        raise NotAQueueError("this table was not created as a queue", queue=name)
    known = text(FIXED_ATTRIBUTES[FORMAT])
    if values.get(FORMAT.decode(), known) != known:
        raise UnsupportedFormatError(
            "a queue's table has a format that this release does not know",
            queue=name,
            format=values.get(FORMAT.decode()),
        )
    attributes: dict[str, int | str] = {}
    for attribute in ATTRIBUTES.values():
        value = values.get(attribute.table_key)
        if attribute.name == "compression":
            value = text(message.get(b"COMPRESSION", b"NONE"))
        if value is not None:
            try:
                attributes[attribute.name] = attribute.parse(value)
            except InvalidInputError:  # An operator set it, past hqueue. It is as HBase has it.
                attributes[attribute.name] = value
    kept = None if ttl_seconds in (None, TTL_SECONDS_MAX) else ttl_seconds
    return QueueDescription(name, int(partitions), kept, attributes, enabled)


def describe_all(
    tables: Iterable[_Table], describe_one: Callable[[_Table], QueueDescription]
) -> list[QueueDescription]:
    """The queues among these tables, by name. One whose attributes can't be read is left out, and
    logged: it hides no other.
    """
    queues: list[QueueDescription] = []
    for table in tables:
        try:
            queues.append(describe_one(table))
        except (NotAQueueError, UnsupportedFormatError, ValueError) as exc:
            logger.warning("a table that is marked as a queue is left out: %s", exc)
    return sorted(queues, key=lambda queue: queue.name)

"""The names of a queue's table: families, qualifiers and the columns built from them."""

from __future__ import annotations

from collections.abc import Iterable

from hqueue.errors import CorruptLogError
from hqueue.message import topic_bytes

__all__ = [
    "BATCH",
    "HEADER_COLUMN",
    "LOG",
    "MESSAGE",
    "PROBE_ROW_PREFIX",
    "RECORD",
    "RECORD_ROW_PREFIX",
    "columns",
    "topic_of",
]

MESSAGE = b"message"
"""The family of the bodies; a qualifier is a topic."""

LOG = b"log"
"""The family of the headers. A family of its own: headers alone are then read quickly."""

BATCH = b"batch"
HEADER_COLUMN = LOG + b":" + BATCH

PROBE_ROW_PREFIX = b"\xff"
"""Rows beyond every partition, where clocks are measured."""

RECORD = b"record"
RECORD_ROW_PREFIX = PROBE_ROW_PREFIX + b"record/"
"""Rows beyond every partition with a queue's records; the record's name follows."""


def columns(topics: Iterable[str] | None) -> list[bytes]:
    """The Thrift1 columns that a read of these topics needs; None means all topics."""
    if topics is None:
        return [HEADER_COLUMN, MESSAGE]
    return [HEADER_COLUMN, *(MESSAGE + b":" + topic_bytes(topic) for topic in sorted(topics))]


def topic_of(column: bytes, row: bytes) -> str:
    """The topic of a Thrift1 column in family ``message``.

    Raises:
        CorruptLogError: a qualifier that is not UTF-8.
    """
    try:
        return column[len(MESSAGE) + 1 :].decode()
    except UnicodeDecodeError as exc:
        raise CorruptLogError("a topic is not UTF-8", row=row.hex()) from exc

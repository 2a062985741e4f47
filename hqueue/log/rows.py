"""What a row of the store says, once it is decoded."""

from __future__ import annotations

from hqueue.format.header import Header, decode_header
from hqueue.log.ports import Row

__all__ = ["header_of"]


def header_of(row: Row) -> Header:
    """The header of a row.

    Raises:
        CorruptLogError: it is none, or there is none, as where only a body is left.
    """
    return decode_header(row.key, row.header or b"")

"""How a record of fields looks as a row: its cells, and the versions in them.

Family ``r`` has what is read, family ``h`` what is looked up when an answer was lost:

    r:v        the version: a counter of 8 bytes and the nonce of the write, 8 bytes; "-" follows
               where the record is gone, or not made yet
    r:w        the counter of the last write of the whole record
    r:.<name>  a field: the counter of the write, and the value. One that is older than `r:w`
               belongs to what was replaced, and counts as none: so nothing needs to be deleted
    h:0 - h:7  the last versions, each by its counter modulo 8

Nothing is deleted but whole rows, for HBase's delete markers hide what is put in the same
millisecond, and what is put by a server whose clock is behind. A record is deleted by a version
that says so, a tombstone, and then its row is removed if it has that version still. A row that is
not there may still be hidden. So a record is never put there at once: first comes a version without
a record, and from that, once it is seen, the record by compare-and-set. HBase gives what it puts
on condition of a cell no earlier timestamp than that cell's, so nothing hides it.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import NamedTuple

from hqueue.errors import InvalidInputError, UnsupportedFormatError
from hqueue.metadata.fields import FieldRecord, Fields, Found
from hqueue.metadata.ports import VALUE_BYTES_MAX, Version

__all__ = [
    "HISTORY",
    "RECORD",
    "VERSION",
    "Cells",
    "Mark",
    "check_fields",
    "check_version",
    "decode",
    "encode",
    "history_column",
    "row_key",
    "version_of",
]

RECORD = b"r"
HISTORY = b"h"
VERSION = RECORD + b":v"
WHOLE = RECORD + b":w"
FIELD = RECORD + b":."

COUNTER_BYTES = 8
NONCE_BYTES = 8
VERSION_BYTES = COUNTER_BYTES + NONCE_BYTES
GONE = b"-"
KEPT = 8
"""Versions of a record that are kept beside the newest one, to look up what became of a write."""
KEPT_COLUMNS = tuple(HISTORY + b":%d" % number for number in range(KEPT))

ROW_KEY_BYTES_MAX = 32_767
"""HBase's."""

Cells = Mapping[bytes, bytes]
"""A row's, by ``family:qualifier``."""


class Mark(NamedTuple):
    """What a version cell says."""

    counter: int
    nonce: bytes
    gone: bool
    """Whether there is no record."""

    @classmethod
    def first(cls, wall_ms: int) -> Mark:
        """That of a row without a record that was not there. The counter begins at another number
        each time, and a later one at later times: so no version is used twice, nor is one
        of another life of the row taken for one of this life.
        """
        return cls(wall_ms << 20 | secrets.randbits(20), secrets.token_bytes(NONCE_BYTES), True)

    @classmethod
    def decode(cls, cell: bytes) -> Mark | None:
        """What a cell says; None if no version cell looks so."""
        gone = len(cell) == VERSION_BYTES + 1 and cell.endswith(GONE)
        if len(cell) != VERSION_BYTES and not gone:
            return None
        counter = int.from_bytes(cell[:COUNTER_BYTES], "big")
        return cls(counter, cell[COUNTER_BYTES:VERSION_BYTES], gone)

    @property
    def cell(self) -> bytes:
        tail = GONE if self.gone else b""
        return self.counter.to_bytes(COUNTER_BYTES, "big") + self.nonce + tail

    @property
    def version(self) -> Version:
        return Version(self.counter << (8 * NONCE_BYTES) | int.from_bytes(self.nonce, "big"))

    def next(self, *, gone: bool = False) -> Mark:
        """That of a write upon this one."""
        return Mark(self.counter + 1, secrets.token_bytes(NONCE_BYTES), gone)


def check_version(version: Version) -> None:
    """Check that a record of this store may have this version.

    Raises:
        InvalidInputError: no record has this version.
    """
    if not 1 << (8 * NONCE_BYTES) <= version < 1 << (8 * VERSION_BYTES):
        raise InvalidInputError(
            "this store never assigns such a version: pass the version of a record that "
            "was read or written",
            version=version,
        )


def version_of(version: Version) -> Mark:
    """The mark of a record of this version. Raises as `check_version`."""
    check_version(version)
    cell = version.to_bytes(VERSION_BYTES, "big")
    return Mark(int.from_bytes(cell[:COUNTER_BYTES], "big"), cell[COUNTER_BYTES:], False)


def row_key(key: str) -> bytes:
    """A record's row key.

    Raises:
        InvalidInputError: HBase takes none that long, or it has no encoding.
    """
    try:
        row = key.encode()
    except UnicodeEncodeError as exc:
        raise InvalidInputError("a record's key can't be encoded as UTF-8", path=key) from exc
    if not 1 <= len(row) <= ROW_KEY_BYTES_MAX:
        raise InvalidInputError(
            "a record's key must have 1 to 32767 bytes", path=key, bytes=len(row)
        )
    return row


def check_fields(fields: Fields) -> None:
    """Check that a record can hold these fields.

    Raises:
        InvalidInputError: the fields are too large.
    """
    size = sum(map(len, fields.values()))
    if size > VALUE_BYTES_MAX:
        raise InvalidInputError(
            "the fields are larger than the maximum size of a record",
            bytes=size,
            bytes_max=VALUE_BYTES_MAX,
        )


def encode(mark: Mark, fields: Fields, *, whole: bool) -> Cells:
    """The cells of a write."""
    cell = mark.cell
    counter = cell[:COUNTER_BYTES]
    cells = {VERSION: cell, history_column(mark): cell}
    if whole:
        cells[WHOLE] = counter
    for name, value in fields.items():
        cells[FIELD + name.encode()] = counter + value
    return cells


def history_column(mark: Mark) -> bytes:
    """Where a version is kept."""
    return KEPT_COLUMNS[mark.counter % KEPT]


def decode(cells: Cells, key: str) -> Found | None:
    """A row's record, if it has one; or why it can't be read."""
    mark = Mark.decode(cells.get(VERSION, b""))
    if mark is not None and mark.gone:
        return None
    if mark is None or len(cells.get(WHOLE, b"")) != COUNTER_BYTES:
        return UnsupportedFormatError("this row is not a record of hqueue", path=key)
    fields = {}
    for column, cell in cells.items():
        if column.startswith(FIELD):
            if len(cell) < COUNTER_BYTES:
                return UnsupportedFormatError("this row is not a record of hqueue", path=key)
            if cell[:COUNTER_BYTES] >= cells[WHOLE]:
                name = column[len(FIELD) :].decode(errors="backslashreplace")
                fields[name] = cell[COUNTER_BYTES:]
    return FieldRecord(fields, mark.version)

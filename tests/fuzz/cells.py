"""Bytes out of cells: row keys, headers and bodies, and what is made of them."""

from __future__ import annotations

import dataclasses
from typing import Any
from unittest import mock

import pyarrow
from hypothesis import strategies as st

from hqueue.consume.arrow import record_batch
from hqueue.consume.decode import messages_of
from hqueue.errors import CorruptLogError
from hqueue.format import rowkey
from hqueue.format.cells import decode_bodies, positions
from hqueue.format.compression import plain_cell
from hqueue.format.header import decode_header
from hqueue.log import Batch
from hqueue.settings.limits import MESSAGE_ID_MAX

from .rows import GOLDEN, Forgery, Stored, batches, forgeries, written
from .target import Target

__all__ = ["TARGETS"]

KEY = rowkey.encode(7, 1_700_000_000_000 << 15)
BASE = 1_700_000_000_001 << 15

rows = st.sampled_from(GOLDEN) | batches.map(
    lambda bodies: written(bodies, KEY, base=BASE, ordinal=12)
)


def _read(given: tuple[Stored, Forgery]) -> None:
    """A forged row is refused, naming it, or it reads as a batch that makes sense.

    As messages and as Arrow it is the same then.
    """
    original, forgery = given
    row = forgery.apply(original, GOLDEN[1].header)
    try:
        header = decode_header(row.key, row.header)
        cells = tuple(
            (entry, plain_cell(row.key, header, entry, row.cells[entry.topic.encode()]))
            for entry in header.topics
        )
    except CorruptLogError as exc:
        assert exc.row == row.key.hex()
        return
    except KeyError:  # That a topic is missing is for the reader to see.
        return
    assert header.end <= MESSAGE_ID_MAX
    if not cells:
        return
    batch = Batch(7, row.key, header, cells, header.base, header.end)
    try:
        messages = messages_of(batch)
    except CorruptLogError as exc:
        assert exc.row == row.key.hex()
        messages = None
    try:
        tables = [_as_arrow(batch, small_max) for small_max in (0, header.count + 1)]
    except CorruptLogError as exc:
        assert exc.row == row.key.hex()
        assert messages is None, "as messages it can be read"
        return
    assert messages is not None, "as Arrow it can be read"
    for table in tables:
        table.validate(full=True)
        assert [m.id for m in messages] == table.column("id").to_pylist()
        assert [m.value for m in messages] == table.column("value").to_pylist()
        assert [m.key for m in messages] == table.column("key").to_pylist()
        assert [m.headers for m in messages] == [
            tuple((pair["key"], pair["value"]) for pair in headers or ())
            for headers in table.column("headers").to_pylist()
        ]
    part = dataclasses.replace(batch, start=header.base + 1)
    wanted = [message for message in messages if int(message.id) > header.base]
    assert messages_of(part) == wanted
    assert _as_arrow(part, 0).num_rows == len(wanted)
    assert len(messages) == header.count
    assert all(header.base <= int(m.id) < header.end for m in messages)
    for entry, cell in cells:
        assert (
            len(list(decode_bodies(entry, cell)))
            == len(positions(header, entry, cell))
            == entry.count
        )


def _as_arrow(batch: Batch, small_max: int) -> pyarrow.RecordBatch:
    """A batch as Arrow: cut from its cells, or, if it counts as small, by messages."""
    with mock.patch("hqueue.consume.arrow.SMALL_BATCH", small_max):
        return record_batch([batch])


def _read_key(key: bytes) -> None:
    try:
        partition, slot = rowkey.decode(key)
    except CorruptLogError as exc:
        assert exc.row == key.hex()
    else:
        assert rowkey.encode(partition, slot) == key


def _decode_any(given: tuple[bytes, bytes]) -> None:
    try:
        decode_header(*given)
    except CorruptLogError as exc:
        assert exc.row == given[0].hex()


TARGETS: list[Target[Any]] = [
    Target("cells", st.tuples(rows, forgeries), _read),
    Target("row-keys", st.binary(max_size=16), _read_key),
    Target(
        "header-bytes",
        st.tuples(st.binary(max_size=14), st.binary(max_size=200).map(b"HQ".__add__)),
        _decode_any,
    ),
]

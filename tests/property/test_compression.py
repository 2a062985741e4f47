"""Compressed cells: what was written comes back, and what can't be is an error, never a guess."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hqueue import CorruptLogError, Message
from hqueue.errors import UnsupportedFormatError
from hqueue.format.cells import control_record, encode_bodies
from hqueue.format.compression import compressed, plain_cell
from hqueue.format.header import PLAIN, ZSTD, Bodies, Header, decode_header
from hqueue.settings.limits import BATCH_BYTES_MAX
from tests.support.batches import ROW, bodies_lists, header_bytes, signed

TEXT = [
    Message("log" if number % 3 else "metrics", b'{"user": "u%05d", "status": 200}' % number)
    for number in range(200)
]


def stored(given_messages: Sequence[Message], codec: int = ZSTD) -> tuple[Bodies, Header]:
    bodies = compressed(encode_bodies(given_messages), codec)
    return bodies, decode_header(ROW, header_bytes(bodies))


@given(bodies_lists, st.integers(1, 60))
def test_cells_come_back_and_the_header_says_the_same_of_them(
    given_messages: list[Message], times: int
) -> None:
    plain = encode_bodies(given_messages * times)
    bodies, header = stored(given_messages * times)
    assert bodies.codec == header.codec
    assert (bodies.directory, bodies.fingerprint) == (plain.directory, plain.fingerprint)
    assert bodies.size <= plain.size
    for entry in header.topics:
        cell = bodies.cells[entry.topic.encode()]
        assert plain_cell(ROW, header, entry, cell) == plain.cells[entry.topic.encode()]


def test_text_gets_smaller() -> None:
    bodies, header = stored(TEXT)
    assert header.codec == ZSTD
    assert bodies.size < encode_bodies(TEXT).size / 2


@pytest.mark.parametrize(
    "given_messages",
    [
        [Message("t", b"small" * 10)],
        [Message("t", os.urandom(100)) for _ in range(100)],
        [Message("t", os.urandom(100_000)) for _ in range(20)],
        [Message(f"topic {number}", os.urandom(20)) for number in range(500)],
    ],
    ids=["small", "noise", "much noise", "noise in many topics"],
)
def test_what_would_not_get_smaller_stays_as_it_is(given_messages: list[Message]) -> None:
    plain = encode_bodies(given_messages)
    assert compressed(plain, ZSTD) is plain


def test_nothing_is_compressed_where_that_is_off_nor_are_control_records() -> None:
    bodies = encode_bodies(TEXT)
    assert compressed(bodies, PLAIN) is bodies
    control = control_record(b"text" * 1_000)
    assert compressed(control, ZSTD) is control


@given(st.data())
def test_a_damaged_cell_is_an_error_that_names_row_and_topic(data: st.DataObject) -> None:
    bodies, header = stored(TEXT)
    entry = data.draw(st.sampled_from(header.topics))
    cell = bytearray(bodies.cells[entry.topic.encode()])
    whole = plain_cell(ROW, header, entry, bytes(cell))
    for _ in range(data.draw(st.integers(1, 3))):
        cell[data.draw(st.integers(0, len(cell) - 1))] ^= data.draw(st.integers(1, 255))
    found: bytes | CorruptLogError
    try:
        found = plain_cell(ROW, header, entry, bytes(cell))
    except CorruptLogError as exc:
        found = exc
    if isinstance(found, CorruptLogError):
        assert (found.row, found.topic) == (ROW.hex(), entry.topic)
    else:
        assert found == whole, "the same bytes can be compressed in more than one way"


@given(st.data())
def test_a_cell_that_was_cut_off_or_extended_is_an_error(data: st.DataObject) -> None:
    bodies, header = stored(TEXT)
    entry = header.topics[0]
    cell = bodies.cells[entry.topic.encode()]
    changed = data.draw(
        st.binary(min_size=1, max_size=20).map(lambda more: cell + more)
        | st.integers(0, len(cell) - 1).map(lambda size: cell[:size])
    )
    with pytest.raises(CorruptLogError):
        plain_cell(ROW, header, entry, changed)


@pytest.mark.parametrize("size", [-1, 1, BATCH_BYTES_MAX, 2**32 - 1])
def test_a_header_that_lies_about_the_size_gets_an_error_and_no_memory(size: int) -> None:
    bodies, header = stored(TEXT)
    entry = header.topics[0]
    lying = dataclasses.replace(entry, size=entry.size + size if abs(size) == 1 else size)
    with pytest.raises(CorruptLogError):
        plain_cell(ROW, header, lying, bodies.cells[entry.topic.encode()])


@pytest.mark.parametrize("flags", [2, 15, 16, 17, 255])
def test_another_codec_is_an_error_that_names_it(flags: int) -> None:
    bodies, _ = stored(TEXT)
    header = bytearray(header_bytes(bodies)[:-4])
    header[4] = flags
    with pytest.raises(UnsupportedFormatError) as raised:
        decode_header(ROW, signed(bytes(header)))
    assert raised.value.facts["flags"] == flags

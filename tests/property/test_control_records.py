"""What hubs say in headers comes back, and what they can't say is refused: control records, and by
which owners a batch of messages is.
"""

from __future__ import annotations

import contextlib
import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hqueue import CorruptLogError, InvalidInputError, Message
from hqueue.errors import UnsupportedFormatError
from hqueue.format.cells import control_record, encode_bodies
from hqueue.format.control import encode_fences, fences_of, owners_of, with_owners
from hqueue.format.header import Header, decode_header, encode_header

ROW = bytes(12)
topics = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60)
fences = st.dictionaries(topics, st.integers(0, 2**63 - 1), min_size=1, max_size=20)

GOLDEN = "0100020000000000000007056f7264657200000000000000ff02c3a9"


def test_this_release_writes_and_reads_the_golden_bytes() -> None:
    epochs = {"é": 255, "order": 7}
    (record,) = encode_fences(epochs)
    assert record.control.hex() == GOLDEN
    assert fences_of(ROW, bytes.fromhex(GOLDEN)) == epochs


@given(fences)
def test_they_come_back(epochs: dict[str, int]) -> None:
    (record,) = encode_fences(epochs)
    assert fences_of(ROW, record.control) == epochs
    assert (record.count, record.span, record.cells) == (0, 1, {})


@given(st.binary(max_size=80), st.booleans())
def test_any_bytes_are_read_or_refused(payload: bytes, prefixed: bool) -> None:
    with contextlib.suppress(CorruptLogError):
        assert fences_of(ROW, b"\1" * prefixed + payload)


@given(fences, st.data())
def test_what_is_cut_off_or_longer_is_refused(epochs: dict[str, int], data: st.DataObject) -> None:
    (record,) = encode_fences(epochs)
    end = data.draw(st.integers(0, len(record.control) - 1))
    for payload in (record.control[:end], record.control + b"\0"):
        with pytest.raises(CorruptLogError):
            fences_of(ROW, payload)


def test_a_newer_version_is_named() -> None:
    with pytest.raises(UnsupportedFormatError) as caught:
        fences_of(ROW, b"\2")
    assert caught.value.version == 2


def header_of(epochs: dict[str, int]) -> Header:
    """A header that was written and read."""
    bodies = encode_bodies([Message(topic, b"v") for topic in epochs])
    owned = with_owners(bodies, epochs)
    assert (owned.cells, owned.count, owned.directory) == (
        bodies.cells,
        bodies.count,
        bodies.directory,
    )
    data = encode_header(ROW, owned, base=7, ordinal=5, nonce=bytes(8), published_ms=0)
    header = decode_header(ROW, data)
    assert header.fingerprint == owned.fingerprint
    return header


def test_this_release_writes_and_reads_the_golden_bytes_of_owners() -> None:
    epochs = {"é": 255, "order": 7}
    header = header_of(epochs)
    assert header.control.hex() == "01" + "0000000000000007" + "00000000000000ff"
    assert owners_of(ROW, header) == header.owner_epochs == epochs


@given(st.dictionaries(topics.filter(lambda t: len(t.encode()) <= 255), st.integers(0, 2**63 - 1),
                       min_size=1, max_size=20))  # fmt: skip
def test_owners_come_back(epochs: dict[str, int]) -> None:
    assert owners_of(ROW, header_of(epochs)) == epochs


def test_a_batch_by_nobody_has_no_owners_and_a_record_has_none_either() -> None:
    plain = dataclasses.replace(header_of({"t": 1}), control=b"")
    assert owners_of(ROW, plain) == {}
    (record,) = encode_fences({"t": 1})
    data = encode_header(ROW, record, base=7, ordinal=5, nonce=bytes(8), published_ms=0)
    assert owners_of(ROW, decode_header(ROW, data)) == {}
    with pytest.raises(InvalidInputError):
        with_owners(control_record(b"x"), {})
    with pytest.raises(InvalidInputError):
        with_owners(encode_bodies([Message("t", b"")]), {"t": -1})


@given(st.binary(min_size=1, max_size=80), st.booleans())
def test_any_bytes_of_owners_are_read_or_refused_and_the_row_is_named(
    said: bytes, prefixed: bool
) -> None:
    header = dataclasses.replace(header_of({"a": 1, "b": 2}), control=b"\1" * prefixed + said)
    if header.control[0] == 1 and len(header.control) == 17 and max(header.control[1::8]) < 128:
        assert owners_of(ROW, header).keys() == {"a", "b"}
        return
    with pytest.raises(CorruptLogError) as caught:
        owners_of(ROW, header)
    assert caught.value.row == ROW.hex()
    assert isinstance(caught.value, UnsupportedFormatError) == (header.control[0] != 1)

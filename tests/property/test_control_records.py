"""What control records say comes back, and what they can't say is refused."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hqueue import CorruptLogError, UnsupportedFormatError
from hqueue.format import encode_fences, fences_of

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

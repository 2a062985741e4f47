"""Records of fields as rows: the bytes that lie in HBase."""

from __future__ import annotations

import pytest

from hqueue import InvalidInputError
from hqueue.errors import UnsupportedFormatError
from hqueue.hbase.record_cells import Mark, check_fields, decode, encode, row_key, version_of
from hqueue.metadata.fields import FieldRecord
from hqueue.metadata.ports import ANY, VALUE_BYTES_MAX, Version

COUNTER = bytes.fromhex("0000018bcfe5680a")
NONCE = bytes.fromhex("00112233445566ff")
MARK = Mark(int.from_bytes(COUNTER, "big"), NONCE, False)
WHOLE = {
    b"r:v": COUNTER + NONCE,
    b"r:w": COUNTER,
    b"r:.state": COUNTER + b'{"a": 1}',
    b"h:2": COUNTER + NONCE,
}


def test_the_cells_of_a_write_stay_as_they_were_released() -> None:
    fields = {"state": b'{"a": 1}'}
    assert encode(MARK, fields, whole=True) == WHOLE
    partial = {column: cell for column, cell in WHOLE.items() if column != b"r:w"}
    assert encode(MARK, fields, whole=False) == partial
    gone = MARK._replace(gone=True)
    assert encode(gone, {}, whole=False) == {
        b"r:v": COUNTER + NONCE + b"-",
        b"h:2": COUNTER + NONCE + b"-",
    }


def test_a_row_is_read_without_the_fields_that_were_replaced() -> None:
    old = bytes.fromhex("0000018bcfe56809")
    later = bytes.fromhex("0000018bcfe5680b")
    cells = {**WHOLE, b"r:.old": old + b"1", b"r:.later": later + b"2", b"r:.\xff": later + b"3"}
    version = Version(int.from_bytes(COUNTER + NONCE, "big"))
    fields = {"state": b'{"a": 1}', "later": b"2", "\\xff": b"3"}
    assert decode(cells, "/k") == FieldRecord(fields, version)
    assert decode({**WHOLE, b"r:v": COUNTER + NONCE + b"-"}, "/k") is None


@pytest.mark.parametrize(
    "wrong",
    [
        {b"r:v": b""},
        {b"r:v": COUNTER + NONCE + b"?"},
        {b"r:v": COUNTER},
        {b"r:w": b""},
        {b"r:w": COUNTER + b"1"},
        {b"r:.state": b"1234567"},
    ],
)
def test_what_no_write_makes_is_an_error_that_names_the_record(wrong: dict[bytes, bytes]) -> None:
    found = decode({**WHOLE, **wrong}, "/k")
    assert isinstance(found, UnsupportedFormatError)
    assert found.path == "/k"


@pytest.mark.parametrize("missing", [b"r:v", b"r:w"])
def test_what_every_record_has_must_be_there(missing: bytes) -> None:
    cells = {column: cell for column, cell in WHOLE.items() if column != missing}
    assert isinstance(decode(cells, "/k"), UnsupportedFormatError)


def test_a_version_says_what_its_cell_does_and_others_are_refused() -> None:
    assert version_of(MARK.version) == Mark.decode(MARK.cell) == MARK
    following = MARK.next()
    assert following.version > MARK.version
    assert following.nonce != MARK.nonce
    for wrong in (0, 5, 2**31, 2**64 - 1, 2**128, ANY, -3):
        with pytest.raises(InvalidInputError):
            version_of(Version(wrong))


def test_a_row_begins_anew_with_another_version_each_time() -> None:
    first = {Mark.first(1_700_000_000_000) for _ in range(100)}
    assert len(first) == 100
    assert max(first) < Mark.first(1_700_000_000_001)


@pytest.mark.parametrize("key", ["", "/" + "x" * 32_767, "/\udc80"])
def test_a_key_that_no_row_can_have_is_refused(key: str) -> None:
    with pytest.raises(InvalidInputError):
        row_key(key)


def test_what_a_record_holds_is_bounded() -> None:
    check_fields({"a": bytes(VALUE_BYTES_MAX - 1), "b": b"1"})
    with pytest.raises(InvalidInputError):
        check_fields({"a": bytes(VALUE_BYTES_MAX), "b": b"1"})

"""Headers and cells: what goes in comes out, and damage never does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hqueue.errors import (
    CorruptLogError,
    InvalidInputError,
    MessageTooLargeError,
    UnsupportedFormatError,
)
from hqueue.format import rowkey
from hqueue.format.cells import check_cell, control_record, encode_bodies
from hqueue.format.header import MESSAGES, PACKED, RAW, SCATTERED, decode_header
from hqueue.message import Message
from hqueue.settings.limits import (
    BATCH_BYTES_MAX,
    BATCH_MESSAGES_MAX,
    MESSAGE_ID_MAX,
    TOPICS_PER_BATCH_MAX,
)
from tests.support.batches import (
    ROW,
    bodies_lists,
    header_bytes,
    partitions,
    signed,
    slots,
    written,
)

EXAMPLES = {
    "raw": [Message("t", b"body")],
    "empty value": [Message("t", b"")],
    "packed": [Message("t", b"one"), Message("t", b""), Message("t", b"three")],
    "scattered": [Message("a", b"1"), Message("b", b"2"), Message("a", b"3"), Message("ü", b"4")],
    "key": [Message("t", b"body", b"key")],
    "keys": [Message("t", b"1", b"a"), Message("t", b"2"), Message("t", b"3", b"")],
    "headers": [Message("t", b"", None, [("n", b"v"), ("ü", b"")]), Message("t", b"2")],
    "all": [
        Message("a", b"1", b"k", [("n", b"1"), ("n", b"2")]),
        Message("b", b"2"),
        Message("a", b"3", None, [("", b"\xff")]),
    ],
}


@given(bodies_lists)
def test_a_layout_is_the_simplest_that_does(given_messages: list[Message]) -> None:
    _, header = written(given_messages)
    for entry in header.topics:
        indexes = [n for n, m in enumerate(given_messages) if m.topic == entry.topic]
        together = indexes == list(range(indexes[0], indexes[0] + len(indexes)))
        expected = RAW if len(indexes) == 1 else PACKED if together else SCATTERED
        assert (entry.layout, entry.first, entry.count) == (expected, indexes[0], len(indexes))
    names = [entry.topic.encode() for entry in header.topics]
    assert names == sorted(set(names))


@given(bodies_lists)
def test_a_header_alone_says_what_the_values_of_a_topic_weigh(
    given_messages: list[Message],
) -> None:
    _, header = written(given_messages)
    for entry in header.topics:
        values = [message.value for message in given_messages if message.topic == entry.topic]
        assert entry.value_bytes == sum(map(len, values))


@given(
    bodies_lists,
    partitions,
    slots,
    st.integers(0, 2**40),
    st.integers(0, 2**63),
    st.binary(min_size=8, max_size=8),
    st.integers(0, 2**60),
)
def test_a_header_comes_back(  # noqa: PLR0917
    given_messages: list[Message],
    partition: int,
    slot: int,
    later: int,
    ordinal: int,
    nonce: bytes,
    published_ms: int,
) -> None:
    bodies, slot = encode_bodies(given_messages), min(slot, MESSAGE_ID_MAX - 2**41)
    row, base = rowkey.encode(partition, slot), slot + later
    data = header_bytes(
        bodies, row, base=base, ordinal=ordinal, nonce=nonce, published_ms=published_ms
    )
    header = decode_header(row, data)
    assert (header.base, header.ordinal, header.nonce) == (base, ordinal, nonce)
    assert (header.published_ms, header.kind) == (published_ms, MESSAGES)
    assert header.end == base + len(given_messages)
    assert header.next_ordinal == ordinal + len(given_messages)


@pytest.mark.parametrize("name", [*EXAMPLES, "control"])
def test_every_flipped_bit_of_a_header_is_an_error_that_names_its_row(name: str) -> None:
    bodies = control_record(b"owner 7") if name == "control" else encode_bodies(EXAMPLES[name])
    data = header_bytes(bodies)
    for bit in range(len(data) * 8):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptLogError) as caught:
            decode_header(ROW, bytes(damaged))
        assert caught.value.row == ROW.hex()


def test_a_header_counts_in_its_own_row_only() -> None:
    data = header_bytes(encode_bodies(EXAMPLES["packed"]))
    for bit in range(len(ROW) * 8):
        other = bytearray(ROW)
        other[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptLogError):
            decode_header(bytes(other), data)


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_flipped_bit_of_a_cell_is_found(name: str) -> None:
    bodies, header = written(EXAMPLES[name])
    for entry in header.topics:
        cell = bodies.cells[entry.topic.encode()]
        for bit in range(len(cell) * 8):
            damaged = bytearray(cell)
            damaged[bit // 8] ^= 1 << bit % 8
            with pytest.raises(CorruptLogError) as caught:
                check_cell(ROW, entry, bytes(damaged))
            assert (caught.value.row, caught.value.topic) == (ROW.hex(), entry.topic)


@given(bodies_lists, st.data())
def test_a_cell_that_was_cut_off_or_extended_is_found(
    given_messages: list[Message], data: st.DataObject
) -> None:
    bodies, header = written(given_messages)
    entry = data.draw(st.sampled_from(header.topics))
    cell = bodies.cells[entry.topic.encode()]
    changed = data.draw(
        st.binary(min_size=1, max_size=9).map(lambda more: cell + more)
        | st.integers(0, max(0, len(cell) - 1)).map(lambda size: cell[:size])
    )
    if changed != cell:
        with pytest.raises(CorruptLogError):
            check_cell(ROW, entry, changed)


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_header_that_was_cut_off_or_extended_is_an_error(name: str) -> None:
    data = header_bytes(encode_bodies(EXAMPLES[name]))
    for size in range(len(data)):
        with pytest.raises(CorruptLogError):
            decode_header(ROW, data[:size])
    with pytest.raises(CorruptLogError):
        decode_header(ROW, data + b"\0")


@given(bodies_lists, st.data())
def test_a_header_with_wrong_contents_is_an_error_or_reads_as_it_stands(
    given_messages: list[Message], data: st.DataObject
) -> None:
    """Its checksum fits: a writer with a fault wrote it. No other error may come out."""
    body = bytearray(header_bytes(encode_bodies(given_messages))[:-4])
    for at in data.draw(st.lists(st.integers(2, len(body) - 1), min_size=1, max_size=3)):
        body[at] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, 30) | st.just(0))
    sent = signed(bytes(body[: len(body) - cut]))
    try:
        header = decode_header(ROW, sent)
    except CorruptLogError:
        pass
    else:
        assert header.end <= MESSAGE_ID_MAX
        assert header.count == sum(entry.count for entry in header.topics)


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_directory_that_is_cut_off_is_an_error_although_the_checksum_fits(name: str) -> None:
    body = header_bytes(encode_bodies(EXAMPLES[name]))[:-4]
    for size in range(52, len(body)):
        with pytest.raises(CorruptLogError):
            decode_header(ROW, signed(body[:size]))


@pytest.mark.parametrize(
    ("at", "value", "fact"),
    [(2, 3, "version"), (2, 0, "version"), (3, 2, "kind"), (4, 2, "flags"), (4, 0x80, "flags")],
)
def test_an_unknown_format_is_an_error_that_names_it(at: int, value: int, fact: str) -> None:
    body = bytearray(header_bytes(encode_bodies(EXAMPLES["packed"]))[:-4])
    body[at] = value
    with pytest.raises(UnsupportedFormatError) as caught:
        decode_header(ROW, signed(bytes(body)))
    assert caught.value.facts[fact] == value
    assert caught.value.row == ROW.hex()


def test_the_reserved_byte_is_not_skipped() -> None:
    body = bytearray(header_bytes(encode_bodies(EXAMPLES["packed"]))[:-4])
    body[5] = 1
    with pytest.raises(UnsupportedFormatError):
        decode_header(ROW, signed(bytes(body)))


def test_a_batch_has_bounds() -> None:
    message = Message("t", b"")
    assert encode_bodies([message] * BATCH_MESSAGES_MAX).count == BATCH_MESSAGES_MAX
    for wrong in ([], [message] * (BATCH_MESSAGES_MAX + 1), ["t"], [("t", b"")]):
        with pytest.raises(InvalidInputError):
            encode_bodies(wrong)  # type: ignore[arg-type]
    many = [Message(f"t{n}", b"") for n in range(TOPICS_PER_BATCH_MAX + 1)]
    assert len(encode_bodies(many[:-1]).cells) == TOPICS_PER_BATCH_MAX
    with pytest.raises(InvalidInputError):
        encode_bodies(many)
    largest = Message("t", bytes(BATCH_BYTES_MAX))
    assert encode_bodies([largest]).count == 1
    with pytest.raises(MessageTooLargeError):
        encode_bodies([largest, message])
    half = bytes(BATCH_BYTES_MAX // 2)
    for more in (Message("t", b"", half), Message("t", b"", None, [("n", half)])):
        assert encode_bodies([more]).count == 1
        with pytest.raises(MessageTooLargeError):
            encode_bodies([more, Message("t", half)])
    with pytest.raises(MessageTooLargeError):
        control_record(bytes(64 * 1024 + 1))

"""Streams are cut into messages without losing a byte, and a cut one is reported."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hqueue.cli.framing import DOCUMENT_BYTES_MAX, Framing, length_prefixed, read_values
from hqueue.errors import InvalidInputError, MessageTooLargeError
from hqueue.settings.limits import BATCH_BYTES_MAX


def values_of(data: bytes, framing: Framing) -> list[bytes]:
    return list(read_values(io.BytesIO(data), framing, "here"))


@given(st.lists(st.binary(max_size=300)))
def test_length_prefixed_values_come_back_as_they_were(values: list[bytes]) -> None:
    data = b"".join(map(length_prefixed, values))
    assert values_of(data, Framing.LENGTH_PREFIXED) == values


@given(st.lists(st.binary(max_size=300).filter(lambda value: b"\n" not in value)))
def test_lines_come_without_their_newlines_and_else_unchanged(values: list[bytes]) -> None:
    assert values_of(b"".join(value + b"\n" for value in values), Framing.LINES) == values


def test_the_last_line_may_have_no_newline_and_lines_may_be_empty() -> None:
    assert values_of(b"a\n\nb\r\nc", Framing.LINES) == [b"a", b"", b"b\r", b"c"]


@pytest.mark.parametrize(
    ("tail", "found", "expected"), [(b"\0\0", 2, 4), (b"\0\0\0\x05ab", 2, 5), (b"\0\0\0\x01", 0, 1)]
)
def test_an_input_that_is_cut_short_gives_what_came_before_and_names_the_place(
    tail: bytes, found: int, expected: int
) -> None:
    values = read_values(io.BytesIO(length_prefixed(b"abc") + tail), Framing.LENGTH_PREFIXED, "f")
    assert next(values) == b"abc"
    with pytest.raises(InvalidInputError) as caught:
        next(values)
    facts = {"input": "f", "offset": 7, "bytes_expected": expected, "bytes_found": found}
    assert caught.value.facts == facts


def test_a_length_beyond_the_bound_is_refused_before_anything_is_read() -> None:
    with pytest.raises(MessageTooLargeError):
        values_of(b"\xff\xff\xff\xff", Framing.LENGTH_PREFIXED)


def test_a_line_may_be_as_long_as_a_message_and_no_longer() -> None:
    longest = b"x" * BATCH_BYTES_MAX
    assert values_of(longest + b"\ny", Framing.LINES) == [longest, b"y"]
    with pytest.raises(MessageTooLargeError) as caught:
        values_of(b"y\n" + longest + b"x\n", Framing.LINES)
    assert caught.value.facts["offset"] == 2


def test_a_document_may_be_longer_than_the_message_that_it_is_of() -> None:
    longer = b"x" * (BATCH_BYTES_MAX + 1)
    assert values_of(longer + b"\n{}", Framing.JSON) == [longer, b"{}"]
    with pytest.raises(MessageTooLargeError):
        values_of(b"x" * (DOCUMENT_BYTES_MAX + 1), Framing.JSON)

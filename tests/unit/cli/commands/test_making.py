"""Messages are made of values, lines and documents as the options say."""

from __future__ import annotations

import pytest

from hqueue.cli.commands.making import message_maker, parse_headers
from hqueue.cli.framing import Framing
from hqueue.errors import InvalidInputError
from hqueue.message import Message

HEADERS = (("n", b"v"),)


def test_headers_are_parsed_in_their_order() -> None:
    given = ["n=v", "n=", "=x", "a=b=c", "trace=\udcff"]
    assert parse_headers(given) == (
        *(("n", b"v"), ("n", b""), ("", b"x")),
        *(("a", b"b=c"), ("trace", b"\xff")),
    )


@pytest.mark.parametrize("wrong", ["n", "", "\udcff=v"])
def test_a_header_that_is_none_is_told(wrong: str) -> None:
    with pytest.raises(InvalidInputError, match="header"):
        parse_headers(["n=v", wrong])


@pytest.mark.parametrize("framing", [Framing.LINES, Framing.LENGTH_PREFIXED])
def test_a_key_and_headers_are_those_of_each_message(framing: Framing) -> None:
    assert message_maker(framing, "t")(b"v") == Message("t", b"v")
    make = message_maker(framing, "t", b"", HEADERS)
    assert make(b"v") == Message("t", b"v", b"", HEADERS)


def test_a_line_is_cut_at_its_first_separator() -> None:
    make = message_maker(Framing.LINES, "t", headers=HEADERS, separator="::")
    assert make(b"k::v::w") == Message("t", b"v::w", b"k", HEADERS)
    assert make(b"::") == Message("t", b"", b"", HEADERS)
    with pytest.raises(InvalidInputError, match="no key separator"):
        make(b"k:v")


def test_documents_are_read_with_the_topic_of_those_without_one() -> None:
    assert message_maker(Framing.JSON, "t")(b'{"value":"v"}') == Message("t", b"v")
    assert message_maker(Framing.JSON, "")(b'{"topic":"u","value":"v"}').topic == "u"


@pytest.mark.parametrize(
    ("framing", "topic", "key", "separator"),
    [
        (Framing.LINES, "", None, None),
        (Framing.LINES, "t", b"k", ":"),
        (Framing.LINES, "t", None, ""),
        (Framing.LENGTH_PREFIXED, "t", None, ":"),
        (Framing.JSON, "t", b"k", None),
        (Framing.JSON, "t", None, ":"),
    ],
)
def test_what_does_not_go_together_is_told(
    framing: Framing, topic: str, key: bytes | None, separator: str | None
) -> None:
    with pytest.raises(InvalidInputError):
        message_maker(framing, topic, key, (), separator)
    with pytest.raises(InvalidInputError):
        message_maker(Framing.JSON, "t", headers=HEADERS)

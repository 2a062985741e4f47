"""Every format of a scan says exactly what it promises."""

from __future__ import annotations

import base64
import datetime
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hqueue.cli.formats import Format, encoder
from hqueue.errors import InvalidInputError
from hqueue.message import Headers, ReceivedMessage
from hqueue.message_id import MessageID
from hqueue.settings.limits import TIMESTAMP_MS_MAX
from hqueue.texts.shown import iso_timestamp, printable

ID = MessageID(1_700_000_000_123, 7)
UTC = datetime.timezone.utc


HEADERS = (("trace", b"a1"), ("grün\n", b"\xff"), ("trace", b""))


def message(value: bytes, topic: str = "clicks") -> ReceivedMessage:
    return ReceivedMessage(topic, value, ID, 3)


def keyed(key: bytes | None = None, headers: Headers = ()) -> ReceivedMessage:
    return ReceivedMessage("clicks", b"hello", ID, 3, key=key, headers=headers)


def test_raw_is_the_value_and_a_newline() -> None:
    assert encoder(Format.RAW)(message(b"\xff\0")) == b"\xff\0\n"


def test_length_prefixed_is_what_put_reads() -> None:
    assert encoder(Format.LENGTH_PREFIXED)(message(b"ab\n")) == b"\0\0\0\x03ab\n"


def test_a_json_line_says_everything_of_a_message() -> None:
    line = encoder(Format.JSON)(message('grüß\n"dich"'.encode()))
    assert line == (
        b'{"partition":3,"id":"1700000000123-7","timestamp":"2023-11-14T22:13:20.123Z",'
        b'"topic":"clicks","value":"gr\xc3\xbc\xc3\x9f\\n\\"dich\\""}\n'
    )


@given(st.binary(max_size=100), st.text(min_size=1, max_size=50))
def test_a_json_line_is_one_line_and_gives_every_value_back(value: bytes, topic: str) -> None:
    line = encoder(Format.JSON)(message(value, topic))
    assert line.count(b"\n") == 1
    read = json.loads(line)
    back = base64.b64decode(read["value_base64"]) if "value_base64" in read else read["value"]
    assert (back if isinstance(back, bytes) else back.encode()) == value
    assert ("value" in read) != ("value_base64" in read)
    assert read["topic"] == topic


@pytest.mark.parametrize(
    ("key", "headers", "fields"),
    [
        (b"user-42", (), '"key":"user-42",'),
        (b"", (), '"key":"",'),
        (b"\xff", (), '"key_base64":"/w==",'),
        (
            None,
            HEADERS,
            '"headers":[{"name":"trace","value":"a1"},{"name":"grün\\n","value_base64":"/w=="},'
            '{"name":"trace","value":""}],',
        ),
        (b"k", (("", b""),), '"key":"k","headers":[{"name":"","value":""}],'),
    ],
)
def test_a_json_line_has_the_key_and_headers_of_a_message_that_has_some(
    key: bytes | None, headers: Headers, fields: str
) -> None:
    plain, line = (encoder(Format.JSON)(each).decode() for each in (keyed(), keyed(key, headers)))
    assert line == plain.replace('"value":"hello"', f'{fields}"value":"hello"')


def test_raw_and_length_prefixed_are_the_value_alone() -> None:
    for chosen in (Format.RAW, Format.LENGTH_PREFIXED):
        assert encoder(chosen)(keyed(b"k", HEADERS)) == encoder(chosen)(keyed())
        with pytest.raises(InvalidInputError, match="only values"):
            encoder(chosen, print_key=True)


def test_text_shows_keys_and_headers_where_they_are_asked_for() -> None:
    plain = encoder(Format.TEXT, zone=UTC)
    assert plain(keyed(b"k", HEADERS)) == plain(keyed())
    shown = encoder(Format.TEXT, zone=UTC, print_key=True, print_headers=True)
    before = plain(keyed()).decode().removesuffix("hello\n")
    assert shown(keyed(b"\tk", HEADERS)).decode() == (
        f"{before}\\tk\ttrace=a1,grün\\n=\\xff,trace=\thello\n"
    )
    assert shown(keyed()).decode() == f"{before}-\t-\thello\n"
    assert shown(keyed(b"")).decode() == f"{before}\t-\thello\n"
    aligned = encoder(Format.TEXT, aligned=True, zone=UTC, print_key=True)
    assert aligned(keyed(b"k")).endswith(b"clicks    k         hello\n")


def test_text_has_tabs_in_a_pipe_and_columns_on_a_terminal() -> None:
    zone = datetime.timezone(datetime.timedelta(hours=8))
    in_pipe = encoder(Format.TEXT, zone=zone)(message(b"hello"))
    assert in_pipe == b"2023-11-15T06:13:20.123+08:00\t3\t1700000000123-7\tclicks\thello\n"
    on_terminal = encoder(Format.TEXT, aligned=True, partitions=100, zone=UTC)(message(b"hello"))
    assert on_terminal == (b"2023-11-14T22:13:20.123Z   3  1700000000123-7      clicks    hello\n")


@given(st.binary(max_size=100))
def test_text_is_always_one_line_that_steers_no_terminal(value: bytes) -> None:
    line = encoder(Format.TEXT, zone=UTC)(message(value)).decode()
    assert line.count("\n") == 1
    assert line.count("\t") == 4
    assert not any(ord(c) < 0x20 or 0x7F <= ord(c) < 0xA0 for c in line[:-1] if c != "\t")


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (b"a\tb\r\n", "a\\tb\\r\\n"),
        (b"\x1b[2J", "\\x1b[2J"),
        (b"\xff", "\\xff"),
        ("\u202egrün\u3000".encode(), "\\u202egrün\u3000"),
        (b"c:\\path", "c:\\path"),
    ],
)
def test_what_can_not_be_shown_is_escaped(value: bytes, shown: str) -> None:
    assert printable(value) == shown


def test_a_timestamp_beyond_the_calendar_is_shown_as_a_number() -> None:
    assert iso_timestamp(TIMESTAMP_MS_MAX) == f"{TIMESTAMP_MS_MAX}ms"

"""How messages are written to stdout.

``text`` is for people: a line a message, with what can't be shown escaped, and with its key and
headers if they are asked for. The others lose nothing of what they hold:

    json             {"partition":3,"id":"1700000000000-0","timestamp":"2023-11-14T22:13:20.000Z",
                      "topic":"clicks","value":"hello"}
                     on one line, with the key and headers of a message that has some:
                     `hqueue.texts.documents`
    raw              the value, and a newline
    length-prefixed  the value's length, 4 bytes big-endian, and the value
"""

from __future__ import annotations

import base64
import datetime
import enum
import functools
import json
from collections.abc import Callable
from json.encoder import encode_basestring

from hqueue.cli.framing import length_prefixed
from hqueue.errors import InvalidInputError
from hqueue.message import ReceivedMessage
from hqueue.message_id import sequence_of, timestamp_of
from hqueue.texts.documents import extra_fields
from hqueue.texts.shown import headers_text, iso_timestamp, key_text, printable

__all__ = [
    "Encode",
    "Format",
    "encoder",
]

Encode = Callable[[ReceivedMessage], bytes]


class Format(str, enum.Enum):
    """The formats of messages on stdout."""

    TEXT = "text"
    JSON = "json"
    RAW = "raw"
    LENGTH_PREFIXED = "length-prefixed"


def encoder(
    chosen: Format,
    *,
    aligned: bool = False,
    partitions: int = 1,
    zone: datetime.tzinfo | None = None,
    print_key: bool = False,
    print_headers: bool = False,
) -> Encode:
    """What turns a message that was read into bytes.

    Args:
        chosen: the format.
        aligned: text in columns for a terminal, instead of tabs.
        partitions: of the queue: how wide their column is.
        zone: the time zone of text; the system's if None.
        print_key, print_headers: a column of text for each. In json they are in any case.

    Raises:
        InvalidInputError: they are asked for where there is nothing but values.
    """
    if (print_key or print_headers) and chosen in (Format.RAW, Format.LENGTH_PREFIXED):
        raise InvalidInputError(
            "this format shows only values: use text or json to see keys and headers",
            format=chosen.value,
        )
    if chosen is Format.RAW:
        return _raw
    if chosen is Format.LENGTH_PREFIXED:
        return _length_prefixed
    if chosen is Format.JSON:
        return _json_line
    at = functools.lru_cache(maxsize=256)(lambda ms: iso_timestamp(ms, zone))
    shown = functools.lru_cache(maxsize=256)(printable)
    width = len(str(partitions - 1))

    def columns(message: ReceivedMessage) -> bytes:
        timestamp_ms = timestamp_of(message.id)
        name = f"{timestamp_ms}-{sequence_of(message.id)}"
        topic, partition = shown(message.topic), message.partition
        if aligned:
            line = f"{at(timestamp_ms)}  {partition:>{width}}  {name:<19}  {topic:<8}  "
        else:
            line = f"{at(timestamp_ms)}\t{partition}\t{name}\t{topic}\t"
        if print_key:
            line += f"{key_text(message):<8}  " if aligned else f"{key_text(message)}\t"
        if print_headers:
            line += headers_text(message) + ("  " if aligned else "\t")
        return f"{line}{printable(message.value)}\n".encode("utf-8", "backslashreplace")

    return columns


_utc = functools.lru_cache(maxsize=256)(iso_timestamp)
_quoted = functools.lru_cache(maxsize=256)(encode_basestring)


def _raw(message: ReceivedMessage) -> bytes:
    return message.value + b"\n"


def _length_prefixed(message: ReceivedMessage) -> bytes:
    return length_prefixed(message.value)


def _json_line(message: ReceivedMessage) -> bytes:
    try:
        text = '"value":' + encode_basestring(message.value.decode())
    except UnicodeDecodeError:
        text = f'"value_base64":"{base64.b64encode(message.value).decode()}"'
    if message.headers or message.key is not None:
        extra = json.dumps(extra_fields(message), ensure_ascii=False, separators=(",", ":"))
        text = f"{extra[1:-1]},{text}"
    timestamp_ms = timestamp_of(message.id)
    name = f"{timestamp_ms}-{sequence_of(message.id)}"
    return (
        f'{{"partition":{message.partition},"id":"{name}",'
        f'"timestamp":"{_utc(timestamp_ms)}","topic":{_quoted(message.topic)},{text}}}\n'
    ).encode()

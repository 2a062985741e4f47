"""Cutting a stream of bytes into messages, and the reverse.

lines            each line is a message, without its newline; the last one may have none
json             each line is a message as a document: `documents`
length-prefixed  +--------------------+-----------------+
                 | length: 4B, big-e. | that many bytes |   and so on
                 +--------------------+-----------------+
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterator
from typing import BinaryIO

from hqueue.errors import InvalidInputError, MessageTooLargeError
from hqueue.settings.limits import BATCH_BYTES_MAX

__all__ = [
    "DOCUMENT_BYTES_MAX",
    "Framing",
    "length_prefixed",
    "read_length_prefixed",
    "read_lines",
    "read_values",
]

DOCUMENT_BYTES_MAX = 8 * BATCH_BYTES_MAX
"""Of a message in JSON, where a byte may take six."""

_LENGTH = struct.Struct(">I")


class Framing(str, enum.Enum):
    """How messages are told apart in a stream."""

    LINES = "lines"
    JSON = "json"
    LENGTH_PREFIXED = "length-prefixed"


def length_prefixed(value: bytes) -> bytes:
    """A value with its length before it."""
    return _LENGTH.pack(len(value)) + value


def read_values(stream: BinaryIO, framing: Framing, name: str) -> Iterator[bytes]:
    """The values of a stream, as they come.

    Args:
        stream: a buffered stream.
        framing: how values are told apart.
        name: what errors call the stream.

    Raises:
        InvalidInputError: the stream ends within a message. What came before it was given.
        MessageTooLargeError: a message is larger than a batch may be. Likewise.
    """
    if framing is Framing.LINES:
        return read_lines(stream, name)
    if framing is Framing.JSON:
        return read_lines(stream, name, DOCUMENT_BYTES_MAX)
    return read_length_prefixed(stream, name)


def read_lines(stream: BinaryIO, name: str, bytes_max: int = BATCH_BYTES_MAX) -> Iterator[bytes]:
    """The lines of a stream, without their newlines. Raises as `read_values`."""
    offset = 0
    while line := stream.readline(bytes_max + 2):
        value = line[:-1] if line.endswith(b"\n") else line
        if len(value) > bytes_max:
            raise MessageTooLargeError(
                "a line is larger than the maximum size of a message",
                input=name,
                offset=offset,
                bytes_max=bytes_max,
            )
        yield value
        offset += len(line)


def read_length_prefixed(stream: BinaryIO, name: str) -> Iterator[bytes]:
    """The values of a stream of lengths and values. Raises as `read_values`."""
    offset = 0
    while prefix := stream.read(_LENGTH.size):
        if len(prefix) < _LENGTH.size:
            raise InvalidInputError(
                "the input ends in the middle of a length prefix",
                input=name,
                offset=offset,
                bytes_expected=_LENGTH.size,
                bytes_found=len(prefix),
            )
        (length,) = _LENGTH.unpack(prefix)
        if length > BATCH_BYTES_MAX:
            raise MessageTooLargeError(
                "a message is too large, or the input is not length-prefixed",
                input=name,
                offset=offset,
                bytes=length,
                bytes_max=BATCH_BYTES_MAX,
            )
        value = stream.read(length)
        if len(value) < length:
            raise InvalidInputError(
                "the input ends in the middle of a message",
                input=name,
                offset=offset,
                bytes_expected=length,
                bytes_found=len(value),
            )
        yield value
        offset += _LENGTH.size + length

"""The columns of keys and of headers, which lie before the values in a cell of format 2.

Each is Arrow's own layout of such a column, with zeros after it up to a multiple of 8 bytes, so
that what follows is aligned. Numbers are int32, little-endian; n messages have m headers.

    keys      offsets [0, e1, …, en]; validity, a bit a message, the first the lowest, 1 where it
              has a key; the keys' bytes. A message without a key has an empty range.
    headers   offsets of messages in headers [0, …, m]; offsets of names [0, …]; offsets of
              values [0, …]; the names' bytes in UTF-8; the values' bytes
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain, pairwise
from typing import NamedTuple

from hqueue.errors import CorruptLogError, MessageTooLargeError
from hqueue.message import Headers
from hqueue.runtime.pieces import join_in_pieces, list_in_pieces
from hqueue.settings.limits import BATCH_BYTES_MAX

__all__ = [
    "HeadersColumn",
    "KeysColumn",
    "aligned",
    "check_size",
    "encode_headers",
    "encode_keys",
    "from_little_endian",
    "packed_bits",
    "parse_headers",
    "parse_keys",
]

ALIGNMENT = 8


def aligned(parts: Sequence[bytes | memoryview]) -> bytes:
    """These one after another, and zeros up to a multiple of 8 bytes."""
    joined = join_in_pieces(parts)
    return joined + bytes(-len(joined) % ALIGNMENT)


def packed_bits(flags: bytes) -> bytes:
    """Bytes that are 0 or 1 as bits, the first the lowest of the first byte."""
    bits = flags[::-1].translate(_DIGITS)
    return int(bits, 2).to_bytes((len(flags) + 7) // 8, "little")


_DIGITS = b"01" + bytes(254)


def from_little_endian(code: str, data: bytes) -> list[int]:
    """Little-endian numbers, of a type as `array` calls it."""
    numbers = array(code, data)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tolist()


def _offsets(pieces: Iterable[bytes | Sequence[object]]) -> bytes:
    offsets = list_in_pieces(accumulate(map(len, pieces), initial=0))
    check_size(offsets[-1])
    return struct.pack(f"<{len(offsets)}i", *offsets)


def check_size(size: int) -> None:
    """Refuse a number of bytes that a batch can't have."""
    if size > BATCH_BYTES_MAX:
        raise MessageTooLargeError(
            "a batch has at most 8 MiB: nothing was written; give put and send_batch less, or send "
            "one by one with Producer.send, which cuts batches by itself",
            bytes=size,
            bytes_max=BATCH_BYTES_MAX,
        )


def encode_keys(keys: Sequence[bytes | None]) -> bytes:
    """The column of the keys of a cell's messages; empty if none has one."""
    if keys.count(None) == len(keys):
        return b""
    given = [key or b"" for key in keys]
    flags = bytes([key is not None for key in keys])
    return aligned([_offsets(given), packed_bits(flags), *given])


def encode_headers(headers: Sequence[Headers]) -> bytes:
    """The column of the headers of a cell's messages; empty if none has any."""
    pairs = list_in_pieces(chain.from_iterable(headers))
    if not pairs:
        return b""
    names = [name.encode() for name, _ in pairs]
    values = [value for _, value in pairs]
    data = join_in_pieces(names), join_in_pieces(values)
    return aligned([_offsets(headers), _offsets(names), _offsets(values), *data])


class KeysColumn(NamedTuple):
    """Where the parts of a column of keys lie in it."""

    validity_at: int
    data_at: int
    end: int

    @classmethod
    def of(cls, column: bytes, count: int) -> KeysColumn | None:
        """Those of the keys of this many messages; None if they can't be."""
        validity_at = 4 * (count + 1)
        data_at = validity_at + (count + 7) // 8
        if len(column) < data_at or _int_at(column, 0):
            return None
        if int.from_bytes(column[validity_at:data_at], "little") >> count:
            return None
        end = data_at + _int_at(column, validity_at - 4)
        return cls(validity_at, data_at, end) if _ends(column, data_at, end) else None


class HeadersColumn(NamedTuple):
    """Where the parts of a column of headers lie in it, and how many headers there are."""

    headers: int
    names_at: int
    """The names' offsets; the messages' come before."""
    values_at: int
    """The values' offsets."""
    names_data_at: int
    values_data_at: int
    end: int

    @classmethod
    def of(cls, column: bytes, count: int) -> HeadersColumn | None:
        """Those of the headers of this many messages; None if they can't be."""
        names_at = 4 * (count + 1)
        if len(column) < names_at:
            return None
        headers = _int_at(column, names_at - 4)
        values_at = names_at + 4 * (headers + 1)
        names_data_at = values_at + 4 * (headers + 1)
        if headers < 0 or len(column) < names_data_at:
            return None
        if any(_int_at(column, at) for at in (0, names_at, values_at)):
            return None
        values_data_at = names_data_at + _int_at(column, values_at - 4)
        end = values_data_at + _int_at(column, names_data_at - 4)
        if not names_data_at <= values_data_at or not _ends(column, values_data_at, end):
            return None
        return cls(headers, names_at, values_at, names_data_at, values_data_at, end)


def _int_at(column: bytes, at: int) -> int:
    return int.from_bytes(column[at : at + 4], "little", signed=True)


def _ends(column: bytes, data_at: int, end: int) -> bool:
    """Whether the data end there, and nothing but zeros up to a multiple of 8 follows."""
    return data_at <= end <= len(column) < end + ALIGNMENT and not any(column[end:])


def _cut(data: bytes, offsets: Sequence[int]) -> Iterator[bytes]:
    return (data[start:stop] for start, stop in pairwise(offsets))


def _ascending(offsets: list[int]) -> bool:
    return offsets == sorted(offsets)  # Of what is sorted already that costs next to nothing.


def parse_keys(column: bytes, count: int, topic: str) -> list[bytes | None]:
    """The keys of this many messages, in their order.

    Raises:
        CorruptLogError: they can't be what a writer wrote.
    """
    parts = KeysColumn.of(column, count)
    if parts is not None:
        offsets = from_little_endian("i", column[: parts.validity_at])
        valid = int.from_bytes(column[parts.validity_at : parts.data_at], "little")
        if _ascending(offsets):
            keys: list[bytes | None] = [*_cut(column[parts.data_at : parts.end], offsets)]
            if valid != (1 << count) - 1:
                for at, bit in enumerate(reversed(f"{valid:0{count}b}")):
                    if bit == "0":
                        keys[at] = None
            return keys
    raise CorruptLogError("the column of keys is malformed", topic=topic)


def parse_headers(column: bytes, count: int, topic: str) -> list[Headers]:
    """The headers of this many messages, in their order.

    Raises:
        CorruptLogError: they can't be what a writer wrote.
    """
    parts = HeadersColumn.of(column, count)
    if parts is not None:
        of_messages = from_little_endian("i", column[: parts.names_at])
        names = from_little_endian("i", column[parts.names_at : parts.values_at])
        values = from_little_endian("i", column[parts.values_at : parts.names_data_at])
        if all(map(_ascending, (of_messages, names, values))):
            try:
                cut = _cut(column[parts.names_data_at : parts.values_data_at], names)
                texts = list_in_pieces(map(bytes.decode, cut))
            except UnicodeDecodeError as exc:
                raise CorruptLogError("a header's name is not UTF-8", topic=topic) from exc
            cut = _cut(column[parts.values_data_at : parts.end], values)
            pairs = list_in_pieces(zip(texts, cut, strict=True))
            return [tuple(pairs[start:stop]) for start, stop in pairwise(of_messages)]
    raise CorruptLogError("the column of headers is malformed", topic=topic)

"""Calls of Thrift's binary protocol that promise what never comes, and what they are made of."""

from __future__ import annotations

import struct
from collections.abc import Mapping

__all__ = ["HOSTILE", "field", "head", "listed"]

STOP, VOID, BOOL, BYTE, DOUBLE, I16, I32, I64 = 0, 1, 2, 3, 4, 6, 8, 10
STRING, STRUCT, MAP, SET, LIST = 11, 12, 13, 14, 15


def head(method: bytes, kind: int = 1, seqid: int = 7) -> bytes:
    """What comes before the arguments."""
    return struct.pack(">Ii", 0x80010000 | kind, len(method)) + method + struct.pack(">i", seqid)


def field(kind: int, number: int, value: bytes = b"") -> bytes:
    return struct.pack(">Bh", kind, number) + value


def listed(kind: int, count: int, elements: bytes = b"") -> bytes:
    return struct.pack(">Bi", kind, count) + elements


def paired(keys: int, values: int, count: int, pairs: bytes = b"") -> bytes:
    return struct.pack(">BBi", keys, values, count) + pairs


HOSTILE: Mapping[str, bytes] = {
    "a list of nothing, without end": field(LIST, 1, listed(VOID, 2**30)),
    "the same, unknown": field(LIST, 99, listed(VOID, 2**30)),
    "a list of a type that is not known": field(LIST, 1, listed(0x55, 2**30)),
    "a set of nothing": field(SET, 4, listed(STOP, 2**30)),
    "lists in lists": field(LIST, 1, listed(LIST, 2**20) * 7 + listed(VOID, 2**30)),
    "few lists, far down": field(LIST, 1, listed(LIST, 1) * 20_000),
    "structs in structs": field(STRUCT, 1) * 20_000,
    "messages of structs in structs": field(LIST, 1, listed(STRUCT, 1, field(STRUCT, 1) * 20_000)),
    "a map without end": field(MAP, 4, paired(STRING, STRING, 2**31 - 1)),
    "a map of nothing": field(MAP, 4, paired(VOID, VOID, 2**30)),
    "maps in maps": field(
        MAP, 1, paired(I32, MAP, 1, bytes(4)) + paired(I32, MAP, 1, bytes(4)) * 9
    ),
    "fewer than none": field(LIST, 1, listed(STRUCT, -1)),
    "fewer than none in a map": field(MAP, 4, paired(STRING, STRING, -(2**31))),
    "numbers that are not there": field(LIST, 2, listed(I16, 2**30)),
    "a text without end": field(STRING, 1, struct.pack(">i", 2**31 - 1)),
    "a text of less than nothing": field(STRING, 1, struct.pack(">i", -5)),
    "the same, unknown, in a list": field(LIST, 9, listed(STRING, 1, struct.pack(">i", -5))),
    "headers without end": field(LIST, 1, listed(STRUCT, 1, field(LIST, 6, listed(STRUCT, 2**30)))),
    "a field of nothing": field(VOID, 1),
    "a field that is not known": field(0xFF, 1),
}
"""The arguments of calls, without their end. A server that believes them counts, waits or goes
down."""

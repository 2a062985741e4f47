"""The end of a call is found, and what has none, or promises too much, is refused."""

from __future__ import annotations

import struct
import time
import tracemalloc

import pytest

from hqueue.rpc.calls import DEPTH_MAX, NAME_BYTES_MAX, CallWalk, NoCallError, check_call
from tests.support.thrift_calls import (  # fmt: skip
    BOOL,
    BYTE,
    DOUBLE,
    HOSTILE,
    I16,
    I32,
    I64,
    LIST,
    MAP,
    SET,
    STOP,
    STRING,
    STRUCT,
    VOID,
    field,
    head,
    listed,
    paired,
)

BYTES_MAX = 100_000
TEXT = struct.pack(">i", 3) + b"abc"


def end(data: bytes, containers_max: int = 10_000) -> int | None:
    return CallWalk(BYTES_MAX, containers_max).end(data)


def pieced(data: bytes) -> int | None:
    """The end as it is found with every byte that comes."""
    walk, came = CallWalk(BYTES_MAX, 10_000), bytearray()
    for byte in data:
        came.append(byte)
        found = walk.end(came)
        if found is not None:
            return found
    return None


def arguments(*fields: bytes) -> bytes:
    return head(b"method") + b"".join(fields) + b"\0"


GOOD = {
    "nothing": arguments(),
    "oneway": head(b"method", 4) + b"\0",
    "numbers": arguments(
        field(BOOL, 1, b"\1"), field(BYTE, 2, b"\1"), field(I16, 3, bytes(2)),
        field(I32, 4, bytes(4)), field(I64, 5, bytes(8)), field(DOUBLE, 6, bytes(8)),
    ),
    "numbers below zero": arguments(field(I32, -1, b"\xff" * 4)),
    "a text": arguments(field(STRING, 1, TEXT)),
    "an empty text": arguments(field(STRING, 1, bytes(4))),
    "a struct": arguments(field(STRUCT, 1, field(STRING, 1, TEXT) + b"\0"), field(BOOL, 2, b"\0")),
    "a list of numbers": arguments(field(LIST, 1, listed(I16, 3, bytes(6)))),
    "a list of texts": arguments(field(LIST, 1, listed(STRING, 2, TEXT * 2))),
    "a list of structs": arguments(field(LIST, 1, listed(STRUCT, 3, bytes(3)))),
    "a list of lists": arguments(
        field(LIST, 1, listed(LIST, 2, listed(I32, 1, bytes(4)) + listed(STRING, 1, TEXT)))
    ),
    "an empty list": arguments(field(LIST, 1, listed(STRUCT, 0))),
    "an empty list of no type": arguments(field(SET, 1, listed(VOID, 0))),
    "a map": arguments(field(MAP, 1, paired(STRING, I32, 2, (TEXT + bytes(4)) * 2))),
    "a map from structs": arguments(field(MAP, 1, paired(STRUCT, LIST, 1, b"\0" + listed(I16, 0)))),
    "a map of numbers": arguments(field(MAP, 1, paired(I64, BOOL, 2, bytes(18)))),
    "an empty map": arguments(field(MAP, 1, paired(STOP, STOP, 0))),
    "as deep as it may be": arguments(
        field(STRUCT, 1) * (DEPTH_MAX - 1) + bytes(DEPTH_MAX - 1)
    ),
    "as long a name as it may have": head(b"m" * NAME_BYTES_MAX) + b"\0",
}  # fmt: skip


@pytest.mark.parametrize("name", GOOD)
def test_a_call_ends_where_it_ends_however_it_comes(name: str) -> None:
    call = GOOD[name]
    assert end(call) == pieced(call) == len(call)
    assert end(call + b"the next") == len(call)
    for length in range(len(call)):
        assert end(call[:length]) is None
        with pytest.raises(NoCallError):
            check_call(call[:length], 100)
    check_call(call, 100)
    with pytest.raises(NoCallError):
        check_call(call + b"\0", 100)


BAD_HEADS = {
    "text": b"GET / HTTP/1.1\r\n",
    "zeros": bytes(16),
    "ones": b"\xff" * 16,
    "framed": struct.pack(">i", 32) + GOOD["nothing"],
    "an answer": head(b"method", 2) + b"\0",
    "an exception": head(b"method", 3) + b"\0",
    "another version": b"\x80\x02" + GOOD["nothing"][2:],
    "no zero": b"\x80\x01\x01" + GOOD["nothing"][3:],
    "a name without end": b"\x80\x01\x00\x01\x7f\xff\xff\xff",
    "a name of less than nothing": b"\x80\x01\x00\x01\xff\xff\xff\xff",
    "too long a name": head(b"m" * (NAME_BYTES_MAX + 1)),
}


@pytest.mark.parametrize("name", BAD_HEADS)
def test_what_does_not_begin_as_a_call_is_none(name: str) -> None:
    with pytest.raises(NoCallError):
        end(BAD_HEADS[name])


@pytest.mark.parametrize("name", HOSTILE)
def test_what_promises_more_than_can_come_is_refused_at_once_and_costs_nothing(name: str) -> None:
    call = head(b"method") + HOSTILE[name]
    tracemalloc.start()
    began_s = time.process_time()
    with pytest.raises(NoCallError):
        end(call)
    assert time.process_time() - began_s < 1
    with pytest.raises(NoCallError):
        pieced(call)
    assert tracemalloc.get_traced_memory()[1] < 2_000_000
    tracemalloc.stop()
    with pytest.raises(NoCallError):
        check_call(call, 10_000)


def test_what_is_too_deep_is_refused() -> None:
    for down, up in (
        (field(STRUCT, 1), b"\0"),
        (field(STRUCT, 1, field(LIST, 1, listed(STRUCT, 1))), b"\0\0"),
    ):
        with pytest.raises(NoCallError):
            end(arguments(down * DEPTH_MAX + up * DEPTH_MAX))


def test_no_more_structs_are_read_than_may_be() -> None:
    call = arguments(field(LIST, 1, listed(STRUCT, 100, bytes(100))))
    assert end(call, 101) == len(call)
    with pytest.raises(NoCallError):
        end(call, 100)


def test_a_call_may_have_all_its_bytes_and_not_one_more() -> None:
    def call(size: int) -> bytes:
        rest = arguments(field(STRING, 1, struct.pack(">i", 0)))
        length = size - len(rest)
        return arguments(field(STRING, 1, struct.pack(">i", length) + bytes(length)))

    assert end(call(BYTES_MAX)) == BYTES_MAX
    assert end(call(BYTES_MAX)[:-1]) is None
    for size, length in ((1, BYTES_MAX), (1, BYTES_MAX + 1), (2, 50)):
        with pytest.raises(NoCallError):
            end(call(BYTES_MAX + size)[:length])
    with pytest.raises(NoCallError):
        end(head(b"method") + field(BOOL, 1, b"\0") * BYTES_MAX)


def test_many_small_pieces_of_a_large_call_take_no_longer_than_one() -> None:
    values = struct.pack(">i", 500) + bytes(500)
    call = arguments(field(LIST, 1, listed(STRING, 20_000, values * 20_000)))
    walk, came = CallWalk(2 * len(call), 10), bytearray()
    began_s = time.process_time()
    for at in range(0, len(call), 1_000):
        came += call[at : at + 1_000]
        found = walk.end(came)
    assert found == len(call)
    assert time.process_time() - began_s < 2

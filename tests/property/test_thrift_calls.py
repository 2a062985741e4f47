"""Calls read before a Thrift library reads them end where it ends, and say what it says."""

from __future__ import annotations

import itertools
import logging
import socket
import struct
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from thriftpy2.protocol import TCyBinaryProtocol
from thriftpy2.protocol.binary import write_val
from thriftpy2.thrift import TPayload, TType
from thriftpy2.transport import TCyMemoryBuffer, TMemoryBuffer

from hqueue import MessageID, ReceivedMessage, Status
from hqueue.message import Headers
from hqueue.push.answers import Answer
from hqueue.push.listener import Listeners
from hqueue.push.service import Consumption, subscriber_service
from hqueue.push.worker_call import WorkerCall
from hqueue.rpc.calls import CallWalk, NoCallError
from hqueue.rpc.gathering import CallGatherer
from hqueue.rpc.served_connection import ServedConnection
from hqueue.rpc.server import CONTAINERS_MAX, MADE_BYTES_MAX, ThriftServer
from hqueue_workers.delivery.wire import METHOD, call_head, call_tail, encode_message
from tests.fuzz.damage import Damage, damaged, damages
from tests.support.extras import headers, keys

BYTES_MAX = 100_000
HEAD = struct.pack(">Ii6si", 0x80010001, 6, b"method", 7)

NUMBERS = {
    TType.BOOL: st.booleans(),
    TType.BYTE: st.integers(-(2**7), 2**7 - 1),
    TType.I16: st.integers(-(2**15), 2**15 - 1),
    TType.I32: st.integers(-(2**31), 2**31 - 1),
    TType.I64: st.integers(-(2**63), 2**63 - 1),
    TType.DOUBLE: st.floats(),
    TType.STRING: st.binary(max_size=20),
}
Kind = tuple[Any, ...]
"""A type as thriftpy2 has it: its number, and what it is of."""


def _inside(kinds: st.SearchStrategy[Kind]) -> st.SearchStrategy[Kind]:
    fields = st.dictionaries(st.integers(-(2**15), 2**15 - 1), kinds, max_size=4)
    return st.one_of(
        st.builds(lambda of: (TType.LIST, of), kinds),
        st.builds(lambda key, of: (TType.MAP, (key, of)), leaves, kinds),
        st.builds(lambda of: (TType.STRUCT, of), fields),
    )


leaves: st.SearchStrategy[Kind] = st.sampled_from([(number, None) for number in NUMBERS])
kinds = st.recursive(leaves, _inside, max_leaves=6)


def _written(kind: Kind, value: Any) -> bytes:
    memory = TMemoryBuffer()
    write_val(memory, kind[0], value, _spec(kind))
    data: bytes = memory.getvalue()
    return data


def _depth(kind: Kind) -> int:
    number, of = kind
    inside = {
        TType.LIST: lambda: [of],
        TType.MAP: lambda: list(of),
        TType.STRUCT: lambda: list(of.values()),
    }.get(number, list)()
    return (number not in NUMBERS) + max(map(_depth, inside), default=0)


def _spec(kind: Kind) -> Any:
    number, of = kind
    if number == TType.LIST:
        return (of[0], _spec(of)) if of[0] not in NUMBERS else of[0]
    if number == TType.MAP:
        return tuple((each[0], _spec(each)) if each[0] not in NUMBERS else each[0] for each in of)
    if number == TType.STRUCT:
        return None
    return None


def _values(kind: Kind) -> st.SearchStrategy[Any]:
    number, of = kind
    if number == TType.LIST:
        return st.lists(_values(of), max_size=4)
    if number == TType.MAP:
        return st.dictionaries(_values(of[0]), _values(of[1]), max_size=3)
    if number == TType.STRUCT:
        return st.fixed_dictionaries({at: _values(each) for at, each in of.items()}).map(
            partial(_payload, of)
        )
    return NUMBERS[number]


def _payload(kinds: dict[int, Kind], values: dict[int, Any]) -> TPayload:
    """A struct with these fields."""
    spec = {at: (kind[0], f"f{at}", _spec(kind), False) for at, kind in kinds.items()}
    made = type("Made", (TPayload,), {"thrift_spec": spec, "default_spec": []})()
    for at, value in values.items():
        setattr(made, f"f{at}", value)
    return made


calls = (
    st.dictionaries(st.integers(1, 20), kinds.filter(lambda kind: _depth(kind) < 8), max_size=4)
    .flatmap(lambda of: _values((TType.STRUCT, of)))
    .map(lambda value: HEAD + _written((TType.STRUCT, {}), value))
)


def read_by_thrift(call: bytes) -> bytes:
    """What thriftpy2 leaves over of a call."""
    memory = TCyMemoryBuffer(call)
    protocol = TCyBinaryProtocol(memory)  # type: ignore[no-untyped-call]
    protocol.read_message_begin()
    protocol.skip(TType.STRUCT)
    left: bytes = memory.getvalue()
    return left


@given(calls, st.binary(max_size=5))
def test_a_call_ends_where_a_thrift_library_ends_it(call: bytes, more: bytes) -> None:
    assert CallWalk(BYTES_MAX, 1_000).end(call + more) == len(call)
    assert read_by_thrift(call + more) == more


@given(calls, damages())
def test_a_damaged_call_is_none_or_one_to_a_thrift_library_too(
    call: bytes, done: list[Damage]
) -> None:
    data = damaged(call, done, call)
    try:
        end = CallWalk(BYTES_MAX, 1_000).end(data)
    except NoCallError:
        return
    if end is not None:
        assert read_by_thrift(data[:end]) == b""


@given(calls, damages(), st.lists(st.integers(1, 30), min_size=1))
def test_pieces_make_no_difference(call: bytes, done: list[Damage], sizes: list[int]) -> None:
    def ends(data: bytes, pieces: Iterator[int]) -> int | None:
        walk, came = CallWalk(BYTES_MAX, 1_000), bytearray()
        while len(came) < len(data):
            came += data[len(came) : len(came) + next(pieces)]
            try:
                end = walk.end(came)
            except NoCallError:
                return -1
            if end is not None:
                return end
        return None

    data = damaged(call, done, call)
    assert ends(data, itertools.cycle(sizes)) == ends(data, itertools.repeat(len(data)))


class Peer:
    """A caller's socket: it sends its bytes in such pieces and keeps what is answered."""

    def __init__(self, data: bytes, sizes: Sequence[int]) -> None:
        self._data = data
        self._sizes = itertools.cycle(sizes)
        self.answers: list[bytes] = []

    def recv(self, count: int) -> bytes:
        size = min(count, next(self._sizes))
        piece, self._data = self._data[:size], self._data[size:]
        return piece

    def send(self, data: memoryview) -> int:
        self.answers.append(bytes(data))
        return len(data)


Answered = tuple[list[list[ReceivedMessage]], list[bytes]]


class Served:
    """A server that is given its callers' bytes by hand."""

    def __init__(self, *, quick: bool) -> None:
        self._got: list[list[ReceivedMessage]] = []
        consumption = Consumption(Listeners(self._consume, 1_000, "sub"), 1, 1_000)
        self._server = ThriftServer(
            subscriber_service(),
            consumption,
            socket.socket(),
            threads=1,
            connections_max=1,
            call_bytes_max=BYTES_MAX,
            idle_ms_max=1_000,
        )
        self._quick = partial(WorkerCall, consumption.consume) if quick else None

    def _consume(self, messages: Sequence[ReceivedMessage]) -> Status:
        self._got.append(list(messages))
        status = len(messages[0].value) % 4
        if status == 3:
            raise ValueError(messages[0].topic)
        return Status(status)

    def answer(self, data: bytes, sizes: Sequence[int]) -> Answered:
        """The messages of the calls in these bytes, and the answers to them."""
        self._got = []
        peer = Peer(data, sizes)
        gatherer = CallGatherer(BYTES_MAX, CONTAINERS_MAX, MADE_BYTES_MAX, self._quick)
        connection = ServedConnection(peer, "a peer", gatherer)  # type: ignore[arg-type]
        while connection.reason is None:
            connection.request = connection.request or connection.receive()
            if connection.request is not None:
                self._server._serve(connection)
        return self._got, peer.answers

    def close(self) -> None:
        self._server.close(0)


@pytest.fixture(scope="module")
def both() -> Iterator[tuple[Served, Served]]:
    served = Served(quick=True), Served(quick=False)
    logger = logging.getLogger("hqueue.push.listener")
    logger.disabled = True
    yield served
    logger.disabled = False
    for each in served:
        each.close()


texts = st.text(min_size=1, max_size=20).filter(lambda text: text.isprintable())
ids = st.builds(MessageID, st.integers(0, 2**48 - 1), st.integers(0, 32_767))
messages = st.builds(
    ReceivedMessage, texts, st.binary(max_size=99), ids, st.integers(-1, 32_766),
    key=keys, headers=headers,
)  # fmt: skip
own_calls = st.lists(messages, max_size=5).map(
    lambda given: b"".join([call_head(7, len(given)), *map(encode_message, given), call_tail])
)


def _text(number: int, text: bytes) -> bytes:
    return struct.pack(">Bhi", 11, number, len(text)) + text


foreign_headers = st.lists(
    st.sampled_from(
        [_text(1, b"n"), _text(2, b"v"), _text(1, b"\xff"), struct.pack(">Bhb", 3, 9, 1)]
    ),
    max_size=3,
).map(lambda parts: b"".join(parts) + b"\0")
fields: dict[str, st.SearchStrategy[bytes]] = {
    "id": st.builds(struct.Struct(">BhBhqBhhB").pack, *map(st.just, (12, 1, 10, 1)),
                    st.integers(-1, 2**48), *map(st.just, (6, 2)), st.integers(-1, 9), st.just(0)),
    "timestamp": st.just(struct.pack(">BhBhqB", 12, 1, 10, 1, 5, 0)),
    "partition": st.just(struct.pack(">Bhh", 6, 2, 3)),
    "topic": st.sampled_from([b"t", b"", b"\xff", b"u" * 256]).map(
        lambda topic: struct.pack(">Bhi", 11, 3, len(topic)) + topic
    ),
    "value": st.binary(max_size=9).map(partial(_text, 4)),
    "key": st.binary(max_size=9).map(partial(_text, 5)),
    "headers": st.lists(foreign_headers, max_size=2).map(
        lambda of: struct.pack(">BhBi", 15, 6, 12, len(of)) + b"".join(of)
    ),
    "no headers": st.just(struct.pack(">BhBi", 15, 6, 8, 1) + bytes(4)),
    "unknown": st.just(struct.pack(">BhBi", 15, 9, 8, 1) + bytes(4)),
}  # fmt: skip
foreign_messages = st.lists(st.sampled_from(list(fields)), unique=True, max_size=8).flatmap(
    lambda names: st.tuples(*(fields[name] for name in names)).map(lambda of: b"".join(of) + b"\0")
)
arguments = st.lists(foreign_messages, max_size=3).map(
    lambda of: struct.pack(">BhBi", 15, 1, 12, len(of)) + b"".join(of)
)
foreign_calls = st.builds(
    lambda kind, name, arguments, more: (
        struct.pack(">Ii", 0x80010000 | kind, len(name)) + name + bytes(4) + arguments + more
    ),
    st.sampled_from([1, 1, 4]),
    st.sampled_from([METHOD, METHOD, b"another"]),
    arguments | st.just(b""),
    st.sampled_from([b"\0", b"\0", struct.pack(">Bhi", 8, 2, 1) + b"\0"]),
)


@given(
    st.lists(own_calls | foreign_calls, min_size=1, max_size=3).map(b"".join),
    damages(2) | st.just([]),
    st.lists(st.integers(1, 200), min_size=1),
)
def test_a_worker_s_call_read_quickly_says_what_it_says_to_a_thrift_library(
    both: tuple[Served, Served], data: bytes, done: list[Damage], sizes: list[int]
) -> None:
    quick, general = both
    data = damaged(data, done, data)
    whole = general.answer(data, [len(data) or 1])
    assert quick.answer(data, sizes) == whole
    assert quick.answer(data, [len(data) or 1]) == whole
    assert general.answer(data, sizes) == whole


@given(st.lists(messages, max_size=5), st.integers(1, 50))
def test_a_worker_s_call_needs_no_thrift_library(given: list[ReceivedMessage], size: int) -> None:
    got: list[ReceivedMessage] = []

    def consume(messages: Sequence[ReceivedMessage]) -> Answer:
        got.extend(messages)
        return Answer(Status.DEAD_LETTER, "why")

    data = b"".join([call_head(7, len(given)), *map(encode_message, given), call_tail])
    call, came, end = WorkerCall(consume, BYTES_MAX), bytearray(), None
    while len(came) < len(data):
        assert end is None
        came += data[len(came) : len(came) + size]
        end = call.end(came)
    assert end == len(data)
    head = struct.pack(">Ii", 0x80010002, len(METHOD)) + METHOD + struct.pack(">i", 7)
    reason = struct.pack(">Bhi", 11, 2, 3) + b"why"
    assert call.answer() == head + struct.pack(">Bhi", 8, 0, 2) + reason + b"\0"
    assert got == given


class Counting(WorkerCall):
    """Counts the bytes that it looks at."""

    def __init__(self, got: list[ReceivedMessage]) -> None:
        super().__init__(lambda messages: got.extend(messages) or Answer(Status.DONE), BYTES_MAX)
        self.seen = 0

    def _read(self, piece: bytes) -> int:
        self.seen += len(piece)
        return super()._read(piece)


def _given(key: bytes | None, headers: Headers) -> ReceivedMessage:
    return ReceivedMessage("topic", b"value", MessageID(5, 6), 7, key=key, headers=headers)


@pytest.mark.parametrize(
    "message",
    [
        _given(None, ()),
        _given(b"", ()),
        _given(b"key", ()),
        _given(None, (("name", b"v"), ("", b""), ("name", b"w"))),
        _given(b"key", (("ü", b"\0"),)),
    ],
)
def test_each_field_may_be_cut_at_each_byte(message: ReceivedMessage) -> None:
    data = b"".join([call_head(7, 2), *map(encode_message, [message] * 2), call_tail])
    for cut in range(1, len(data)):
        got: list[ReceivedMessage] = []
        call = Counting(got)
        assert call.end(data[:cut]) is None
        assert call.end(data) == len(data)
        call.answer()
        assert got == [message, message]


@pytest.mark.parametrize(
    "rest",
    [
        struct.pack(">BhI", 11, 5, BYTES_MAX),
        struct.pack(">Bhi", 11, 5, -1),
        struct.pack(">BhBI", 15, 6, 12, BYTES_MAX // 15),
        struct.pack(">BhBi", 15, 6, 12, -1),
        struct.pack(">BhBIBhI", 15, 6, 12, 1, 11, 1, BYTES_MAX),
        struct.pack(">BhBIBhIBhI", 15, 6, 12, 1, 11, 1, 0, 11, 2, BYTES_MAX),
    ],
)
def test_what_promises_more_than_can_come_is_not_waited_for(rest: bytes) -> None:
    begun = call_head(7, 1) + encode_message(_given(None, ()))[:-1]
    call = Counting([])
    assert call.end(begun + rest[:-4]) is None
    with pytest.raises(NoCallError):
        call.end(begun + rest)


@pytest.mark.parametrize(
    "message",
    [
        _given(b"k" * 60_000, ()),
        _given(None, (("n" * 40_000, b"v" * 40_000),)),
        _given(b"key", (("name", b"value"),) * 3_000),
    ],
)
def test_byte_by_byte_a_message_is_read_in_a_time_like_its_length(message: ReceivedMessage) -> None:
    data = call_head(7, 1) + encode_message(message) + call_tail
    got: list[ReceivedMessage] = []
    call, came = Counting(got), bytearray()
    for byte in data:
        came.append(byte)
        end = call.end(came)
    assert end == len(data)
    call.answer()
    assert got == [message]
    assert call.seen < 50 * len(data)

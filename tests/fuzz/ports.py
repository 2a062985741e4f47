"""Calls of strangers: to a subscriber's port, and to a worker's."""

from __future__ import annotations

import functools
import logging
import socket
import struct
import time
from collections.abc import Sequence
from typing import Any, Protocol

from hypothesis import strategies as st

from hqueue import MessageID, ReceivedMessage, Status
from hqueue.log.ports import Row
from hqueue.message import Headers
from hqueue.metadata.append_keys import sign
from hqueue.push.append_notifier import BATCH, row_of
from hqueue.push.listener import Listeners
from hqueue.push.service import Consumption, subscriber_service
from hqueue.push.worker_call import WorkerCall
from hqueue.rpc.server import ThriftServer
from hqueue_workers.delivery.notification_server import BUFFERED_BYTES_MAX, NotificationServer
from hqueue_workers.delivery.wire import METHOD, call_head, call_tail, encode_message
from tests.support.extras import headers, keys
from tests.support.notifications import KEYS, frame_of, vouches
from tests.support.strangers import Stranger

from .damage import Damage, damaged, damages
from .target import Target
from .wire import tokens

__all__ = [
    "ANSWER_S_MAX",
    "CALL_BYTES_MAX",
    "TARGETS",
    "Bytes",
    "call_as_stranger",
    "nearly",
    "sent",
]

ANSWER_S_MAX = 10.0
"""Within so much time a stranger is hung up on, and another is answered."""

CALL_BYTES_MAX = 64 * 1024

Bytes = tuple[bytes, list[Damage], bytes]
"""What was right, what is done to it, and what comes after it."""


def nearly(right: st.SearchStrategy[bytes], method: bytes) -> st.SearchStrategy[Bytes]:
    """Calls that are nearly right, and the heads of calls with anything behind them."""
    made_up = st.lists(tokens, max_size=12).map(b"".join)
    heads = st.sampled_from([1, 4]).map(
        lambda kind: struct.pack(">Ii", 0x80010000 | kind, len(method)) + method + bytes(4)
    )
    repeated = st.builds(lambda piece, times: piece * times, made_up, st.integers(1, 2_000))
    return st.tuples(right | heads, damages(), made_up | repeated)


def sent(given: Bytes) -> bytes:
    """What is sent."""
    right, done, more = given
    return damaged(right, done, right) + more


def _own_call(given: Sequence[tuple[bytes, bytes | None, Headers]]) -> bytes:
    messages = [
        ReceivedMessage("t", value, MessageID(9, at), 3, key=key, headers=headers)
        for at, (value, key, headers) in enumerate(given)
    ]
    return b"".join([call_head(1, len(messages)), *map(encode_message, messages), call_tail])


class _Subscriber:
    """A subscriber's port, and a caller of it that is as it should be."""

    def __init__(self) -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        self.address = listener.getsockname()
        consumption = Consumption(Listeners(lambda messages: Status.DONE, 1_000, "sub"), 2, 1_000)
        ThriftServer(
            subscriber_service(),
            consumption,
            listener,
            threads=2,
            connections_max=16,
            call_bytes_max=CALL_BYTES_MAX,
            idle_ms_max=1_000,
            quick=functools.partial(WorkerCall, consumption.consume),
        ).start()
        self._call = _own_call([(b"v", None, ())])
        self._caller = self.connect()

    def connect(self) -> socket.socket:
        return socket.create_connection(self.address, timeout=ANSWER_S_MAX)

    def answer(self) -> None:
        """See that the caller is answered."""
        self._caller.sendall(self._call)
        answer = self._caller.recv(100)
        assert answer.endswith(b"\x08\0\0" + bytes(5)), answer


@functools.cache
def _subscriber() -> _Subscriber:
    return _Subscriber()


class Served(Protocol):
    """A port, and a caller of it that is as it should be."""

    def connect(self) -> socket.socket: ...

    def answer(self) -> None:
        """See that the caller is answered."""


def call_as_stranger(served: Served, given: Bytes) -> None:
    """Whatever is sent, it is answered or hung up on, and so soon that no other notices."""
    logging.getLogger("hqueue").setLevel(logging.CRITICAL)
    with served.connect() as stranger:
        try:
            stranger.sendall(sent(given))
            stranger.shutdown(socket.SHUT_WR)
            served.answer()
            while stranger.recv(4_096):
                pass
        except OSError as exc:  # It was hung up on, at any step. But not forgotten.
            assert not isinstance(exc, TimeoutError)
    served.answer()


def _consume(given: Bytes) -> None:
    call_as_stranger(_subscriber(), given)


CELLS = {b"t": b"cell", b"u": bytes(20)}
REAL = BATCH(
    3, 9 << 15, b"header", CELLS, KEYS.current.id,
    sign(KEYS.current, "q", 3, 9 << 15, header=b"header", cells=CELLS),
)  # fmt: skip
FRAME = frame_of("q", [3], [REAL])


def _notify(given: tuple[Bytes, bool]) -> None:
    """Whatever is sent, no batch comes of it but the real one, and no time is lost over it."""
    rows: list[Row] = []
    server = NotificationServer(
        [], lambda queue, partitions, came: rows.extend(came), vouches, lambda *, vouched: None
    )
    stranger, other = Stranger(server.port), Stranger(server.port)
    data, framed = sent(given[0]), given[1]
    began_s = time.monotonic()
    stranger.send(len(data).to_bytes(4, "big") + data if framed else data)
    assert all(row == row_of(REAL) for row in rows)
    assert server.port.callers.held_bytes <= BUFFERED_BYTES_MAX
    rows.clear()
    other.send(FRAME)
    assert rows == [row_of(REAL)]
    assert time.monotonic() - began_s < ANSWER_S_MAX
    for each in (stranger, other):
        each.close()
    server.port.close()


own_calls = st.lists(st.tuples(st.binary(max_size=50), keys, headers), max_size=4).map(_own_call)
frames = st.sampled_from([FRAME, FRAME[4:], FRAME * 2, frame_of("q", [3])])

TARGETS: list[Target[Any]] = [
    Target("subscriber", nearly(own_calls, METHOD), _consume),
    Target("notified", st.tuples(nearly(frames, b"appended"), st.booleans()), _notify),
]

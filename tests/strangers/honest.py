"""A caller that is as it should be, and measures how long it is answered for."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import time
from collections.abc import Callable

from hqueue import MessageID, ReceivedMessage
from hqueue_workers.delivery.wire import call_head, call_tail, encode_message
from tests.support.thrift_calls import field, head, listed

__all__ = ["CALLS", "GOOD", "measure", "publishing"]

HOST = "127.0.0.1"
EVERY_S = 0.02
CALLS_A_CONNECTION = 20
ANSWER_S_MAX = 30.0


def _text(number: int, text: bytes) -> bytes:
    return field(11, number, struct.pack(">i", len(text)) + text)


def publishing(topic: bytes) -> bytes:
    """A call of a hub."""
    texts = (1, b"q"), (2, b"honest"), (3, topic)
    message = _text(3, topic) + _text(4, b"v" * 100) + b"\0"
    return (
        head(b"publish") + b"".join(_text(*each) for each in texts) + field(12, 4, message) + b"\0"
    )


_MESSAGE = _text(3, b"t") + _text(4, b"v" * 100) + b"\0"
_DELIVERED = b"".join(
    [
        call_head(1, 1),
        encode_message(ReceivedMessage("t", b"v" * 100, MessageID(1, 1), 0)),
        call_tail,
    ]
)
CALLS: dict[str, bytes] = {
    "hub": publishing(b"t"),
    "api": head(b"putMessages") + _text(1, b"q") + field(15, 2, listed(12, 1, _MESSAGE)) + b"\0",
    "subscriber": _DELIVERED,
    "health": b"GET /health HTTP/1.1\r\n\r\n",
}
GOOD: dict[str, Callable[[bytes], bool]] = {
    "hub": lambda answer: answer[:4] == b"\x80\x01\x00\x02" and b"\x0c\0\0" in answer,
    "api": lambda answer: answer[:4] == b"\x80\x01\x00\x02" and answer[-1:] == b"\0",
    "subscriber": lambda answer: answer.endswith(b"\x08\0\0" + bytes(5)),
    "health": lambda answer: answer.startswith(b"HTTP/1.1 200 "),
}


def measure(
    port: int, protocol: str, seconds: float, tls: ssl.SSLContext | None = None
) -> tuple[list[float], list[str]]:
    """Call for so long; how many milliseconds each call took, with its connection if it was the
    first one there, and what was wrong with those that were not answered as they should be.

    Args:
        port: the port.
        protocol: what is spoken there.
        seconds: for how long.
        tls: what TLS is spoken with; in clear if None.
    """
    took_ms: list[float] = []
    wrong: list[str] = []
    ends_s = time.monotonic() + seconds
    while time.monotonic() < ends_s:
        try:
            with contextlib.closing(_Caller(port, protocol, tls)) as caller:
                for _ in range(1 if protocol == "health" else CALLS_A_CONNECTION):
                    took_ms.append(caller.call())
                    time.sleep(EVERY_S)
        except (OSError, AssertionError) as exc:
            wrong.append(f"{type(exc).__name__}: {exc}")
            time.sleep(EVERY_S)
    return took_ms, wrong


class _Caller:
    """A connection."""

    def __init__(self, port: int, protocol: str, tls: ssl.SSLContext | None) -> None:
        self._protocol = protocol
        self._began_s = time.monotonic()
        self._socket = socket.create_connection((HOST, port), ANSWER_S_MAX)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            self._socket = tls.wrap_socket(self._socket, server_hostname=HOST)

    def call(self) -> float:
        """Call once; the milliseconds that it took."""
        began_s, self._began_s = self._began_s or time.monotonic(), 0.0
        self._socket.sendall(CALLS[self._protocol])
        answer = self._socket.recv(65_536)
        assert GOOD[self._protocol](answer), answer
        return 1e3 * (time.monotonic() - began_s)

    def close(self) -> None:
        self._socket.close()

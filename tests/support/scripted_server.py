"""A server that speaks HBase's RPC, and answers as a test says."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from hqueue.hbase.native.protocol import pb
from hqueue.hbase.native.wire import LENGTH, preamble, varint
from hqueue.settings.addresses import Address
from tests.support.token_door import TokenDoor

__all__ = ["Asked", "ScriptedServer", "answer", "cell", "refusal"]


class Asked(NamedTuple):
    """A request as it came."""

    number: int
    method: str
    message: bytes
    cells: bytes


Script = Callable[[Asked], Iterable[bytes]]
"""What is sent for a request. Whatever it raises of `OSError` ends the connection."""


class ScriptedServer:
    """Answers by a script, on any number of connections. Close it at the end.

    Args:
        script: what to send for each request.
        tls: what connections are wrapped in, if anything.
        door: asks clients for a token, if there is one.
    """

    def __init__(
        self, script: Script, tls: ssl.SSLContext | None = None, door: TokenDoor | None = None
    ) -> None:
        self.script = script
        self.tls = tls
        self.door = door
        self.services: list[str] = []
        """The service that each connection asked for."""
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = Address("127.0.0.1", self._listener.getsockname()[1])
        threading.Thread(target=self._listen, daemon=True).start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.break_connections()

    def break_connections(self) -> None:
        with self._lock:
            sockets, self._sockets = self._sockets, []
        for each in sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _listen(self) -> None:
        while True:
            try:
                opened, _ = self._listener.accept()
            except OSError:
                return
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._sockets.append(opened)
            threading.Thread(target=self._serve, args=(opened,), daemon=True).start()

    def _serve(self, opened: socket.socket) -> None:
        with contextlib.suppress(OSError):
            if self.tls is not None:
                opened = self.tls.wrap_socket(opened, server_side=True)
            self._answer(opened)

    def _answer(self, opened: socket.socket) -> None:
        with opened, opened.makefile("rb") as socket_file:
            incoming, send = socket_file, opened.sendall
            if self.door is not None:
                incoming, send = self.door.enter(socket_file, opened.sendall)
            else:
                assert _exactly(incoming, 6) == preamble()
            header = pb.ConnectionHeader.FromString(_frame(incoming))
            with self._lock:
                self.services.append(header.service_name)
            while True:
                for piece in self.script(_asked(_frame(incoming))):
                    send(piece)


def answer(asked: Asked, message: Any, cells: bytes = b"") -> bytes:
    """The frame that answers a request."""
    header = pb.ResponseHeader(call_id=asked.number)
    if cells:
        header.cell_block_meta.length = len(cells)
    parts = [header.SerializeToString(), message.SerializeToString()]
    body = b"".join(varint(len(part)) + part for part in parts) + cells
    return LENGTH.pack(len(body)) + body


def refusal(asked: Asked, name: str, *, final: bool = False) -> bytes:
    """The frame that answers a request with an error."""
    error = pb.ExceptionResponse(
        exception_class_name=name, stack_trace=f"{name}: because", do_not_retry=final
    )
    header = pb.ResponseHeader(call_id=asked.number, exception=error).SerializeToString()
    body = varint(len(header)) + header
    return LENGTH.pack(len(body)) + body


def cell(row: bytes, family: bytes, qualifier: bytes, value: bytes) -> bytes:
    """A cell as KeyValueCodec writes it."""
    key = struct.pack(">h", len(row)) + row + bytes((len(family),)) + family + qualifier
    key += struct.pack(">QB", 1, 4)
    body = struct.pack(">II", len(key), len(value)) + key + value
    return LENGTH.pack(len(body)) + body


def _asked(frame: bytes) -> Asked:
    header_bytes, at = _delimited(frame, 0)
    header = pb.RequestHeader.FromString(header_bytes)
    message, at = _delimited(frame, at)
    assert len(frame) - at == header.cell_block_meta.length
    assert header.timeout > 0
    return Asked(header.call_id, header.method_name, message, frame[at:])


def _delimited(frame: bytes, at: int) -> tuple[bytes, int]:
    length = shift = 0
    while True:
        length |= (frame[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if frame[at - 1] < 0x80:
            return frame[at : at + length], at + length


def _frame(incoming: Any) -> bytes:
    return _exactly(incoming, LENGTH.unpack(_exactly(incoming, LENGTH.size))[0])


def _exactly(incoming: Any, count: int) -> bytes:
    data: bytes = incoming.read(count)
    if len(data) < count:
        raise ConnectionError("the client has gone")
    return data

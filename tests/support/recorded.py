"""A caller whose every byte is recorded, in TLS."""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Callable
from typing import TypeVar

from hqueue.settings.addresses import Address

__all__ = ["RecordedCaller", "heard"]

BOUND_S = 20.0

Result = TypeVar("Result")


def heard(sock: socket.socket) -> bytes:
    """All that comes until the other side ends the connection."""
    pieces = []
    with contextlib.suppress(ConnectionError):
        while piece := sock.recv(65_536):
            pieces.append(piece)
    return b"".join(pieces)


class RecordedCaller:
    """A connection of a client that speaks TLS.

    Args:
        address: where the server listens.
        context: the client's.
        session: an earlier session, which is resumed if the server allows it.
    """

    def __init__(
        self, address: Address, context: ssl.SSLContext, session: ssl.SSLSession | None = None
    ) -> None:
        self.socket = socket.create_connection(address, BOUND_S)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(
            self._incoming, self._outgoing, server_hostname=address.host, session=session
        )
        self.sent: list[bytes] = []
        """What it has sent, as it was on the wire: a piece for each time that it waited."""

    def __enter__(self) -> RecordedCaller:
        return self

    def __exit__(self, *exc: object) -> None:
        self.socket.close()

    def shake(self) -> None:
        """Do the handshake."""
        self._do(self.tls.do_handshake)

    def call(self, data: bytes, is_whole: Callable[[bytes], bool]) -> bytes:
        """Send a request; what is answered, as soon as it is whole, or all before the end."""
        self._do(lambda: self.tls.write(data))
        answer = b""
        while not is_whole(answer):
            piece = self._do(lambda: self.tls.read(65_536))
            if not piece:
                break
            answer += piece
        return answer

    def converse(self, data: bytes) -> bytes:
        """Do the handshake, and send a request; all that is answered."""
        self.shake()
        return self.call(data, lambda answer: False)

    def _do(self, step: Callable[[], Result]) -> Result:
        while True:
            try:
                done = step()
            except ssl.SSLWantReadError:
                self._flush()
                came = self.socket.recv(65_536)
                if came:
                    self._incoming.write(came)
                else:
                    self._incoming.write_eof()
            except ssl.SSLEOFError:
                return b""  # type: ignore[return-value]
            else:
                self._flush()
                return done

    def _flush(self) -> None:
        if said := self._outgoing.read():
            self.sent.append(said)
            self.socket.sendall(said)

"""How a proxy stands between a client and a server with Kerberos and TLS, and reads what passes:
TLS ends at it and begins again, and SASL's handshake goes through it. So the protection must be
``authentication``, which leaves in clear what TLS hides.
"""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

from hqueue import Settings
from hqueue.hbase.native.opening import Opener
from hqueue.hbase.native.protocol import pb
from hqueue.hbase.native.security import Security
from hqueue.hbase.native.wire import LENGTH
from hqueue.settings.addresses import Address

__all__ = ["Passing", "SecuredRelay", "exactly", "frame"]

TOKENS = 3
"""Of a client's handshake. The last one has no answer."""

_ANSWER = struct.Struct(">ii")


class TlsSocket:
    """A TLS connection. One thread may read it while another one writes.

    Args:
        connected: the socket. Its handshake is made here.
        context: one side's.
        serves: whether that is a server's.
    """

    def __init__(self, connected: socket.socket, context: ssl.SSLContext, *, serves: bool) -> None:
        host = None if serves else "127.0.0.1"
        self._tls = context.wrap_socket(connected, server_side=serves, server_hostname=host)
        self._tls.setblocking(False)
        self._lock = threading.Lock()

    def recv(self, count: int) -> bytes:
        while True:
            try:
                with self._lock:
                    return self._tls.recv(count)
            except ssl.SSLWantReadError:
                select.select([self._tls], [], [])

    def sendall(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            try:
                with self._lock:
                    left = left[self._tls.send(left) :]
            except ssl.SSLWantWriteError:
                select.select([], [self._tls], [])

    def shutdown(self, how: int) -> None:
        """End the connection, while others use it."""
        socket.socket.shutdown(self._tls, how)

    def close(self) -> None:
        self._tls.close()


Passing = socket.socket | TlsSocket
"""One side's connection."""


def frame(opened: Passing) -> bytes:
    """The next frame, with its length.

    Raises:
        OSError: the connection ends before.
    """
    length = exactly(opened, LENGTH.size)
    return length + exactly(opened, LENGTH.unpack(length)[0])


def exactly(opened: Passing, count: int) -> bytes:
    """The next so many bytes.

    Raises:
        OSError: the connection ends before.
    """
    taken = bytearray()
    while len(taken) < count:
        more = opened.recv(min(count - len(taken), 1 << 20))
        if not more:
            raise ConnectionError("it ends here")
        taken += more
    return bytes(taken)


class SecuredRelay:
    """Both sides' security of a local server.

    Args:
        settings: those of its clients.
        certificate: the server's own, which the proxy shows.
    """

    def __init__(self, settings: Settings, certificate: Path) -> None:
        self._settings = settings
        self._server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._server.load_cert_chain(certificate)
        self._client = ssl.create_default_context(cafile=settings.tls_ca)
        assert settings.tls_certificate is not None
        self._client.load_cert_chain(settings.tls_certificate)

    @contextlib.contextmanager
    def wrapped(
        self, client: socket.socket, server: socket.socket
    ) -> Iterator[tuple[TlsSocket, TlsSocket]]:
        """TLS with both, as long as the context lasts.

        Raises:
            OSError: one of them does not speak it.
        """
        with (
            contextlib.closing(TlsSocket(client, self._server, serves=True)) as one,
            contextlib.closing(TlsSocket(server, self._client, serves=False)) as other,
        ):
            yield one, other

    def shake(self, client: Passing, server: Passing) -> None:
        """Let a handshake pass, whose preamble has passed.

        Raises:
            OSError: it ended early.
        """
        for number in range(TOKENS):
            server.sendall(frame(client))
            if number < TOKENS - 1:
                head = exactly(server, _ANSWER.size)
                status, size = _ANSWER.unpack(head)
                client.sendall(head + exactly(server, max(0, size)))
                if status != 0:
                    client.sendall(frame(server))
                    raise ConnectionError("the server did not accept the client")

    def deliver(self, address: Address, header: bytes, request: bytes, timeout_s: float) -> None:
        """Send a request over a connection of its own, and wait for the answer.

        Raises:
            OSError: there is none.
        """
        service = pb.ConnectionHeader.FromString(header[LENGTH.size :]).service_name
        opened = Opener(Security.of(self._settings)).open(address, service, timeout_s)
        try:
            assert opened.layer is not None
            opened.socket.settimeout(timeout_s)
            opened.socket.sendall(opened.layer.seal(request))
            while opened.frames.next() is None:
                taken = opened.socket.recv_into(opened.frames.space())
                if not taken:
                    raise ConnectionError("the server closed the connection without an answer")
                opened.frames.add(taken)
        finally:
            opened.close()

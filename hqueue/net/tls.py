"""Speaks TLS for clients as a layer: with bytes in memory, and no socket."""

from __future__ import annotations

import ssl
import threading

from hqueue.net.alerts import refusal_in
from hqueue.net.layers import Layer

__all__ = ["Tls"]


class Tls(Layer):
    """Encrypts one connection.

    Args:
        context: the client's.
        host: the server's, as it was called.
        switch: the setting that turns TLS on, for errors.
    """

    def __init__(self, context: ssl.SSLContext, host: str, switch: str) -> None:
        self._switch = switch
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)
        self._has_heard = False
        self._lock = threading.RLock()
        """OpenSSL's object is for one thread at a time."""

    @property
    def version(self) -> str | None:
        """The protocol, such as ``TLSv1.3``; None before the handshake."""
        return self._tls.version()

    def shake(self) -> tuple[bytes, bool]:
        """Continue the handshake. Return the bytes to send, and whether it is over.

        Raises:
            RefusedError: one side does not accept the other.
            OSError: what came is not TLS, or the other side ended the connection.
        """
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return self._outgoing.read(), False
        except ssl.SSLError as exc:
            refusal = refusal_in(exc, self._switch)
            if refusal is None:
                raise
            raise refusal from exc
        return self._outgoing.read(), True

    def seal(self, data: bytes | memoryview) -> bytes:
        left = memoryview(data)
        with self._lock:
            return self._sealed(left)

    def _sealed(self, left: memoryview) -> bytes:
        while left:
            left = left[self._tls.write(left) :]  # It takes a record's bytes at a time.
        return self._outgoing.read()

    def feed(self, received: memoryview) -> None:
        with self._lock:
            self._incoming.write(received)

    def read_into(self, space: memoryview) -> int:
        with self._lock:
            return self._read_into(space)

    def _read_into(self, space: memoryview) -> int:
        filled = 0
        while filled < len(space):
            try:
                taken = self._tls.read(len(space) - filled, space[filled:])
            except ssl.SSLWantReadError:
                break
            except ssl.SSLError as exc:
                refusal = None if self._has_heard else refusal_in(exc, self._switch)
                if refusal is None:
                    raise
                raise refusal from exc
            if not taken:  # It said that it closes.
                if filled:
                    break
                raise ConnectionError("the server closed the connection")
            self._has_heard = True
            filled += int(taken)
        return filled

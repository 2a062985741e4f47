"""Sockets that speak TLS: made of connected ones, by threads that wait and in event loops."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Awaitable, Callable

from hqueue.net.alerts import refusal_in
from hqueue.net.contexts import TlsContexts
from hqueue.runtime.interrupts import is_interruption
from hqueue.runtime.sockets import within
from hqueue.settings.addresses import Address

__all__ = [
    "RECORD_BYTES", "WOULD_BLOCK", "open_in_loop", "say_end", "shake", "shake_in_loop",
]  # fmt: skip

RECORD_BYTES = 16 * 1024
"""What a record has at most. A receiver that takes as many at a time leaves nothing in OpenSSL,
which no selector would report."""

WOULD_BLOCK = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
"""What a socket raises that does not wait."""


def shake(connected: socket.socket, contexts: TlsContexts, host: str) -> ssl.SSLSocket:
    """Speak TLS from now on, with a server as it was called. The socket's time-out bounds the
    handshake. After an error the socket is closed.

    Raises:
        RefusedError: one side does not accept the other.
        OSError: what came is not TLS, or came not in time.
    """
    try:
        wrapped = _wrapped(connected, contexts, host)
        try:
            wrapped.do_handshake()
        except BaseException:
            wrapped.close()
            raise
    except BaseException as exc:
        connected.close()
        refusal = None if is_interruption(exc) else refusal_in(exc, contexts.switch)
        if refusal is None:
            raise
        raise refusal from exc
    return wrapped


async def shake_in_loop(
    connected: socket.socket, contexts: TlsContexts, host: str, timeout_s: float
) -> ssl.SSLSocket:
    """Like `shake`, in an event loop, within a bound. The socket does not block. Cancelled, it
    leaves none behind.
    """
    try:
        wrapped = _wrapped(connected, contexts, host)
        try:
            await within(_shaken(wrapped), timeout_s)
        except BaseException:
            wrapped.close()
            raise
    except asyncio.TimeoutError as exc:
        raise TimeoutError("the handshake took too long") from exc
    except BaseException as exc:
        connected.close()
        refusal = None if is_interruption(exc) else refusal_in(exc, contexts.switch)
        if refusal is None:
            raise
        raise refusal from exc
    return wrapped


async def open_in_loop(
    connect: Callable[[], Awaitable[socket.socket]],
    tls: TlsContexts | None,
    address: Address,
    timeout_s: float,
) -> socket.socket:
    """Connect in an event loop, and speak TLS from then on; in clear if `tls` is None, or if the
    server does not speak it and may be called so. Cancelled, it leaves no socket behind.

    Args:
        connect: makes a connection, which does not block.
        tls: what TLS is spoken with.
        address: the server's.
        timeout_s: the bound on the handshake.

    Raises:
        RefusedError: one side does not accept the other.
        OSError: there is no connection, what came is not TLS, or came not in time.
    """
    plaintext = None if tls is None else tls.plaintext
    connected = await connect()
    if tls is None or (plaintext is not None and plaintext.has(*address)):
        return connected
    try:
        shaken = await shake_in_loop(connected, tls, address.host, timeout_s)
    except OSError as exc:
        if plaintext is None or is_interruption(exc) or not plaintext.adds(*address, exc):
            raise
        return await connect()
    if plaintext is not None:
        plaintext.spoke_tls(*address)
    return shaken


async def _shaken(wrapped: ssl.SSLSocket) -> None:
    loop = asyncio.get_running_loop()
    while True:
        ready: asyncio.Future[None] = loop.create_future()
        try:
            wrapped.do_handshake()
            return
        except ssl.SSLWantReadError:
            loop.add_reader(wrapped, _set, ready)
        except ssl.SSLWantWriteError:
            loop.add_writer(wrapped, _set, ready)
        try:
            await ready
        finally:
            loop.remove_reader(wrapped)
            loop.remove_writer(wrapped)


def say_end(sock: socket.socket) -> None:
    """Announce that nothing more will be sent, if the socket speaks TLS."""
    if isinstance(sock, ssl.SSLSocket):
        with contextlib.suppress(OSError, ValueError):
            sock.unwrap()


def _wrapped(connected: socket.socket, contexts: TlsContexts, host: str) -> ssl.SSLSocket:
    return contexts.current().wrap_socket(
        connected, server_hostname=host, do_handshake_on_connect=False
    )


def _set(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)

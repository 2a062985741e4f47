"""Opening a socket to one of HBase's servers: by a thread that waits, or from an event loop.

Here is the place of what proves who speaks, and of what hides it from others: SASL's frames go
between the preamble and the connection header, TLS around the socket before both. Neither is there
yet.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable

from hqueue.hbase.native.wire import connection_header, preamble
from hqueue.runtime.sockets import connect, open_connection, opened_within, resolve
from hqueue.settings.addresses import Address

__all__ = ["AsyncOpenSocket", "OpenSocket", "Route", "direct", "open_socket", "open_socket_async"]

OpenSocket = Callable[[Address, str, float], socket.socket]
"""Opens a socket on which requests to a service may follow: by its address, the service's name,
and the bound in seconds. Raises `OSError`."""

AsyncOpenSocket = Callable[[Address, str, float], Awaitable[socket.socket]]
"""Likewise, from an event loop: a socket that doesn't block."""

Route = Callable[[Address, str], Address]
"""Where a server's service is reached, by its address and the service's name: tests put something
between. Raises `OSError` where it is not."""


def direct(address: Address, service: str) -> Address:
    """Where it listens."""
    return address


def open_socket(address: Address, service: str, timeout_s: float) -> socket.socket:
    """Connect, and say to which service.

    Raises:
        OSError: not within the bound.
    """
    opened = open_connection(address, timeout_s)
    try:
        _set_options(opened)
        opened.sendall(_greeting(service))
    except BaseException:
        opened.close()
        raise
    return opened


async def open_socket_async(address: Address, service: str, timeout_s: float) -> socket.socket:
    """Connect, and say to which service. A thread looks up a name, if it is none that stands for
    itself. Cancelled, it leaves no socket behind.

    Raises:
        OSError: not within the bound.
    """
    return await opened_within(_open(address, service), timeout_s)


async def _open(address: Address, service: str) -> socket.socket:
    opened = await connect(await resolve(address))
    try:
        _set_options(opened)
        await asyncio.get_running_loop().sock_sendall(opened, _greeting(service))
    except BaseException:
        opened.close()
        raise
    return opened


def _set_options(opened: socket.socket) -> None:
    """Set what each connection to a server has."""
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)


def _greeting(service: str) -> bytes:
    """What is sent before the first request."""
    return preamble() + connection_header(service)

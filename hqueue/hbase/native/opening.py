"""Opening a socket to one of HBase's servers.

Here is the place of what proves who speaks, and of what hides it from others: SASL's frames go
between the preamble and the connection header, TLS around the socket before both. Neither is there
yet.
"""

from __future__ import annotations

import socket
from collections.abc import Callable

from hqueue.hbase.native.wire import connection_header, preamble
from hqueue.settings.addresses import Address

__all__ = ["OpenSocket", "Route", "direct", "greeting", "open_socket", "set_options"]

OpenSocket = Callable[[Address, str, float], socket.socket]
"""Opens a socket on which requests to a service may follow: by its address, the service's name,
and the bound in seconds. Raises `OSError`."""

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
    opened = socket.create_connection(address, timeout=timeout_s)
    try:
        set_options(opened)
        opened.sendall(greeting(service))
    except BaseException:
        opened.close()
        raise
    return opened


def set_options(opened: socket.socket) -> None:
    """Set what each connection to a server has."""
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)


def greeting(service: str) -> bytes:
    """What is sent before the first request."""
    return preamble() + connection_header(service)

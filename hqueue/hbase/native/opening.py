"""Opens connections to HBase's servers: in a thread that waits, or in an event loop."""

from __future__ import annotations

import socket
import time
from collections.abc import Awaitable, Callable

from hqueue.hbase.native.greeting import greeting
from hqueue.hbase.native.security import OPEN, Security
from hqueue.hbase.native.wire import FRAME_BYTES_MAX
from hqueue.net.framing import Beginning, Frames
from hqueue.net.layers import Layer, Secured
from hqueue.net.talking import Talk, talk_in_loop, talk_in_thread
from hqueue.runtime.interrupts import is_interruption
from hqueue.runtime.sockets import connect, open_connection, opened_within, resolve
from hqueue.settings.addresses import Address

__all__ = ["AsyncOpen", "Open", "Opened", "Opener", "Route", "direct"]


class Opened:
    """A connection on which requests may follow.

    Args:
        opened: the socket.
        layer: what goes through it; None for what is in clear.
        received: what the server said since, in clear.
        beginning: looks at what the server says first, if anything does.
    """

    def __init__(
        self,
        opened: socket.socket,
        layer: Layer | None = None,
        received: bytes = b"",
        beginning: Beginning | None = None,
    ) -> None:
        self.socket = opened
        self.layer = layer
        self.frames: Frames | Secured = Frames(FRAME_BYTES_MAX, beginning)
        """What the server says."""
        if layer is not None:
            self.frames = Secured(layer, FRAME_BYTES_MAX, received, beginning)
        elif received:
            self.frames.space()[: len(received)] = received
            self.frames.add(len(received))

    def close(self) -> None:
        self.socket.close()


Open = Callable[[Address, str, float], Opened]
"""Opens a connection on which requests to a service may follow: by the server's address, the
service's name, and the bound in seconds. Raises `OSError`."""

AsyncOpen = Callable[[Address, str, float], Awaitable[Opened]]
"""Likewise, from an event loop: the socket doesn't block."""

Route = Callable[[Address, str], Address]
"""Where a server's service is reached, by its address and the service's name: tests put something
between. Raises `OSError` where it is not."""


def direct(address: Address, service: str) -> Address:
    """Where it listens."""
    return address


class Opener:
    """Opens connections. Thread-safe.

    Args:
        security: how they are secured.
        route: where servers are reached.
    """

    def __init__(self, security: Security = OPEN, route: Route = direct) -> None:
        self._security = security
        self._route = route
        self._unaware: set[Address] = set()
        """The servers that were found not to say who they are."""

    def open(self, address: Address, service: str, timeout_s: float) -> Opened:
        """Connect, agree on who speaks, and say to which service.

        Raises:
            RefusedError: client and server don't accept each other.
            OSError: not within the bound.
        """
        ends_s = time.monotonic() + timeout_s
        opened = open_connection(self._route(address, service), timeout_s)
        try:
            _set_options(opened)
            work = greeting(address, service, self._security, ends_s, self._unaware)
            return _opened(opened, talk_in_thread(work, opened, ends_s))
        except BaseException as exc:
            opened.close()
            if isinstance(exc, ValueError) and not is_interruption(exc):
                raise _malformed(exc) from exc
            raise

    async def open_in_loop(self, address: Address, service: str, timeout_s: float) -> Opened:
        """Like `open`. Threads look up a name, if it is none that stands for itself, and ask a KDC
        for tickets. Cancelled, it leaves no socket behind.
        """
        return await opened_within(self._open(address, service, timeout_s), timeout_s)

    async def _open(self, address: Address, service: str, timeout_s: float) -> Opened:
        ends_s = time.monotonic() + timeout_s
        opened = await connect(await resolve(self._route(address, service)))
        try:
            _set_options(opened)
            work = greeting(address, service, self._security, ends_s, self._unaware)
            return _opened(opened, await talk_in_loop(work, opened))
        except BaseException as exc:
            opened.close()
            if isinstance(exc, ValueError) and not is_interruption(exc):
                raise _malformed(exc) from exc
            raise


def _opened(opened: socket.socket, talk: Talk) -> Opened:
    return Opened(opened, talk.layer, talk.unused(), talk.beginning)


def _malformed(error: ValueError) -> ConnectionError:
    return ConnectionError(f"the server does not speak HBase's RPC as it should: {error}")


def _set_options(opened: socket.socket) -> None:
    """Set what each connection to a server has."""
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

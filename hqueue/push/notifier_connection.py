"""Connects to workers, only to notify them of appends."""

from __future__ import annotations

import socket
import threading

from hqueue.net.contexts import TlsContexts
from hqueue.net.sockets import WOULD_BLOCK, open_in_loop
from hqueue.runtime.clock import SYSTEM_CLOCK
from hqueue.runtime.interrupts import is_interruption
from hqueue.runtime.logs import Log
from hqueue.runtime.sockets import connect, opened_within, resolve
from hqueue.settings.addresses import Address

__all__ = ["CONNECT_TIMEOUT_S", "NotifierConnection", "open_socket"]

logger = Log(__name__)

CONNECT_TIMEOUT_S = 0.5
AVOIDED_MS = 2_000.0


class NotifierConnection:
    """Sends notifications to one worker. Nothing comes back.

    Thread-safe, but for `connect`, which one task of an event loop at a time calls.
    """

    def __init__(self, address: Address, tls: TlsContexts | None) -> None:
        self._address = address
        self._tls = tls
        self._lock = threading.RLock()
        self._socket: socket.socket | None = None
        self._avoided_until_ms = 0.0

    def send(self, frame: bytes) -> bool:
        """Send a notification without waiting. Returns False if a connection must be made first."""
        with self._lock:
            opened = self._socket  # A handler of a signal may send one here, too.
            if opened is None:
                return SYSTEM_CLOCK.monotonic_ms() < self._avoided_until_ms
            try:
                if _is_ended(opened):  # The worker needed the connection's place for others.
                    opened.close()
                    self._socket = None
                    return False
                if _all_sent(opened, frame):
                    return True
                reason = "the worker does not read"
            except OSError as exc:
                if is_interruption(exc):
                    raise
                reason = str(exc)
            # A worker that does not read, or is gone, also looks for appends by itself.
            self._avoid(reason)
            return True

    async def connect(self) -> bool:
        """Open the connection, unless it is open. Returns whether it is open."""
        if self._socket is not None:
            return True
        try:
            opened = await open_socket(self._address, self._tls)
        except OSError as exc:
            with self._lock:
                self._avoid(str(exc))
            return False
        with self._lock:
            self._socket = opened
        return True

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            if self._socket is not None:
                self._socket.close()
                self._socket = None

    def _avoid(self, reason: str) -> None:
        logger.debug("worker at %s was not notified: %s", self._address, reason)
        self._avoided_until_ms = SYSTEM_CLOCK.monotonic_ms() + AVOIDED_MS
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def _all_sent(by: socket.socket, frame: bytes) -> bool:
    """Send a frame without waiting. Returns whether there was room for all of it.

    Raises:
        OSError: the connection is broken.
    """
    try:
        return by.send(frame) == len(frame)
    except WOULD_BLOCK:
        return False


def _is_ended(of: socket.socket) -> bool:
    """Whether the other side has hung up. Nothing else comes from it.

    Raises:
        OSError: the connection is broken.
    """
    try:
        return not of.recv(1)
    except WOULD_BLOCK:
        return False


async def open_socket(address: Address, tls: TlsContexts | None = None) -> socket.socket:
    """A socket that is connected, and doesn't block.

    Raises:
        OSError: no connection could be opened within `CONNECT_TIMEOUT_S`.
    """
    return await opened_within(_opened(address, tls), CONNECT_TIMEOUT_S)


async def _opened(address: Address, tls: TlsContexts | None) -> socket.socket:
    found = await resolve(address)
    return await open_in_loop(lambda: connect(found), tls, address, CONNECT_TIMEOUT_S)

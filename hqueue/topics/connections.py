"""Connections to hubs, kept for the next call."""

from __future__ import annotations

import select
import threading
from collections import defaultdict
from typing import Any

from hqueue.rpc.connection import Connection
from hqueue.runtime.fork import register
from hqueue.settings.addresses import Address

__all__ = ["HubConnections"]


class HubConnections:
    """Connections by hub. Thread-safe; a forked child opens its own.

    Args:
        service: what is called.
        kept_max: kept for each hub. Further ones are closed when they are given back.
        timeout_ms: the bound on opening one.
    """

    def __init__(self, service: Any, kept_max: int, timeout_ms: int) -> None:
        self._service = service
        self._kept_max = kept_max
        self._timeout_ms = timeout_ms
        self._closed = False
        self.after_fork_in_child()
        register(self)

    def after_fork_in_child(self) -> None:
        self._lock = threading.Lock()
        # The parent's are not closed but by the parent.
        self._left_to_parent = getattr(self, "_idle", None)
        self._idle: defaultdict[Address, list[Connection]] = defaultdict(list)

    def take(self, hub: Address, bound_ms: float) -> Connection:
        """A connection for one call.

        Raises:
            OSError: it can't be opened in time.
        """
        while True:
            with self._lock:
                idle = self._idle.get(hub)
                connection = idle.pop() if idle else None
            if connection is None:
                timeout_s = min(bound_ms, self._timeout_ms) / 1e3
                return Connection(self._service, hub.host, hub.port, timeout_s)
            if _is_quiet(connection):
                return connection
            connection.close()  # The hub has hung up: what is sent now would be lost.

    def give_back(self, hub: Address, connection: Connection) -> None:
        """Keep a connection whose call was answered."""
        with self._lock:
            if not self._closed and len(self._idle[hub]) < self._kept_max:
                self._idle[hub].append(connection)
                return
        connection.close()

    def forget(self, hub: Address) -> None:
        """Close those to a hub that does not answer."""
        with self._lock:
            idle = self._idle.pop(hub, [])
        for connection in idle:
            connection.close()

    def close(self) -> None:
        """Keep none any more."""
        with self._lock:
            self._closed = True
            hubs = list(self._idle)
        for hub in hubs:
            self.forget(hub)


def _is_quiet(connection: Connection) -> bool:
    """Whether nothing came, and the other side has not hung up."""
    waiting = select.poll()
    waiting.register(connection.socket.fileno(), select.POLLIN | select.POLLHUP | select.POLLERR)
    return not waiting.poll(0)

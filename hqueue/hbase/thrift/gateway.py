"""One Thrift gateway process: its pooled connections, and how it has been doing."""

from __future__ import annotations

import threading

from hqueue.hbase.thrift.connection import Connection, Service, connect
from hqueue.runtime.clock import Clock
from hqueue.settings.addresses import GatewayAddress
from hqueue.settings.connection import Settings

__all__ = ["Gateway"]

AVOIDED_MS_MAX = 30_000


class Gateway:
    """One of the two gateway processes of a host; how the other does says nothing of it.

    Thread-safe.

    Args:
        address: the host.
        service: which of the two.
        settings: bounds on connections and times.
        clock: where time comes from.
    """

    def __init__(
        self, address: GatewayAddress, service: Service, settings: Settings, clock: Clock
    ) -> None:
        self.address = address
        self._service = service
        self._settings = settings
        self._clock = clock
        self.reset()

    def reset(self) -> None:
        """Start again with no connection and no history."""
        self._lock = threading.Lock()
        self._returned = threading.Condition(self._lock)
        self._idle: list[Connection] = []
        self._in_use = 0
        self._failures = 0
        self.avoided_until_ms = 0.0

    def acquire(self) -> Connection:
        """An open connection for the caller alone, until `release` or `discard`.

        Raises:
            OSError: none could be opened in time, or all stay in use.
        """
        with self._lock:
            if not self._has_room():
                self._await_room()
            self._in_use += 1
            connection = self._idle.pop() if self._idle else None
        if connection is not None:
            idle_ms = self._clock.monotonic_ms() - connection.used_ms
            if idle_ms <= self._settings.connection_idle_ms:
                return connection
            connection.close()
            self.close()  # The others idled even longer.
        try:
            return connect(self.address, self._service, self._settings)
        except BaseException:
            self._give_back()
            raise

    def _await_room(self) -> None:
        if not self._returned.wait_for(self._has_room, self._settings.operation_timeout_ms / 1e3):
            raise TimeoutError("all connections to the gateway stay in use")

    def _has_room(self) -> bool:
        return self._in_use < self._settings.connections_max

    def release(self, connection: Connection) -> None:
        """Give back a connection whose last request was answered."""
        connection.used_ms = self._clock.monotonic_ms()
        with self._lock:
            self._idle.append(connection)
            self._in_use -= 1
            self._failures = 0
            self.avoided_until_ms = 0.0
            self._returned.notify()

    def discard(self, connection: Connection) -> None:
        """Give back a connection that may hold half an answer."""
        connection.close()
        self._give_back()

    def _give_back(self) -> None:
        with self._lock:
            self._in_use -= 1
            self._returned.notify()

    def avoid(self) -> None:
        """Note a failure: ask others for a while, and drop connections of the same age."""
        with self._lock:
            pause_ms = min(self._settings.gateway_retry_ms * 2**self._failures, AVOIDED_MS_MAX)
            self._failures = min(self._failures + 1, 10)
            self.avoided_until_ms = self._clock.monotonic_ms() + pause_ms
        self.close()

    def close(self) -> None:
        """Close the idle connections."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

"""One Thrift gateway process: its pooled connections, and how it has been doing."""

from __future__ import annotations

import dataclasses
import threading

from hqueue.errors import StoreUnavailableError
from hqueue.hbase.thrift.connection import Connection, Service, connect
from hqueue.runtime.clock import Clock
from hqueue.settings.addresses import GatewayAddress
from hqueue.settings.connection import Settings

__all__ = ["Gateway", "Run"]

AVOIDED_MS_MAX = 30_000


@dataclasses.dataclass(slots=True)
class Run:
    """The process that a gateway is while some state lives in it.

    Another one may come in its place that knows the same names for other things. An older
    connection that still answers shows that it is the same.
    """

    gateway: Gateway
    connections: int | None = None
    """How many had been opened when it was first asked, for that state."""


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
        """In the order in which they were used."""
        self._used: set[int] = set()
        """The numbers of those in use."""
        self._in_use = self._opened = 0
        self._failures = 0
        self.avoided_until_ms = 0.0

    @property
    def is_avoided(self) -> bool:
        """Whether it failed just now."""
        return self._clock.monotonic_ms() < self.avoided_until_ms

    def acquire(self, run: Run | None = None, timeout_ms: int | None = None) -> Connection:
        """An open connection for the caller alone, until `release` or `discard`.

        Args:
            run: the process that it must lead to.
            timeout_ms: how long to wait while all that will do are in use, if not
                ``operation_timeout_ms``.

        Raises:
            OSError: none could be opened in time.
            StoreUnavailableError: all that will do stay in use, or none is left that is known to
                lead to that process.
        """
        opened_max = None if run is None else run.connections
        with self._lock:
            self._close_stale()
            self._await(opened_max, timeout_ms or self._settings.operation_timeout_ms)
            self._in_use += 1
            connection = self._take_idle(opened_max)
        try:
            if connection is None:
                connection = self._open(run)
        except BaseException:
            self._give_back()
            raise
        if run is not None and run.connections is None:
            run.connections = self._opened
        return connection

    def _close_stale(self) -> None:
        """Close those that idled for too long."""
        oldest_ms = self._clock.monotonic_ms() - self._settings.connection_idle_ms
        while self._idle and self._idle[0].used_ms < oldest_ms:
            self._idle.pop(0).close()

    def _take_idle(self, opened_max: int | None) -> Connection | None:
        """The one that was used last of those that were opened first; of all if None."""
        for at in reversed(range(len(self._idle))):
            if opened_max is None or self._idle[at].number < opened_max:
                self._used.add(self._idle[at].number)
                return self._idle.pop(at)
        return None

    def _open(self, run: Run | None) -> Connection:
        if run is not None and run.connections is not None:
            raise StoreUnavailableError(
                "the gateway may have been started again", gateway=str(self.address)
            )
        connection = connect(self.address, self._service, self._settings)
        with self._lock:
            connection.number = self._opened
            self._opened += 1
            self._used.add(connection.number)
        return connection

    def _await(self, opened_max: int | None, timeout_ms: int) -> None:
        """Wait while one that will do may come back."""

        def has_any() -> bool:
            if self._in_use >= self._settings.connections_max:
                return False
            if opened_max is None or any(each.number < opened_max for each in self._idle):
                return True
            return all(number >= opened_max for number in self._used)

        if not has_any() and not self._returned.wait_for(has_any, timeout_ms / 1e3):
            # Not a failure of the gateway's.
            raise StoreUnavailableError(
                "all connections to the gateway stay in use", gateway=str(self.address)
            )

    def release(self, connection: Connection) -> None:
        """Give back a connection whose last request was answered."""
        connection.used_ms = self._clock.monotonic_ms()
        with self._lock:
            self._idle.append(connection)
            self._failures = 0
            self.avoided_until_ms = 0.0
            self._end_use(connection)

    def discard(self, connection: Connection) -> None:
        """Give back a connection that may hold half an answer."""
        connection.close()
        self._give_back(connection)

    def _give_back(self, connection: Connection | None = None) -> None:
        with self._lock:
            self._end_use(connection)

    def _end_use(self, connection: Connection | None) -> None:
        self._in_use -= 1
        if connection is not None:
            self._used.discard(connection.number)
        self._returned.notify_all()  # Not each that waits can use it.

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

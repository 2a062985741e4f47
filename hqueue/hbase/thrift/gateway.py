"""One Thrift gateway process: its pooled connections, and how it has been doing."""

from __future__ import annotations

import dataclasses
import threading

from hqueue.errors import StoreUnavailableError
from hqueue.hbase.thrift.connection import Connection, Service, connect
from hqueue.runtime.backoff import Backoff
from hqueue.runtime.clock import SYSTEM_CLOCK, Clock, Deadline, bounded_ms
from hqueue.runtime.waiting import Condition
from hqueue.settings.addresses import GatewayAddress
from hqueue.settings.connection import Settings

__all__ = ["Gateway", "Run", "Use"]

AVOIDED_MS_MAX = 30_000


LOOK_EVERY_S = 0.25
"""A caller that waits looks so often by itself whether a connection came back: who gave it back may
have been interrupted before it said so."""


class Use:
    """One caller's use of a gateway's connections: of one at a time."""

    __slots__ = ("connection",)

    def __init__(self) -> None:
        self.connection: Connection | None = None
        """None while it is opened."""


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
        self._lock = threading.RLock()
        self._returned = Condition(self._lock)
        self._idle: list[Connection] = []
        """In the order in which they were used."""
        self.uses: set[Use] = set()
        """Those of callers that have a connection, or are opened one."""
        self._opened = 0
        self._failures = 0
        self.avoided_until_ms = 0.0

    @property
    def is_avoided(self) -> bool:
        """Whether it failed just now."""
        return self._clock.monotonic_ms() < self.avoided_until_ms

    def acquire(
        self, use: Use, run: Run | None = None, timeout_ms: int | None = None
    ) -> Connection:
        """An open connection for the caller alone, until it takes its use out of `uses`. It does so
        in a ``finally`` that begins before this is called, and `notify` follows.

        Args:
            use: the caller's.
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
            self._await(opened_max, bounded_ms(timeout_ms or self._settings.operation_timeout_ms))
            self.uses.add(use)
            use.connection = self._take_idle(opened_max)
        connection = use.connection or self._open(run, use)
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
                return self._idle.pop(at)
        return None

    def _open(self, run: Run | None, use: Use) -> Connection:
        if run is not None and run.connections is not None:
            raise StoreUnavailableError(
                "the gateway may have been started again", gateway=str(self.address)
            )
        connection = connect(self.address, self._service, self._settings)
        with self._lock:
            connection.number = self._opened
            self._opened += 1
            use.connection = connection
        return connection

    def _await(self, opened_max: int | None, timeout_ms: float) -> None:
        """Wait while one that will do may come back."""

        def has_any() -> bool:
            uses = list(self.uses)
            if len(uses) >= self._settings.connections_max:
                return False
            if opened_max is None or any(each.number < opened_max for each in self._idle):
                return True
            used = [use.connection.number for use in uses if use.connection is not None]
            return all(number >= opened_max for number in used)

        deadline = Deadline(SYSTEM_CLOCK, timeout_ms)
        while not has_any():
            if deadline.expired:
                # Not a failure of the gateway's.
                raise StoreUnavailableError(
                    "all connections to the gateway stay in use", gateway=str(self.address)
                )
            self._returned.wait(min(LOOK_EVERY_S, deadline.remaining_ms / 1e3))

    def keep(self, connection: Connection) -> None:
        """Keep a connection whose last request was answered for the next one."""
        connection.used_ms = self._clock.monotonic_ms()
        with self._lock:
            self._failures = 0
            self.avoided_until_ms = 0.0
            self._idle.append(connection)

    def notify(self) -> None:
        """A use is over."""
        with self._lock:
            self._returned.notify_all()  # Not each that waits can use it.

    def avoid(self) -> None:
        """Note a failure: ask others for a while, and drop connections of the same age."""
        with self._lock:
            self._failures += 1
            pause_ms = Backoff(self._settings.gateway_retry_ms, AVOIDED_MS_MAX).after(
                self._failures
            )
            self.avoided_until_ms = self._clock.monotonic_ms() + pause_ms
        self.close()

    def close(self) -> None:
        """Close the idle connections."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

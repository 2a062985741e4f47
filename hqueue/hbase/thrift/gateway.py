"""One Thrift gateway process: its pooled connections, and how it has been doing."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable
from typing import Any

from hqueue.errors import Outcome, StoreUnavailableError
from hqueue.hbase.thrift.connection import Connection, Service
from hqueue.hbase.thrift.translation import DECLARED_ERRORS
from hqueue.rpc.pool import AllInUseError, ConnectionPool, NoOlderConnectionError
from hqueue.runtime.backoff import Backoff
from hqueue.runtime.clock import Clock, bounded_ms
from hqueue.settings.addresses import GatewayAddress
from hqueue.settings.connection import HTTP, Settings

__all__ = ["Gateway", "OpenConnection", "Run"]

AVOIDED_MS_MAX = 30_000

OpenConnection = Callable[[GatewayAddress, Service, Settings], Connection]
"""Opens a connection to one of a host's two gateways, like
`hqueue.hbase.thrift.connection.connect`."""


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
        open_connection: opens connections.
    """

    def __init__(
        self,
        address: GatewayAddress,
        service: Service,
        settings: Settings,
        clock: Clock,
        open_connection: OpenConnection,
    ) -> None:
        self.address = address
        self._settings = settings
        self._clock = clock
        self._pool: ConnectionPool[Connection] = ConnectionPool(
            lambda _: open_connection(address, service, settings),
            in_use_max=settings.connections_max,
            idle_ms=settings.connection_idle_ms,
            # By HTTP a gateway drops idle connections after half a minute.
            usable=lambda kept: settings.transport != HTTP or kept.is_open(),
            clock=clock,
        )
        self.reset()

    def reset(self) -> None:
        """Start again with no history."""
        self._lock = threading.RLock()
        self._failures = 0
        self.avoided_until_ms = 0.0

    @property
    def is_avoided(self) -> bool:
        """Whether it failed just now."""
        return self._clock.monotonic_ms() < self.avoided_until_ms

    def call(
        self,
        request: Callable[[Connection], Any],
        run: Run | None = None,
        timeout_ms: int | None = None,
    ) -> Any:
        """Make a request by a connection for the caller alone; its answer.

        Args:
            request: makes it.
            run: the process that the connection must lead to.
            timeout_ms: how long to wait while all that will do are in use, if not
                ``operation_timeout_ms``.

        Raises:
            NotConnectedError: no connection could be opened in time.
            StoreUnavailableError: all that will do stay in use, or none is left that is known to
                lead to that process.
            Exception: what the request raises.
        """

        def first(connection: Connection) -> Any:
            if run is not None and run.connections is None:
                run.connections = self._pool.opened
            return request(connection)

        try:
            answer = self._pool.call(
                first,
                DECLARED_ERRORS,
                open_ms=self._settings.connect_timeout_ms,
                wait_ms=bounded_ms(timeout_ms or self._settings.operation_timeout_ms),
                below=None if run is None else run.connections,
            )
        except AllInUseError as exc:  # Not a failure of the gateway's.
            raise StoreUnavailableError(
                "no connection to the gateway became free in time",
                outcome=Outcome.NOT_APPLIED,
                gateway=str(self.address),
            ) from exc
        except NoOlderConnectionError as exc:
            raise StoreUnavailableError(
                "the gateway may have been restarted",
                outcome=Outcome.NOT_APPLIED,
                gateway=str(self.address),
            ) from exc
        except DECLARED_ERRORS:
            self._succeed()
            raise
        self._succeed()
        return answer

    def _succeed(self) -> None:
        if self._failures or self.avoided_until_ms:
            with self._lock:
                self._failures = 0
                self.avoided_until_ms = 0.0

    def avoid(self) -> None:
        """Note a failure: ask others for a while, and drop connections of the same age."""
        with self._lock:
            self._failures += 1
            pause_ms = Backoff(self._settings.gateway_retry_ms, AVOIDED_MS_MAX).after(
                self._failures
            )
            self.avoided_until_ms = self._clock.monotonic_ms() + pause_ms
        self._pool.drop()

    def close(self) -> None:
        """Close the idle connections, and the others when their calls end."""
        self._pool.close()

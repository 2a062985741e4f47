"""The Thrift gateways: which one to ask, and the connections to them."""

from __future__ import annotations

import functools
import logging
import socket
import threading
from typing import Any

from hqueue.clock import SYSTEM_CLOCK, Clock
from hqueue.config import GatewayAddress, Settings
from hqueue.errors import ClosedError
from hqueue.fork import register
from hqueue.hbase.connection import Connection, Service
from hqueue.hbase.translation import DECLARED_ERRORS, translate_answer, translate_silence

__all__ = ["Gateway", "Gateways"]

logger = logging.getLogger(__name__)

AVOIDED_MS_MAX = 30_000


class Gateway:
    """One host's gateway pair: its pooled connections, and how each of the two has been doing.

    They are two processes: that one answers says nothing of the other.
    """

    def __init__(self, address: GatewayAddress, settings: Settings, clock: Clock) -> None:
        self.address = address
        self._settings = settings
        self._clock = clock
        self.reset()

    def reset(self) -> None:
        """Start anew with no connection and no history."""
        self._lock = threading.Lock()
        self._idle: dict[Service, list[Connection]] = {service: [] for service in Service}
        self._slots = {
            service: threading.BoundedSemaphore(self._settings.connections_max)
            for service in Service
        }
        self._failures = dict.fromkeys(Service, 0)
        self.avoided_until_ms = dict.fromkeys(Service, 0.0)

    def acquire(self, service: Service) -> Connection:
        """An open connection for the caller alone, until `release` or `discard`.

        Raises:
            OSError: none could be opened in time, or all stay in use.
        """
        if not self._slots[service].acquire(timeout=self._settings.operation_timeout_ms / 1e3):
            raise TimeoutError("all connections to the gateway stay in use")
        try:
            oldest_ms = self._clock.monotonic_ms() - self._settings.connection_idle_ms
            while True:
                with self._lock:
                    connection = self._idle[service].pop() if self._idle[service] else None
                if connection is None:
                    return Connection(self.address, service, self._settings)
                if connection.used_ms >= oldest_ms:
                    return connection
                connection.close()
        except BaseException:
            self._slots[service].release()
            raise

    def release(self, service: Service, connection: Connection) -> None:
        """Give back a connection whose last request was answered."""
        connection.used_ms = self._clock.monotonic_ms()
        with self._lock:
            self._idle[service].append(connection)
            self._failures[service] = 0
            self.avoided_until_ms[service] = 0.0
        self._slots[service].release()

    def discard(self, service: Service, connection: Connection) -> None:
        """Give back a connection that may hold half an answer."""
        connection.close()
        self._slots[service].release()

    def avoid(self, service: Service) -> None:
        """Note a failure: ask others for a while, and drop connections of the same age."""
        with self._lock:
            failures = self._failures[service]
            pause_ms = min(self._settings.gateway_retry_ms * 2**failures, AVOIDED_MS_MAX)
            self._failures[service] = min(failures + 1, 10)
            self.avoided_until_ms[service] = self._clock.monotonic_ms() + pause_ms
            stale, self._idle[service] = self._idle[service], []
        for connection in stale:
            connection.close()

    def close(self) -> None:
        """Close the idle connections."""
        with self._lock:
            idle = [c for connections in self._idle.values() for c in connections]
            for connections in self._idle.values():
                connections.clear()
        for connection in idle:
            connection.close()


class Gateways:
    """All gateways of a cluster. Thread-safe, and usable in a forked child.

    A request goes to the gateway on the preferred host if there is one, else to each in turn. A
    gateway that fails is avoided for a while, unless all are.
    """

    def __init__(self, settings: Settings, clock: Clock = SYSTEM_CLOCK) -> None:
        self.settings = settings
        self._clock = clock
        self._gateways = [Gateway(address, settings, clock) for address in settings.gateways]
        self._turn = 0
        self._closed = False
        register(self)

    def after_fork_in_child(self) -> None:
        for gateway in self._gateways:
            gateway.reset()

    @property
    def hosts(self) -> set[str]:
        """The hosts that run a gateway."""
        return {gateway.address.host for gateway in self._gateways}

    def choose(self, service: Service, host: str | None = None) -> Gateway:
        """The gateway to ask next for a service, by preference one on `host`."""
        now_ms = self._clock.monotonic_ms()
        usable = [g for g in self._gateways if g.avoided_until_ms[service] <= now_ms]
        if not usable:
            return min(self._gateways, key=lambda g: g.avoided_until_ms[service])
        if host is not None:
            near = [g for g in usable if _same_host(g.address.host, host)]
            usable = near or usable
        self._turn += 1
        return usable[self._turn % len(usable)]

    def call(
        self,
        service: Service,
        method: str,
        table: str,
        *arguments: Any,
        host: str | None = None,
        gateway: Gateway | None = None,
        timeout_ms: int | None = None,
    ) -> Any:
        """Make one request and return its answer. Never repeats it.

        Args:
            service: which of the gateway's two services.
            method: the service's method.
            table: the table it is about, for errors.
            arguments: the method's arguments.
            host: the preferred host.
            gateway: ask this one and no other.
            timeout_ms: the bound on the request, if not ``request_timeout_ms``.

        Raises:
            StoreUnavailableError: no usable answer within ``request_timeout_ms``; its outcome
                is not applied if the request was never sent.
            QueueStateError: the table isn't there, or is disabled.
            RequestRefusedError: HBase will not do it.
        """
        if self._closed:
            raise ClosedError("the client is closed")
        gateway = gateway or self.choose(service, host)
        try:
            connection = gateway.acquire(service)
        except OSError as exc:
            gateway.avoid(service)
            raise translate_silence(exc, table, method, str(gateway.address), sent=False) from exc
        try:
            connection.socket.settimeout((timeout_ms or self.settings.request_timeout_ms) / 1e3)
            answer = getattr(connection.client, method)(*arguments)
        except DECLARED_ERRORS as exc:
            gateway.release(service, connection)
            raise translate_answer(exc, table, method) from exc
        except Exception as exc:
            gateway.discard(service, connection)
            gateway.avoid(service)
            logger.debug("gateway %s failed", gateway.address, exc_info=True)
            raise translate_silence(exc, table, method, str(gateway.address), sent=True) from exc
        except BaseException:
            gateway.discard(service, connection)
            raise
        gateway.release(service, connection)
        return answer

    def close(self) -> None:
        """Close all connections. Later calls raise `ClosedError`."""
        self._closed = True
        for gateway in self._gateways:
            gateway.close()


def _same_host(one: str, other: str) -> bool:
    return one == other or bool(_addresses(one) & _addresses(other))


@functools.lru_cache(maxsize=1_024)
def _addresses(host: str) -> frozenset[str]:
    try:
        return frozenset(str(info[4][0]) for info in socket.getaddrinfo(host, None))
    except OSError:
        return frozenset()

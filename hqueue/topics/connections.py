"""Connections to hubs, kept for the next call, of callers that wait in threads."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import Any

from hqueue.net.contexts import TlsContexts
from hqueue.rpc.connection import Connection, ThriftError
from hqueue.rpc.pool import ConnectionPool
from hqueue.runtime.interrupts import is_interruption
from hqueue.settings.addresses import Address
from hqueue.topics.exchanges import Ask, Exchange
from hqueue.topics.settings import HubClientSettings

__all__ = ["HubConnections"]


class HubConnections:
    """Connections by hub. Thread-safe; a forked child opens its own.

    Args:
        service: what is called.
        declared: the errors that the service declares.
        settings: how many to keep for each hub, and the bound on opening one. Further ones are
            closed when they are given back.
        tls: what TLS is spoken with; in clear if None.
    """

    def __init__(
        self,
        service: Any,
        declared: tuple[type[BaseException], ...],
        settings: HubClientSettings,
        tls: TlsContexts | None,
    ) -> None:
        self._tls = tls
        self._service = service
        self._declared = declared
        self._kept_max = settings.connections_max
        self._timeout_ms = settings.connect_timeout_ms
        self._closed = False
        self._pools: dict[Address, ConnectionPool[Connection]] = {}

    def exchange(self, call: Exchange) -> Any:
        """Make a call as `ConnectionPool.call` does; the connection is opened within the call's
        bound. The connections to a server that does not answer are closed.
        """
        address, bound_ms = call.address, max(1.0, call.deadline.remaining_ms)
        pool = self._pools.get(address)
        if pool is None:
            pool = self._pools.setdefault(address, self._pool_of(address))
        if self._closed:
            pool.close()
        try:
            return pool.call(
                partial(_request, call, bound_ms),
                self._declared,
                open_ms=min(bound_ms, self._timeout_ms),
            )
        except self._declared:
            raise
        except Exception as exc:
            if not is_interruption(exc):
                self.drop(address)
            raise

    def ask(self, asked: Ask) -> bool:
        """Whether a hub answers within the bound."""
        bound_s = asked.bound_ms / 1e3
        try:
            opened = Connection(self._service, *asked.hub, bound_s, tls=self._tls)
            with contextlib.closing(opened) as connection:
                connection.socket.settimeout(bound_s)
                connection.client.apiAddress()
        except (OSError, *ThriftError, EOFError, ValueError) as exc:
            if is_interruption(exc):
                raise
            # With any other error it is there, or at once known to be gone.
            return not isinstance(exc, TimeoutError)
        return True

    def drop(self, hub: Address) -> None:
        """Close those to a hub that does not answer."""
        pool = self._pools.pop(hub, None)
        if pool is not None:
            pool.close()

    def close(self) -> None:
        """Keep none any more."""
        self._closed = True
        for hub in list(self._pools):
            self.drop(hub)

    def _pool_of(self, hub: Address) -> ConnectionPool[Connection]:
        return ConnectionPool(
            lambda open_ms: Connection(
                self._service, hub.host, hub.port, open_ms / 1e3, tls=self._tls
            ),
            kept_max=self._kept_max,
            usable=Connection.is_quiet,  # Where the hub has hung up, what is sent would be lost.
        )


def _request(call: Exchange, bound_ms: float, connection: Connection) -> Any:
    watch = call.watch

    def check() -> None:
        assert watch is not None
        watch.check().here()

    if watch is None:
        connection.socket.settimeout(bound_ms / 1e3)
    else:
        connection.socket.settimeout(bound_ms / 1e3, watch.silence_ms / 1e3, check)
    return getattr(connection.client, call.method.name)(*call.method.arguments)

"""Connections to hubs, kept for the next call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hqueue.rpc.connection import Connection
from hqueue.rpc.pool import ConnectionPool
from hqueue.settings.addresses import Address

__all__ = ["NO_ANSWER", "HubConnections"]

NO_ANSWER = "a hub did not answer: the call may be done already, or be done later"


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
        self._pools: dict[Address, ConnectionPool[Connection]] = {}

    def call(
        self,
        hub: Address,
        request: Callable[[Connection], Any],
        answers: tuple[type[BaseException], ...],
        bound_ms: float,
    ) -> Any:
        """Call a hub as `ConnectionPool.call` does; the connection is opened within the bound."""
        pool = self._pools.get(hub)
        if pool is None:
            pool = self._pools.setdefault(hub, self._pool_of(hub))
        if self._closed:
            pool.close()
        return pool.call(request, answers, open_ms=min(bound_ms, self._timeout_ms))

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
            lambda open_ms: Connection(self._service, hub.host, hub.port, open_ms / 1e3),
            kept_max=self._kept_max,
            usable=Connection.is_quiet,  # Where the hub has hung up, what is sent would be lost.
        )

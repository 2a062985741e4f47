"""The addresses at which subscribers listen, and whether they answer."""

from __future__ import annotations

import collections
from collections.abc import Callable, Mapping
from typing import Any

from hqueue import Address
from hqueue.net.principals import is_proven
from hqueue.net.refusals import RefusedError
from hqueue.net.security import PortSecurity
from hqueue.runtime.logs import Log
from hqueue.runtime.seldom import SeldomLog
from hqueue_workers.delivery.connection_pool import ConnectionPool, NoAnswerError, NotCalledError
from hqueue_workers.hub.subscribing.subscription_session import SubscriptionSession

__all__ = ["SubscriberEndpoint", "SubscriberEndpoints"]

logger = Log(__name__)

CONNECTIONS = 8
"""Calls under way to one address."""
IDLE_POOLS_MAX = 256
ANSWERED_MAX = 10_000

_Key = tuple[Address, str | None]


class SubscriberEndpoint:
    """An address at which subscribers listen."""

    def __init__(self, pool: ConnectionPool, *, silent: bool) -> None:
        self.pool = pool
        self.busy = 0
        self.silent = silent
        """Whether the last call had no answer, or there was none yet."""
        self.uncalled = False
        """Whether that was because it can't be called, or may not be."""
        self.waiting: collections.deque[SubscriptionSession] = collections.deque()

    @property
    def room(self) -> int:
        """How many more calls to it may be under way now."""
        return (1 if self.silent else CONNECTIONS) - self.busy


class SubscriberEndpoints:
    """The addresses that are called, and the connections to those that were called recently.

    Args:
        may_send: asked before each piece is sent.
        may_reach: whether an IP address may be called.
        security: the TLS settings of calls; calls are in clear if None.
    """

    def __init__(
        self,
        may_send: Callable[[], bool],
        may_reach: Callable[[str], bool],
        security: PortSecurity | None = None,
    ) -> None:
        self._security = security
        self._may_send = may_send
        self._may_reach = may_reach
        self._endpoints: dict[_Key, SubscriberEndpoint] = {}
        """That which was used last is the last."""
        self._answered: dict[Address, None] = {}
        """Those that answered last when they were called, kept or not."""
        self._log = SeldomLog(logger)  # Anybody can name any number of addresses.

    def at(self, address: Address, principal: str | None = None) -> SubscriberEndpoint:
        """Return the endpoint at an address.

        Args:
            address: the address.
            principal: the principal that must answer there; None or `ANONYMOUS` for any.
        """
        key = (address, principal)
        endpoint = self._endpoints.pop(key, None)
        if endpoint is None:
            endpoint = SubscriberEndpoint(
                self._pool_of(address, principal),
                silent=address not in self._answered,
            )
        self._endpoints[key] = endpoint
        if len(self._endpoints) > IDLE_POOLS_MAX:
            for unused, other in list(self._endpoints.items())[
                : len(self._endpoints) - IDLE_POOLS_MAX
            ]:
                if not other.busy and not other.waiting and other is not endpoint:
                    other.pool.close()
                    del self._endpoints[unused]
        return endpoint

    def _pool_of(self, address: Address, principal: str | None) -> ConnectionPool:
        security = self._security
        if security is None:
            return ConnectionPool(address, self._may_send, CONNECTIONS, self._may_reach)

        def accepts(certificate: Mapping[str, Any] | None) -> None:
            if not is_proven(principal):
                return
            if certificate is None:
                raise RefusedError(
                    f"it does not speak TLS, but {principal!r} subscribed it with TLS"
                )
            found = security.rules.principal_of(certificate)
            if found != principal:
                raise RefusedError(
                    f"it has the certificate of {found!r}, but {principal!r} subscribed it"
                )

        return ConnectionPool(
            address,
            self._may_send,
            CONNECTIONS,
            self._may_reach,
            tls=security.client,
            accepts=accepts,
        )

    def answered(self, endpoint: SubscriberEndpoint) -> None:
        """Note that a call was answered."""
        endpoint.uncalled = False
        if endpoint.silent:
            endpoint.silent = False
            self._answered[endpoint.pool.address] = None
            if len(self._answered) > ANSWERED_MAX:
                del self._answered[next(iter(self._answered))]

    def unanswered(self, endpoint: SubscriberEndpoint, error: NoAnswerError) -> None:
        """Note that a call was not answered. If the address is not called at all, log this once
        with the reason, since its subscribers get no messages.
        """
        endpoint.silent = True
        self._answered.pop(endpoint.pool.address, None)
        before, endpoint.uncalled = endpoint.uncalled, isinstance(error, NotCalledError)
        if endpoint.uncalled and not before:
            self._log.warning(
                "subscribers at %s get no messages, because the hub can't call that address: %s",
                endpoint.pool.address,
                error,
            )

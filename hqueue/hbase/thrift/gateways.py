"""The Thrift gateways: which one to ask, and the connections to them."""

from __future__ import annotations

import functools
import itertools
import socket
from collections.abc import Callable
from functools import partial
from typing import Any

from hqueue.errors import ClosedError, StoreUnavailableError
from hqueue.hbase import reachability
from hqueue.hbase.thrift.connection import Connection, Service, connect
from hqueue.hbase.thrift.gateway import Gateway, OpenConnection, Run
from hqueue.hbase.thrift.translation import DECLARED_ERRORS, translate_answer, translate_silence
from hqueue.net.refusals import refusal_of
from hqueue.net.security import client_contexts
from hqueue.rpc.pool import NotConnectedError
from hqueue.runtime.clock import SYSTEM_CLOCK, Clock, bounded_ms
from hqueue.runtime.fork import register
from hqueue.runtime.interrupts import is_interruption
from hqueue.runtime.logs import Log
from hqueue.runtime.loop import by_threads
from hqueue.runtime.steps import Wait
from hqueue.runtime.thread_pool import ThreadPool
from hqueue.settings.connection import Settings

__all__ = ["Gateways"]

logger = Log(__name__)


class Gateways:
    """All gateways of a cluster. Thread-safe, and usable in a forked child.

    A request goes to the gateway on the preferred host if there is one, else to each in turn. A
    gateway that fails is avoided for a while, unless all are.

    Args:
        settings: the gateways' addresses, bounds on connections and times.
        clock: where time comes from.
        open_connection: opens connections; as the settings say if None.
    """

    def __init__(
        self,
        settings: Settings,
        clock: Clock = SYSTEM_CLOCK,
        open_connection: OpenConnection | None = None,
    ) -> None:
        self.settings = settings
        self._clock = clock
        if open_connection is None:
            tls = client_contexts(settings, "gateways_tls") if settings.gateways_tls else None
            open_connection = partial(connect, tls=tls)
        self._gateways = {
            service: [
                Gateway(a, service, settings, clock, open_connection) for a in settings.gateways
            ]
            for service in Service
        }
        self._turn = 0
        self._closed = False
        self._threads = ThreadPool(settings.connections_max, "hqueue-gateways")
        self.in_thread = partial(by_threads, self._threads, settings.operation_timeout_ms)
        """Has a thread make requests for an event loop: a gateway's connection makes one request at
        a time, and blocks."""
        register(self)

    def after_fork_in_child(self) -> None:
        for gateway in itertools.chain(*self._gateways.values()):
            gateway.reset()

    def choose(self, service: Service, host: str | None = None) -> Gateway:
        """The gateway to ask next for a service, by preference one on `host`."""
        gateways = self._gateways[service]
        if len(gateways) == 1:
            return gateways[0]
        usable = [g for g in gateways if not g.is_avoided]
        if not usable:
            return min(gateways, key=lambda g: g.avoided_until_ms)
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
        run: Run | None = None,
        timeout_ms: int | None = None,
        bulk: bool = False,
    ) -> Any:
        """Make one request and return its answer. Never repeats it.

        Args:
            service: which of the gateway's two services.
            method: the service's method.
            table: the table it is about, for errors.
            arguments: the method's arguments.
            host: the preferred host.
            run: ask this process and no other.
            timeout_ms: the bound on the request, if not ``request_timeout_ms``, and on the wait for
                a connection, if not ``operation_timeout_ms``.
            bulk: whether there are large values in it, or probably in its answer.

        Raises:
            StoreUnavailableError: no usable answer within ``request_timeout_ms``; its outcome
                is not applied if the request was never sent.
            QueueStateError: the table isn't there, or is disabled.
            RequestRefusedError: HBase will not do it; `AuthenticationError` if client and gateway
                don't accept each other.
        """
        if self._closed:
            raise ClosedError("the client is closed")
        gateway = run.gateway if run else self.choose(service, host)
        request_s = bounded_ms(timeout_ms or self.settings.request_timeout_ms) / 1e3

        def request(connection: Connection) -> Any:
            connection.socket.settimeout(request_s)
            client = connection.bulk_client if bulk else connection.client
            return getattr(client, method)(*arguments)

        try:
            answer = gateway.call(request, run, timeout_ms)
        except DECLARED_ERRORS as exc:
            reachability.answered(gateway.address)
            raise translate_answer(exc, table, method) from exc
        except StoreUnavailableError:
            raise  # It was not asked.
        except BaseException as exc:
            if is_interruption(exc):
                raise
            sent = not isinstance(exc, NotConnectedError)
            cause = exc if sent else exc.__cause__ or exc
            gateway.avoid()
            if refusal_of(cause) is None:
                reachability.unanswered(gateway.address, cause)
            logger.debug("gateway %s failed", gateway.address, exc_info=True)
            raise translate_silence(
                cause, table, method, str(gateway.address), sent=sent
            ) from cause
        reachability.answered(gateway.address)
        return answer

    def blocking(self, request: Callable[[], object]) -> Wait:
        """Asks for a call that makes requests: in an event loop a thread makes them."""
        return Wait(request, partial(self.in_thread, request))

    def close(self) -> None:
        """Close all connections. Later calls raise `ClosedError`."""
        self._closed = True
        self._threads.shutdown(wait=False)
        for gateway in itertools.chain(*self._gateways.values()):
            gateway.close()


def _same_host(one: str, other: str) -> bool:
    return one == other or bool(_addresses(one) & _addresses(other))


@functools.lru_cache(maxsize=1_024)
def _addresses(host: str) -> frozenset[str]:
    try:
        return frozenset(str(info[4][0]) for info in socket.getaddrinfo(host, None))
    except OSError:
        return frozenset()

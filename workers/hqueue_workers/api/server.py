"""The API as a role of the process: its port, and what it does beside the calls."""

from __future__ import annotations

import socket
from typing import NoReturn

from prometheus_client import CollectorRegistry

from hqueue import Client, SettingsError
from hqueue.metadata import Address
from hqueue.net.guard import PortGuard
from hqueue.net.quotas import PortQuotas
from hqueue.rpc.accepting import BACKLOG
from hqueue.rpc.server import ThriftServer
from hqueue.runtime.logs import Log
from hqueue.settings.limits import (
    BATCH_BYTES_MAX,
    BATCH_MESSAGES_MAX,
    CALL_HEADERS_MAX,
    TOPIC_BYTES_MAX,
)
from hqueue_workers.api.failures import exception_of
from hqueue_workers.api.handler import Handler
from hqueue_workers.api.metrics import ApiMetrics
from hqueue_workers.api.scanners import ScannerTable
from hqueue_workers.api.structs import SERVICE
from hqueue_workers.node.access_control import AccessControl
from hqueue_workers.node.api_settings import ApiSettings
from hqueue_workers.node.runtime import Runtime, ready

__all__ = ["ApiServer"]

logger = Log(__name__)

CALL_BYTES_MAX = (
    BATCH_BYTES_MAX + BATCH_MESSAGES_MAX * (TOPIC_BYTES_MAX + 64) + CALL_HEADERS_MAX * 8
)
"""The most bytes of a call: the largest batch, and Thrift's bytes for each message and header."""

CALL_IDLE_MS_MAX = 10_000
"""How long a call that has begun may stand still."""

SWEEP_MS = 1_000.0


class ApiServer:
    """Serves the Thrift API from when it is made until it is closed, in the event loop that it is
    made in.

    Args:
        client: the connection.
        settings: the settings of the API; ``api_port`` is set.
        drain_ms: how long to wait for calls under way at the end.
        runtime: the runtime of the process.
        registry: the registry for its metrics.
        guard: decides who may call it; anyone may if None.
        quotas: the bounds on callers' requests; there are none if None.
        access: the access rules; None if they are not used.

    Raises:
        SettingsError: it can't listen at the address in the settings.
    """

    def __init__(
        self,
        client: Client,
        settings: ApiSettings,
        drain_ms: int,
        runtime: Runtime,
        registry: CollectorRegistry,
        *,
        guard: PortGuard | None = None,
        quotas: PortQuotas | None = None,
        access: AccessControl | None = None,
    ) -> None:
        self._runtime = runtime
        self._drain_ms = drain_ms
        self.scanners = ScannerTable(
            count_max=settings.scanners_max,
            bytes_max=settings.scanners_bytes_max,
            idle_ms=settings.api_idle_ms,
            clock=runtime.clock,
        )
        handler = Handler(
            client,
            self.scanners,
            settings.scanner_bytes_max,
            runtime.clock,
            ApiMetrics(registry, self.scanners).count,
            access=access,
        )
        listener = _listen(settings)
        self.address = Address(settings.api_host, listener.getsockname()[1])
        """The address at which it listens."""
        self._server = ThriftServer(
            SERVICE,
            handler,
            listener,
            threads=settings.api_threads,
            in_loop=True,
            connections_max=settings.api_connections_max,
            call_bytes_max=CALL_BYTES_MAX,
            idle_ms_max=CALL_IDLE_MS_MAX,
            silent_ms_max=settings.api_idle_ms,
            large_answers=["messageScannerGet", "messageScannerGetList"],
            as_declared=lambda error: exception_of(error)[0],
            guard=guard,
            quotas=quotas,
            unrefused=["messageScannerClose"],
        )
        self._server.start()
        ready.info("the Thrift API is served at %s", self.address)

    async def run(self) -> NoReturn:
        """Close unused scanners regularly, until cancelled."""
        while True:
            await self._runtime.sleep_ms(SWEEP_MS)
            await self.scanners.sweep()

    async def close(self) -> None:
        """Accept no more calls, answer those under way for at most ``drain_ms``, and disconnect."""
        if not await self._runtime.coordinate(lambda: self._server.close(self._drain_ms)):
            logger.warning("calls of the Thrift API took too long to finish, and are abandoned")
        await self.scanners.close_all()


def _listen(settings: ApiSettings) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in settings.api_host else socket.AF_INET
        return socket.create_server(
            (settings.api_host, settings.api_port or 0), family=family, backlog=BACKLOG
        )
    except OSError as exc:
        raise SettingsError(
            "the Thrift API can't be served here; see api_host and api_port",
            api_host=settings.api_host,
            api_port=settings.api_port,
            reason=str(exc),
        ) from exc

"""The console as a role of a process."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

import hqueue.aio
from hqueue import Client, __version__
from hqueue.net.guard import AllowedPrincipals
from hqueue.net.security import security_of
from hqueue.net.spnego import TicketService
from hqueue.rpc.pages import PROMETHEUS_TEXT, Answer, HealthServer
from hqueue.settings.names import names_in
from hqueue_workers.console.app import make_app
from hqueue_workers.console.context import Context
from hqueue_workers.console.examination import Examination
from hqueue_workers.console.gate import FormTokens, Gate
from hqueue_workers.console.history import History
from hqueue_workers.console.metrics import ConsoleMetrics
from hqueue_workers.console.rendering import Renderer
from hqueue_workers.console.rights import Rights
from hqueue_workers.console.server import ConsoleServer
from hqueue_workers.console.settings import ConsoleSettings
from hqueue_workers.console.signing_in import SigningIn
from hqueue_workers.console.streaming import Streams
from hqueue_workers.node.access_control import AccessControl
from hqueue_workers.node.runtime import ready
from hqueue_workers.node.security_metrics import PortSecurityMetrics

__all__ = ["Console"]

SEARCHES_MAX = 4
DOWNLOADS_MAX = 4


class Console:
    """Serves the console's pages. Make it within the event loop in which it runs.

    Args:
        client: the connection, which stays open.
        settings: the settings.

    Raises:
        SettingsError: the settings don't fit together, or files can't be read.
    """

    def __init__(self, client: Client, settings: ConsoleSettings) -> None:
        security = security_of(client.settings)
        settings.check_tickets(tls=security is not None)
        tickets = bool(settings.spnego_keytab)
        self._settings = settings
        self._access = AccessControl.of(client, settings, by_tickets=tickets)
        rights = Rights(settings, secured=security is not None or tickets, access=self._access)
        signing_in = SigningIn(_ticket_service(client, settings)) if tickets else None
        guard = None
        allowed: AllowedPrincipals | None = None
        if security is not None:
            allowed = guard = security.guard(
                "console", settings.principals, "principals", demands=not tickets
            )
            security.check_shown("" if settings.is_local else settings.host)
        elif tickets:
            allowed = AllowedPrincipals("console", names_in(settings.principals), "principals")
        connected = hqueue.aio.Client(client)
        self.history = History(connected, settings.history_ms)
        self._streams = Streams(settings.streams_max)
        self.metrics = ConsoleMetrics(
            self.history, lambda: self.streams, lambda: self.connections, __version__
        )
        self.metrics.registry.register(PortSecurityMetrics(security))
        context = Context(
            connected,
            rights,
            Renderer(FormTokens(), allow_changes=settings.allow_changes),
            self.history,
            self._streams,
            Examination(client.settings, writes=settings.allow_changes),
            self.metrics,
            asyncio.Semaphore(SEARCHES_MAX),
            asyncio.Semaphore(DOWNLOADS_MAX),
        )
        app, hosts = make_app(context), settings.known_hosts
        gate = Gate(app, hosts, allowed, self.metrics.refused, signing_in)
        self._server = ConsoleServer(gate, settings.connections_max, guard, tokens=tickets)
        self._secured = security is not None
        self._health = HealthServer({"/health": _health_page, "/metrics": self._metrics_page})
        self._metrics_guard = None
        if security is not None:
            self._metrics_guard = security.guard(
                "metrics", settings.metrics_principals, "metrics_principals"
            )

    @property
    def address(self) -> str:
        """The address that a user opens."""
        scheme = "https" if self._secured else "http"
        host = f"[{self._settings.host}]" if ":" in self._settings.host else self._settings.host
        return f"{scheme}://{host}:{self._server.port}/"

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return self._server.connections

    @property
    def streams(self) -> int:
        """How many pages follow new messages."""
        return self._streams.open

    @property
    def metrics_port(self) -> int:
        """The port of health and metrics, once it is ready."""
        return self._health.port

    async def _metrics_page(self) -> Answer:
        return Answer(200, PROMETHEUS_TEXT, await asyncio.to_thread(self.metrics.text))

    async def run(
        self, stopping: asyncio.Event, on_ready: Callable[[str], None] = lambda address: None
    ) -> None:
        """Serve until `stopping` is set.

        Args:
            stopping: set when the console must end.
            on_ready: called with the console's address when it can be opened.

        Raises:
            SettingsError: the console can't listen at the address of its settings.
            HQueueError: the access rules can't be read.
        """
        if self._access is not None:
            await asyncio.to_thread(self._access.begin)
        measuring = None
        try:
            self._server.listen(self._settings.host, self._settings.port)
            self._health.listen(
                self._settings.metrics_host, self._settings.metrics_port, self._metrics_guard
            )
            ready.info("the console is ready at %s", self.address)
            on_ready(self.address)
            measuring = asyncio.ensure_future(self.history.run())
            await stopping.wait()
        finally:
            self._streams.stopping.set()
            self._health.close()
            await self._server.close()
            if measuring is not None:
                measuring.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await measuring
            if self._access is not None:
                self._access.close()


def _ticket_service(client: Client, settings: ConsoleSettings) -> TicketService:
    """Take tickets, as the settings say.

    Raises:
        SettingsError: as `TicketService`.
    """
    return TicketService(
        settings.spnego_keytab,
        settings.spnego_principal or None,
        settings.spnego_principal_rules,
        client.settings.kerberos_config,
    )


async def _health_page() -> Answer:
    return Answer(200, "application/json", b'{"status": "serving"}\n')

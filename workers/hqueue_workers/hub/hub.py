"""The hub: a process that owns topics, publishes to them and delivers their messages."""

from __future__ import annotations

import asyncio
import functools
import json
import secrets
import socket
from collections.abc import Callable, Sequence

from hqueue import (
    Address,
    Client,
    HQueueError,
    InvalidInputError,
    SettingsError,
    __version__,
)
from hqueue.metadata.managers import HubInfo, HubRegistration
from hqueue.metrics.families import describe_process
from hqueue.net.guard import PortGuard
from hqueue.net.quotas import QuotaRules, Quotas
from hqueue.net.security import security_of
from hqueue.rpc.accepting import BACKLOG
from hqueue.rpc.pages import PROMETHEUS_TEXT, Answer, HealthServer
from hqueue.rpc.server import ThriftServer
from hqueue.runtime.logs import Log
from hqueue.runtime.thread_pool import ThreadPool
from hqueue.settings.limits import BATCH_BYTES_MAX
from hqueue.settings.names import EVERYBODY
from hqueue_workers.api.server import ApiServer
from hqueue_workers.hub.authorizer import Authorizer, NameRules
from hqueue_workers.hub.hosted_queue import HostedQueue
from hqueue_workers.hub.limits import HubLimits
from hqueue_workers.hub.metrics import HubMetrics, QueueFigures
from hqueue_workers.hub.opening import HostedQueueFactory
from hqueue_workers.hub.serving.answers import as_thrift
from hqueue_workers.hub.serving.service import HubService, hub_service
from hqueue_workers.hub.settings import HubSettings
from hqueue_workers.node.access_control import AccessControl
from hqueue_workers.node.hosts import named_host
from hqueue_workers.node.lease import Lease
from hqueue_workers.node.networks import Networks
from hqueue_workers.node.runtime import Runtime, ready
from hqueue_workers.node.security_metrics import PortSecurityMetrics, QuotaRefusals
from hqueue_workers.node.session_metrics import SessionMetrics
from hqueue_workers.node.skipped import SkippedMessages

__all__ = ["Hub"]

logger = Log(__name__)

CALL_BYTES_MAX = 2 * BATCH_BYTES_MAX
IDLE_MS_MAX = 10_000
UNREFUSED = "apiAddress", "closeSubscription", "detached"
"""Calls by which a client sees that the hub answers, keeps its session, and leaves. They are served
to callers over their quota, too."""
RESOLVING_A_THREAD = 4
"""Topics that are taken over at a time, for each thread that reads calls: they mostly wait, and the
more of them do, the more go together."""


class Hub:
    """Owns topics of some queues, and publishes to them. Make it within the event loop in which it
    runs.

    Any number of hubs share a queue's topics. The event loop serves calls, confirms the session,
    runs regular tasks, and serves health and metrics. Large calls are decoded in threads.

    Args:
        client: the connection; its session is the hub's.
        queues: the queues' names.
        settings: the hub's settings.
        authorizer: decides who may do what; the one of the settings if None.
        limits: the bounds that no setting changes; the defaults if None.

    Raises:
        InvalidInputError: no queue is given, or one is given twice.
    """

    def __init__(
        self,
        client: Client,
        queues: Sequence[str],
        settings: HubSettings,
        authorizer: Authorizer | None = None,
        limits: HubLimits | None = None,
    ) -> None:
        if not queues or len(set(queues)) != len(queues):
            raise InvalidInputError(
                "a hub needs at least one queue, and no queue may be named twice", queues=queues
            )
        self._client = client
        self._security = security_of(client.settings)
        if self._security is not None:
            self._security.check_shown(named_host(settings))
        self._queues = list(queues)
        self._settings = settings
        self._access = AccessControl.of(client, settings)
        self._authorizer = authorizer or settings.make_authorizer(self._access)
        self._limits = limits or HubLimits()
        self._runtime = Runtime(4)
        # Apart: what makes deliveries wait does not hold up what confirms the session.
        self._delivery = Runtime(8, fault_quiet_ms=self._limits.fault_quiet_ms)
        self._delivery.failed.add_done_callback(self._failed)
        self._lease = Lease(client.coordination, self._runtime, self._lost)
        self.hosted: dict[str, HostedQueue] = {}
        """The queues that it serves, by name, from when they are open."""
        self._service: HubService | None = None
        self._api: ApiServer | None = None
        self._health: HealthServer | None = None
        self._server: ThriftServer | None = None
        self.metrics = HubMetrics(self._figures, self._pending)
        """What it shows of itself."""
        describe_process(self.metrics.registry, __version__)
        self.metrics.registry.register(SessionMetrics(lambda: self.holds))
        self.metrics.registry.register(SkippedMessages(client.skipped_messages))
        self.metrics.registry.register(PortSecurityMetrics(self._security))
        self._quotas = Quotas(QuotaRules(settings.quotas))
        self._hub_quotas = self._quotas.port("hub")
        self.metrics.registry.register(QuotaRefusals(self._quotas))
        self._pool = ThreadPool(RESOLVING_A_THREAD * settings.threads, "hqueue-hub-resolve")

    @property
    def holds(self) -> bool:
        """Whether the hub's session is certainly alive. The hub publishes nothing while it may be
        over.
        """
        return self._lease.holds

    @property
    def health_port(self) -> int:
        """The port of health and metrics, once it is ready."""
        assert self._health is not None
        return self._health.port

    @property
    def api(self) -> ApiServer | None:
        """The server of the Thrift API beside the hub, once it is ready; None if the API is not
        served.
        """
        return self._api

    async def run(
        self, stopping: asyncio.Event, on_ready: Callable[[Address], None] = lambda address: None
    ) -> None:
        """Serve until `stopping` is set. Then answer the calls under way, and release all topics.

        Args:
            stopping: set when the hub must end.
            on_ready: called with the hub's address when it can be called.

        Raises:
            SettingsError: the hub can't listen at the address of its settings; or the queue's hubs
                keep topics' metadata in another store or table.
            QueueNotFoundError: there is no such queue.
            HQueueError: the hub could not register, or can't continue.
        """
        runtime = self._runtime
        try:
            address = await runtime.unless(stopping, self._begin())
            if address is not None:
                on_ready(address)
                await runtime.until(stopping)
                await runtime.end(self._end(), self._settings.drain_ms)
        finally:
            self._lease.close()
            if self._access is not None:
                self._access.close()
            if self._health is not None:
                self._health.close()
            if self._api is not None:
                await self._api.close()
            if self._server is not None:
                self._server.close(0)
            await runtime.end(runtime.coordinate(self._close_queues), 0)
            self._pool.shutdown(wait=False, cancel_futures=True)
            await self._delivery.close()
            await runtime.close()

    async def _begin(self) -> Address:
        """Register the hub, and start to serve. Returns the address at which it can be called."""
        runtime, settings = self._runtime, self._settings
        listener = self._listen()
        try:
            address = Address(settings.host, listener.getsockname()[1])
            info = HubInfo(address, secrets.token_hex(8))
            if self._access is not None:
                self._access.on_change(lambda: self._delivery.call(self._restrict))
                await runtime.coordinate(self._access.begin)
            await self._open_queues(info)
            self._health = self._serve_health()
            if settings.api_port is not None:
                registry = self.metrics.registry
                guard = self._guard("api", settings.api_principals, "api_principals")
                self._api = ApiServer(
                    self._client,
                    settings,
                    settings.drain_ms,
                    runtime,
                    registry,
                    guard=guard,
                    quotas=self._quotas.port("api"),
                    access=self._access,
                )
                runtime.start(self._api.run())
            server = self._server = self._serve(listener)
        except BaseException:
            listener.close()
            raise
        runtime.start(self._lease.run())
        for hosted in self.hosted.values():
            hosted.registration = await runtime.coordinate(
                functools.partial(self._register, hosted, info), release=HubRegistration.close
            )
            await runtime.coordinate(hosted.partitions.settle)
        await self._lease.wait()
        server.start()
        runtime.start(self._look_after())
        ready.info("the hub of %s is ready; it listens at %s", ", ".join(self._queues), address)
        return address

    async def _open_queues(self, info: HubInfo) -> None:
        factory = HostedQueueFactory(
            self._client,
            self._settings,
            self._authorizer,
            NameRules(self._settings.names, self._settings.administrators, self._access),
            lease=self._lease,
            runtime=self._delivery,
            metrics=self.metrics,
            pool=self._pool,
            limits=self._limits,
            security=self._security,
            quotas=self._hub_quotas,
        )
        for queue in self._queues:
            hosted = self.hosted[queue] = await self._runtime.read(
                functools.partial(factory.open, queue, info), release=HostedQueue.close
            )
            await self._runtime.coordinate(hosted.metadata.settle)
            hosted.start()

    def _restrict(self) -> None:
        """Apply changed access rules to the attached subscriptions."""
        for hosted in self.hosted.values():
            self._delivery.start(hosted.subscriptions.sessions.restrict_all())

    def _failed(self, failed: asyncio.Future[None]) -> None:
        """End the hub with an error of its delivery."""
        if not failed.cancelled() and failed.exception() is not None:
            error = failed.exception()
            assert error is not None
            self._runtime.fail(error)

    def _register(self, hosted: HostedQueue, info: HubInfo) -> HubRegistration:
        def failed(error: HQueueError) -> None:
            self._runtime.call(lambda: self._runtime.fail(error))

        return hosted.metadata.hubs.register(info, on_failure=failed)

    def _listen(self) -> socket.socket:
        settings = self._settings
        try:
            return socket.create_server((settings.listen_host, settings.port), backlog=BACKLOG)
        except OSError as exc:
            raise SettingsError(
                "the hub can't listen for clients here; see host, listen_host and port",
                listen_host=settings.listen_host,
                port=settings.port,
                reason=str(exc),
            ) from exc

    def _serve(self, listener: socket.socket) -> ThriftServer:
        settings = self._settings
        self._service = HubService(
            self.hosted,
            self.metrics,
            settings.pending_bytes_max,
            runtime=self._delivery,
            session_ms=settings.session_ms,
            callbacks=Networks(settings.callback_networks),
            api_address=self._api_address(),
        )
        return ThriftServer(
            hub_service(),
            self._service,
            listener,
            threads=settings.threads,
            in_loop=True,
            connections_max=settings.connections_max,
            call_bytes_max=CALL_BYTES_MAX,
            idle_ms_max=IDLE_MS_MAX,
            as_declared=as_thrift,
            guard=self._guard("hub"),
            quotas=self._hub_quotas,
            unrefused=UNREFUSED,
        )

    def _guard(self, port: str, allowed: str = EVERYBODY, setting: str = "") -> PortGuard | None:
        """The guard of a port; None if anyone may call it."""
        return None if self._security is None else self._security.guard(port, allowed, setting)

    def _api_address(self) -> str:
        """The address at which clients reach the Thrift API."""
        if self._api is None:
            return ""
        everywhere = self._settings.api_host in ("0.0.0.0", "::")
        host = self._settings.host if everywhere else self._settings.api_host
        return str(Address(host, self._api.address.port))

    def _serve_health(self) -> HealthServer:
        settings = self._settings
        health = HealthServer({"/health": self._health_page, "/metrics": self._metrics_page})
        health.listen(
            settings.metrics_host,
            settings.metrics_port,
            self._guard("metrics", settings.metrics_principals, "metrics_principals"),
        )
        return health

    async def _health_page(self) -> Answer:
        well = self.holds
        figures = self._figures()
        document: dict[str, object] = {
            "status": "serving" if well else "waiting for ZooKeeper",
            "queues": {queue: each.topics for queue, each in figures.items()},
        }
        if self._api is not None:
            document["api"] = str(self._api.address)
        body = json.dumps(document).encode() + b"\n"
        return Answer(200 if well else 503, "application/json", body)

    async def _metrics_page(self) -> Answer:
        body = await self._runtime.read(self.metrics.page)
        return Answer(200, PROMETHEUS_TEXT, body)

    def _figures(self) -> dict[str, QueueFigures]:
        return {
            queue: QueueFigures(
                len(hosted.topics.owned()),
                len(hosted.partitions.held),
                hosted.subscriptions.sessions.attached,
                hosted.lags.measured,
            )
            for queue, hosted in self.hosted.items()
        }

    def _pending(self) -> int:
        return 0 if self._service is None else self._service.pending_bytes

    async def _look_after(self) -> None:
        """Report the load, claim partitions and shed topics regularly."""
        while True:
            await self._runtime.sleep_ms(self._settings.balance_ms)
            if not self.holds:
                continue
            for queue, hosted in self.hosted.items():
                await self._runtime.coordinate(functools.partial(self._settle, queue, hosted))

    def _settle(self, queue: str, hosted: HostedQueue) -> None:
        hosted.topics.committers.look_after()
        hosted.partitions.settle()
        try:
            if hosted.registration is not None:
                hosted.registration.update(hosted.shedding.measure())
            hosted.shedding.shed()
        except HQueueError as exc:
            text = "can't report the load of %s; trying again: %s"
            self._runtime.faults.met(f"load of {queue}", text, queue, exc)
        else:
            text = "can report the load of %s again"
            self._runtime.faults.over(f"load of {queue}", text, queue)

    async def _end(self) -> None:
        """Withdraw the hub from elections, release all topics, and answer the calls under way.
        Callers are redirected before their connections are closed.
        """
        drain_ms = self._settings.drain_ms
        for hosted in self.hosted.values():
            if hosted.registration is not None:
                await self._runtime.coordinate(hosted.registration.close)
        for hosted in self.hosted.values():
            await hosted.topics.close(drain_ms / 1e3)
            hosted.subscriptions.end_waits()
        server, self._server = self._server, None
        if server is not None:
            await self._runtime.read(functools.partial(server.close, drain_ms))

    def _close_queues(self) -> None:
        for hosted in self.hosted.values():
            hosted.close()

    def _lost(self) -> None:
        for hosted in self.hosted.values():
            hosted.topics.lose()
            hosted.partitions.lose()

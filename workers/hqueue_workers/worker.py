"""The worker: a process that delivers the partitions that it has claimed, and serves the API."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import secrets
from collections.abc import Collection

from hqueue import Client, HQueueError, SettingsError, __version__
from hqueue.engine import Engine
from hqueue.metadata import Address, BrokerRecord, PartitionKey, Registration, WorkerRecord
from hqueue.metadata.access_rules import Operation
from hqueue.metrics.families import describe_process
from hqueue.net.audit import Audit
from hqueue.net.guard import PortGuard
from hqueue.net.peers import host_of
from hqueue.net.quotas import QuotaRules, Quotas
from hqueue.net.security import security_of
from hqueue.rpc.accepting import listen
from hqueue.rpc.pages import PROMETHEUS_TEXT, Answer, HealthServer
from hqueue.rpc.port import Port
from hqueue.rpc.served_connection import ServedConnection
from hqueue.runtime.logs import Log
from hqueue_workers.api.server import ApiServer
from hqueue_workers.delivery.append_keys import AppendKeyring
from hqueue_workers.delivery.group_lag_meter import GroupLagMeter
from hqueue_workers.delivery.lag_meter import LagMeter
from hqueue_workers.delivery.notification_server import NotificationServer
from hqueue_workers.delivery.partition import ConnectionPools, Deliveries, ServedPartition
from hqueue_workers.delivery.queues import OpenQueues
from hqueue_workers.node.access_control import AccessControl
from hqueue_workers.node.broker import BrokerRegistration
from hqueue_workers.node.claims import Claims
from hqueue_workers.node.hosts import named_host
from hqueue_workers.node.lease import Lease
from hqueue_workers.node.metrics import Metrics
from hqueue_workers.node.runtime import Runtime, ready
from hqueue_workers.node.security_metrics import PortSecurityMetrics, QuotaRefusals
from hqueue_workers.node.session_metrics import SessionMetrics
from hqueue_workers.node.settings import WorkerSettings
from hqueue_workers.node.skipped import SkippedMessages

__all__ = ["Worker"]

logger = Log(__name__)

SHARE_BYTES_MIN, SHARE_BYTES_MAX = 64 * 1024, 8 * 1024 * 1024
LOAD_EVERY_MS = 10_000.0


class Worker:
    """Delivers the messages of some partitions to all their subscribers, and serves the Thrift API,
    each if the settings enable it.

    Any number of workers share the partitions that have subscribers. Make the worker within the
    event loop in which it runs.

    Args:
        client: the connection, whose session the worker uses.
        settings: the worker's settings.
    """

    def __init__(self, client: Client, settings: WorkerSettings) -> None:
        self._settings = settings
        self._client = client
        security = self._security = security_of(client.settings)
        if security is not None:
            security.check_shown(named_host(settings))
        self._access = AccessControl.of(client, settings)
        self._audit = Audit()
        self._coordination = client.coordination
        self._runtime = Runtime(settings.threads)
        self._lease = Lease(self._coordination, self._runtime, self._lost)
        self._metrics = Metrics()
        describe_process(self._metrics.registry, __version__)
        self._metrics.registry.register(SessionMetrics(lambda: self._well))
        self._metrics.registry.register(SkippedMessages(client.skipped_messages))
        self._metrics.registry.register(PortSecurityMetrics(security))
        self._quotas = Quotas(QuotaRules(settings.quotas))
        self._metrics.registry.register(QuotaRefusals(self._quotas))
        self._meter = LagMeter(self._all_served, self._runtime)
        self._group_meter = GroupLagMeter(client, self._runtime)
        self._queues = OpenQueues(client, self._runtime, settings)
        self._keyring = AppendKeyring(self._coordination, self._runtime)
        self._deliveries = Deliveries(
            runtime=self._runtime,
            lease=self._lease,
            checkpoints=self._coordination.checkpoints,
            pools=ConnectionPools(
                self._lease, settings.connections_per_subscriber, security, self._access
            ),
            metrics=self._metrics,
            settings=settings,
        )
        self._share_bytes = SHARE_BYTES_MIN
        self._broker: BrokerRegistration | None = None
        self._registration: Registration | None = None
        self._api: ApiServer | None = None
        self._claims: Claims[ServedPartition] = Claims(
            coordination=self._coordination,
            lease=self._lease,
            runtime=self._runtime,
            regions=self._queues.regions,
            serve=self._serve,
        )

    @property
    def api_address(self) -> Address | None:
        """The address of the Thrift API; None while it is not served."""
        api = self._api
        return None if api is None else api.address

    async def run(self, stopping: asyncio.Event) -> None:
        """Deliver messages and answer calls until `stopping` is set. Then finish the calls under
        way, and hand the partitions over.

        Raises:
            SettingsError: the worker can't listen on the address of the settings, or another
                cluster has registered the ``broker_id``.
            HQueueError: the worker could not register, or can't continue.
        """
        runtime, settings = self._runtime, self._settings
        servers: list[Port | HealthServer] = []
        try:
            if self._access is not None:
                renew = self._deliveries.pools.renew
                self._access.on_change(lambda: runtime.call(renew))
                await runtime.coordinate(self._access.begin)
            if settings.push:
                servers.append(self._listen_for_notifications())
            servers.append(self._serve_health())
            if settings.api_port is not None:
                self._api = ApiServer(
                    self._client,
                    settings,
                    settings.drain_ms,
                    runtime,
                    self._metrics.registry,
                    guard=self._guard("api", settings.api_principals, "api_principals"),
                    quotas=self._quotas.port("api"),
                    access=self._access,
                )
                runtime.start(self._api.run())
            if settings.push:
                await runtime.unless(stopping, self._begin_push(self._record(servers[0].port)))
            await self._runtime.until(stopping)
            ending = asyncio.ensure_future(self._end_api())
            try:
                await runtime.end(self._end_push(), settings.drain_ms)
            finally:
                await ending
        finally:
            self._claims.close()
            if self._broker is not None:
                self._broker.close()
            self._lease.close()
            if self._access is not None:
                self._access.close()
            self._keyring.close()
            for server in servers:
                server.close()
            await self._end_api()
            await runtime.close()

    async def _begin_push(self, record: WorkerRecord) -> None:
        """Register the worker, and serve partitions."""
        runtime, claims = self._runtime, self._claims
        broker = self._broker = await self._open_broker(record)
        for work in (self._lease, self._meter, self._keyring):
            runtime.start(work.run())
        self._registration = await runtime.coordinate(
            lambda: self._register(record), release=lambda late: late.close()
        )
        await runtime.coordinate(claims.watch)
        runtime.start(claims.run(record.name))
        runtime.start(self._group_meter.run(record.name))
        runtime.start(broker.run())
        runtime.start(self._look_after(claims, record))
        ready.info("worker %s is ready; it takes notifications at %s", record.name, record.address)

    async def _end_push(self) -> None:
        registration, self._registration = self._registration, None
        if registration is None or self._broker is None:
            return
        # The others plan without this one from now on, and claim what it releases.
        await self._runtime.coordinate(registration.close)
        await self._broker.release()
        await self._claims.drain()

    async def _end_api(self) -> None:
        api, self._api = self._api, None
        if api is not None:
            await api.close()

    def _record(self, port: int) -> WorkerRecord:
        settings = self._settings
        name = settings.name or f"{settings.host}-{port}-{secrets.token_hex(3)}"
        return WorkerRecord(name, Address(settings.host, port), settings.region_host)

    async def _open_broker(self, record: WorkerRecord) -> BrokerRegistration:
        client = self._client
        cluster = await self._runtime.read(Engine(client).cluster_id)
        broker = BrokerRegistration(
            brokers=self._coordination.brokers,
            runtime=self._runtime,
            broker=client.settings.broker_id,
            record=BrokerRecord(record.address, cluster),
            queues=lambda: {each.name: each.partitions for each in client.list_queues()},
        )
        await broker.check()
        return broker

    def _register(self, record: WorkerRecord) -> Registration:
        def failed(error: HQueueError) -> None:
            self._runtime.call(lambda: self._runtime.fail(error))

        return self._coordination.workers.register(record, failed)

    def _listen_for_notifications(self) -> Port:
        try:
            listeners = listen(self._settings.listen_host, self._settings.port)
        except (OSError, UnicodeError) as exc:
            raise SettingsError(
                "the worker can't listen for notifications here; see host, listen_host and port",
                listen_host=self._settings.listen_host,
                port=self._settings.port,
                reason=str(exc),
            ) from exc
        port = NotificationServer(
            listeners,
            self._queues.notify,
            self._keyring.vouches_for,
            self._metrics.count_notified,
            guard=self._guard(
                "notifications", self._settings.notification_principals, "notification_principals"
            ),
            may_notify=self._may_notify,
        ).port
        port.start_here()
        return port

    def _may_notify(self, caller: ServedConnection, queue: str) -> bool:
        """Whether a producer may notify of appends to a queue: that is, append to it."""
        access, principal = self._access, caller.principal
        if access is None or access.allows(principal, Operation.PUBLISH, queue):
            return True
        host = host_of(caller.peer)
        reason = "no access rule allows this principal to publish"
        self._audit.refused_for_now("notify", principal, host, reason, queue=queue[:200])
        return False

    def _guard(self, port: str, allowed: str, setting: str) -> PortGuard | None:
        """The guard of a port; None if anyone may call it."""
        return None if self._security is None else self._security.guard(port, allowed, setting)

    def _serve_health(self) -> HealthServer:
        settings = self._settings
        health = HealthServer({"/health": self._health_page, "/metrics": self._metrics_page})
        health.listen(
            settings.metrics_host,
            settings.metrics_port,
            self._guard("metrics", settings.metrics_principals, "metrics_principals"),
        )
        return health

    @property
    def _well(self) -> bool:
        """Whether the worker may deliver, if it delivers at all."""
        return self._lease.holds or not self._settings.push

    async def _health_page(self) -> Answer:
        push, well = self._settings.push, self._well
        document: dict[str, object] = {"status": "waiting for ZooKeeper"}
        if well:
            document["status"] = "delivering" if push else "serving"
        if push:
            document["partitions"] = len(self._claims.served)
            document["deliveries"] = sum(1 for p in self._claims.served.values() for _ in p.senders)
        if self._api is not None:
            document["api"] = str(self._api.address)
            document["scanners"] = len(self._api.scanners)
        body = json.dumps(document).encode() + b"\n"
        return Answer(200 if well else 503, "application/json", body)

    async def _metrics_page(self) -> Answer:
        lags, claimed = self._meter.lags(), len(self._claims.served)
        groups = self._group_meter.measured
        body = await self._runtime.read(lambda: self._metrics.page(lags, claimed, groups))
        return Answer(200, PROMETHEUS_TEXT, body)

    def _serve(self, key: PartitionKey) -> ServedPartition:
        opened = self._queues[key.queue]
        return ServedPartition(
            key, opened.queue, opened.poller, self._deliveries, lambda: self._share_bytes
        )

    def _all_served(self) -> Collection[ServedPartition]:
        return self._claims.served.values()

    async def _look_after(self, claims: Claims[ServedPartition], record: WorkerRecord) -> None:
        """Write checkpoints and report the load regularly."""
        load_ms = self._runtime.clock.monotonic_ms()
        while True:
            await self._runtime.sleep_ms(self._settings.checkpoint_ms)
            senders = [s for served in claims.served.values() for s in served.senders]
            # An even share for each scanner that there may be, so that none takes another's.
            share = self._settings.memory_bytes_max // (1 + len(claims.served) + len(senders))
            self._share_bytes = min(max(share, SHARE_BYTES_MIN), SHARE_BYTES_MAX)
            if self._lease.holds:
                await asyncio.gather(*(s.checkpoint.write() for s in senders if s.checkpoint.due))
            for served in claims.served.values():
                served.look_after()
            now_ms = self._runtime.clock.monotonic_ms()
            if now_ms - load_ms >= LOAD_EVERY_MS and len(senders) != record.load:
                load_ms = now_ms
                record = dataclasses.replace(record, load=len(senders))
                await self._update_load(record)

    async def _update_load(self, record: WorkerRecord) -> None:
        try:
            await self._runtime.coordinate(lambda: self._coordination.workers.update(record))
        except HQueueError as exc:
            logger.info("the load was not reported: %s", exc)

    def _lost(self) -> None:
        self._claims.revoke()
        if self._broker is not None:
            self._broker.revoke()

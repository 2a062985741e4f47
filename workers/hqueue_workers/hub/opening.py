"""Makes the hosted queues of a hub."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import TimeoutError as FutureTimeoutError
from functools import partial

from hqueue import Client, MessageID, Queue, StoreUnavailableError, TopicScanner
from hqueue.engine import Engine
from hqueue.errors import NoTopicPersistenceInfoError, Outcome
from hqueue.metadata.managers import HubInfo, LogRange, TopicMetadata
from hqueue.net.quotas import PortQuotas
from hqueue.net.security import PortSecurity
from hqueue.runtime.thread_pool import ThreadPool
from hqueue_workers.hub.authorizer import Authorizer, NameRules
from hqueue_workers.hub.hosted_queue import HostedQueue
from hqueue_workers.hub.limits import HubLimits
from hqueue_workers.hub.metrics import HubMetrics
from hqueue_workers.hub.owning.available import AvailableHubs
from hqueue_workers.hub.owning.balance import choose_any, choose_hub
from hqueue_workers.hub.owning.creations import Creations
from hqueue_workers.hub.owning.partitions import HubPartitions
from hqueue_workers.hub.owning.queue_topics import QueueTopics
from hqueue_workers.hub.owning.shedding import Shedding
from hqueue_workers.hub.owning.takeover import TakeOver
from hqueue_workers.hub.serving.acl_changes import ACLChanges
from hqueue_workers.hub.serving.managing import Managing
from hqueue_workers.hub.serving.publishing import Publishing
from hqueue_workers.hub.settings import UNIFORM, HubSettings
from hqueue_workers.hub.subscribing.client_sessions import ClientSessions
from hqueue_workers.hub.subscribing.delivering import Delivering
from hqueue_workers.hub.subscribing.lag_meter import SubscriptionLagMeter
from hqueue_workers.hub.subscribing.subscription_records import SubscriptionRecords
from hqueue_workers.hub.subscribing.subscription_sessions import Deliver, SubscriptionSessions
from hqueue_workers.hub.subscribing.subscriptions import Subscriptions
from hqueue_workers.hub.writing.committer import Committer
from hqueue_workers.hub.writing.committers import Committers
from hqueue_workers.hub.writing.owned_topic import OwnedTopic
from hqueue_workers.hub.writing.sequence_searches import SequenceSearches
from hqueue_workers.node.lease import Lease
from hqueue_workers.node.networks import Networks
from hqueue_workers.node.runtime import Runtime

__all__ = ["HostedQueueFactory"]


class HostedQueueFactory:
    """Makes the objects with which a hub serves a queue, for each of its queues.

    Args:
        client: the connection; its session is the hub's.
        settings: the hub's settings.
        authorizer: decides who may do what.
        names: decides who may use which names.
        lease: whether the session is certainly alive.
        runtime: the hub's runtime.
        metrics: the hub's metrics.
        pool: the threads that take topics over.
        limits: the bounds that no setting changes.
        security: the TLS settings of calls to subscribers; calls are in clear if None.
        quotas: the quotas of callers; None for none.
    """

    def __init__(
        self,
        client: Client,
        settings: HubSettings,
        authorizer: Authorizer,
        names: NameRules,
        *,
        lease: Lease,
        runtime: Runtime,
        metrics: HubMetrics,
        pool: ThreadPool,
        limits: HubLimits,
        security: PortSecurity | None,
        quotas: PortQuotas | None,
    ) -> None:
        self._security = security
        self._quotas = quotas
        self._principals_quotas = None if security is None else quotas
        self._client = client
        self._settings = settings
        self._authorizer = authorizer
        self._names = names
        self._lease = lease
        self._runtime = runtime
        self._metrics = metrics
        self._pool = pool
        self._limits = limits

    def open(self, queue: str, info: HubInfo) -> HostedQueue:
        """Open a queue for the hub, with requests to HBase and ZooKeeper.

        Raises:
            QueueNotFoundError: there is no such queue.
        """
        client = self._client
        log = Engine(client).open(queue, lambda topic: self._ranges_of(metadata, topic))
        in_loop = log.in_loop()
        description = log.describe()
        metadata = client.topic_metadata(queue)
        bound_ms = client.settings.operation_timeout_ms
        found: list[QueueTopics] = []
        subscriptions = self._subscriptions(
            metadata,
            lambda store, moved: Delivering(
                log,
                log.topic_past(),
                partial(self._ranges_of, metadata),
                in_loop.reader,
                in_loop.topic_cursor,
                patience=log.deadline,
                runtime=self._runtime,
                lease=self._lease,
                may_reach=Networks(self._settings.callback_networks).have,
                store=store,
                moved=moved,
                metrics=self._metrics,
                calls_max=self._settings.deliveries_max,
                limits=self._limits,
                security=self._security,
            ),
        )
        available = AvailableHubs(metadata.hubs)

        def fenced(owned: OwnedTopic) -> None:
            found[0].fenced(owned)

        committers = Committers(
            lambda partition: Committer(
                partition,
                self._runtime,
                in_loop.own,
                on_append=lambda _: self._metrics.appends.inc(),
                on_fence=fenced,
                on_appended=subscriptions.sessions.appended,
                publishers_max=self._limits.publishers_max,
            )
        )
        partitions = HubPartitions(
            client.coordination.store,
            client.coordination.paths.root,
            queue,
            log.partitions,
            hubs=metadata.hubs,
            me=info.address,
            hosts=log.hosts,
        )
        ttl_s = description.ttl_seconds
        topics = QueueTopics(
            queue,
            info,
            metadata,
            take_over=TakeOver(
                metadata.persistence,
                committers,
                ttl_ms=None if ttl_s is None else ttl_s * 1_000,
                expired_ms=log.expired_ms,
                bound_ms=bound_ms,
            ),
            committers=committers,
            partition_for=partitions.choose,
            certain=lambda: self._lease.holds,
            authorizer=self._authorizer,
            names=self._names,
            metrics=self._metrics,
            topics_max=self._settings.topics_max,
            creations=Creations(
                self._settings.topic_creations_per_hour_max, quotas=self._principals_quotas
            ),
            bound_s=bound_ms / 1e3,
            pool=self._pool,
            listener=subscriptions.sessions,
            choose=choose_any if self._settings.placement_policy == UNIFORM else choose_hub,
            hubs=available.list,
        )
        found.append(topics)
        shedding = Shedding(topics, metadata.hubs, info.address)
        publishing = Publishing(topics, self._searches(log))
        acl_changes = ACLChanges(
            topics,
            metadata.persistence,
            subscriptions.sessions,
            runtime=self._runtime,
            bound_s=bound_ms / 1e3,
        )
        managing = Managing(
            topics,
            info.address,
            metadata.hubs.list,
            acl_changes=acl_changes,
            runtime=self._runtime,
        )
        return HostedQueue(
            log=log,
            topics=topics,
            publishing=publishing,
            managing=managing,
            metadata=metadata,
            partitions=partitions,
            shedding=shedding,
            subscriptions=subscriptions,
            available=available,
            lags=SubscriptionLagMeter(
                subscriptions.sessions, log, self._runtime, self._limits.lag_every_ms
            ),
            runtime=self._runtime,
        )

    def _ranges_of(self, metadata: TopicMetadata, topic: str) -> Sequence[LogRange]:
        """The ranges of a topic, by the metadata that the hub has open. Makes one request."""
        asked = metadata.persistence.read_topic_persistence_info(topic)
        try:
            known = asked.result(self._client.settings.operation_timeout_ms / 1e3)
        except FutureTimeoutError as exc:
            raise StoreUnavailableError(
                "the topic's persistence record was not read in time", outcome=Outcome.NOT_APPLIED
            ) from exc
        if known is None:
            raise NoTopicPersistenceInfoError("there is no such topic", topic=topic)
        return known.value.ranges

    @staticmethod
    def _searches(queue: Queue) -> SequenceSearches:
        def scan(topic: str, since: int, until: int) -> TopicScanner:
            start, stop = MessageID.from_int(since), MessageID.from_int(until)
            return queue.scan_topic(topic, start=start, stop=stop, whole=True)

        return SequenceSearches(scan)

    def _subscriptions(self, metadata: TopicMetadata, deliver: Deliver) -> Subscriptions:
        client, settings, runtime = self._client, self._settings, self._runtime
        client_sessions = ClientSessions(settings.session_ms, quotas=self._quotas)
        records = SubscriptionRecords(
            metadata.subscriptions, client.settings.operation_timeout_ms / 1e3
        )
        sessions = SubscriptionSessions(
            records,
            runtime=runtime,
            client_sessions=client_sessions,
            deliver=deliver,
            limits=self._limits,
        )
        created = Creations(
            settings.topic_creations_per_hour_max,
            what="subscriptions",
            quotas=self._principals_quotas,
        )
        kept = Creations(self._limits.preferences_bytes_per_hour_max, what="bytes of preferences")

        def count(caller: str, host: str, is_new: bool, preferences_bytes: int) -> None:
            kept.count(caller, host, preferences_bytes)
            created.count(caller, host, int(is_new))

        return Subscriptions(
            records,
            sessions,
            client_sessions,
            settings.subscriptions_max,
            count,
            quotas=self._quotas,
        )

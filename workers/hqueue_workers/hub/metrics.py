"""The metrics of a hub, for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from hqueue.metrics.families import counter, gauge, histogram

__all__ = ["HubMetrics", "QueueFigures", "SubscriptionLag"]


class SubscriptionLag(NamedTuple):
    """How far a subscription is behind.

    Args:
        topic, subscriber: the subscription.
        messages: the number of messages not delivered yet.
        age_ms: the age of the oldest of them.
    """

    topic: str
    subscriber: str
    messages: int
    age_ms: int


class QueueFigures:
    """The figures of one queue of a hub, now.

    Args:
        topics: how many topics the hub owns.
        partitions: how many partitions it has claimed.
        subscriptions: how many subscriptions are attached.
        lags: the lags of the subscriptions that were measured.
    """

    def __init__(
        self,
        topics: int,
        partitions: int,
        subscriptions: int = 0,
        lags: Sequence[SubscriptionLag] = (),
    ) -> None:
        self.lags = lags
        self.topics = topics
        self.subscriptions = subscriptions
        self.partitions = partitions


class HubMetrics:
    """All metrics of a hub, in a registry of their own. Thread-safe.

    Args:
        figures: gives the current figures of each queue.
        pending: gives the number of bytes that wait to be appended.
    """

    def __init__(
        self, figures: Callable[[], Mapping[str, QueueFigures]], pending: Callable[[], int]
    ) -> None:
        self.registry = CollectorRegistry()
        self.take_overs = counter("hqueue_hub_takeovers", self.registry)
        self.redirects = counter("hqueue_hub_redirects", self.registry)
        self.fenced = counter("hqueue_hub_fenced_topics", self.registry)
        self.appends = counter("hqueue_hub_appends", self.registry)
        self.published = counter("hqueue_hub_published_messages", self.registry)
        self.failed = counter("hqueue_hub_failed_publishes", self.registry)
        self.delivered = counter("hqueue_hub_delivered_messages", self.registry)
        self.retried = counter("hqueue_hub_retried_messages", self.registry)
        self.rejected = counter("hqueue_hub_rejected_messages", self.registry)
        self.unanswered = counter("hqueue_hub_unanswered_calls", self.registry)
        self.halved = counter("hqueue_hub_halved_calls", self.registry)
        self.dropped = counter("hqueue_hub_dropped_messages", self.registry)
        self.dead_letters = counter("hqueue_hub_dead_letters", self.registry)
        self.latency = histogram("hqueue_hub_publish_latency_seconds", self.registry)
        self.registry.register(_Gauges(figures, pending))

    def page(self) -> bytes:
        """All metrics, in Prometheus's text format."""
        return generate_latest(self.registry)


class _Gauges(Collector):
    """The gauges, whose values are read when the page is asked for."""

    def __init__(
        self, figures: Callable[[], Mapping[str, QueueFigures]], pending: Callable[[], int]
    ) -> None:
        self._figures = figures
        self._pending = pending

    def collect(self) -> Iterator[GaugeMetricFamily]:
        topics, partitions = gauge("hqueue_hub_topics"), gauge("hqueue_hub_partitions")
        subscriptions = gauge("hqueue_hub_subscriptions")
        messages, age = gauge("hqueue_hub_lag_messages"), gauge("hqueue_hub_lag_seconds")
        for queue, figures in self._figures().items():
            for lag in figures.lags:
                messages.add_metric([queue, lag.topic, lag.subscriber], lag.messages)
                age.add_metric([queue, lag.topic, lag.subscriber], lag.age_ms / 1e3)
            topics.add_metric([queue], figures.topics)
            partitions.add_metric([queue], figures.partitions)
            subscriptions.add_metric([queue], figures.subscriptions)
        yield topics
        yield subscriptions
        yield partitions
        yield messages
        yield age
        pending = gauge("hqueue_hub_pending_bytes")
        pending.add_metric([], self._pending())
        yield pending

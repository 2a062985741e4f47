"""What a hub shows of itself, for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

__all__ = ["HubMetrics", "QueueFigures", "SubscriptionLag"]

LATENCY_BUCKETS_S = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60,
)  # fmt: skip


class SubscriptionLag(NamedTuple):
    """How far a subscription is behind.

    Args:
        topic, subscriber: which one.
        messages: not delivered yet.
        age_ms: how long ago the first of them was written.
    """

    topic: str
    subscriber: str
    messages: int
    age_ms: int


class QueueFigures:
    """What a hub serves of one queue now.

    Args:
        topics: topics owned.
        partitions: partitions claimed.
        subscriptions: subscriptions attached.
        lags: how far those are behind that were measured.
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
        figures: gives each queue's figures, now.
        pending: gives the bytes that wait to be appended, now.
    """

    def __init__(
        self, figures: Callable[[], Mapping[str, QueueFigures]], pending: Callable[[], int]
    ) -> None:
        self.registry = CollectorRegistry()
        self.take_overs = self._counter("takeovers", "Topics that this hub took over.")
        self.redirects = self._counter("redirects", "Calls answered with another hub's address.")
        self.fenced = self._counter("fenced_topics", "Topics that another owner fenced here.")
        self.appends = self._counter("appends", "Batches appended.")
        self.published = self._counter("published_messages", "Messages published.")
        self.failed = self._counter("failed_publishes", "Publishes that ended with an error.")
        self.delivered = self._counter("delivered_messages", "Messages delivered to subscribers.")
        self.retried = self._counter("retried_messages", "Messages of calls answered with retry.")
        self.rejected = self._counter(
            "rejected_messages", "Messages that their subscriber rejected."
        )
        self.unanswered = self._counter("unanswered_calls", "Calls without an answer.")
        self.halved = self._counter(
            "halved_calls", "Calls whose messages came again in a call of half as many."
        )
        self.dropped = self._counter("dropped_messages", "Messages dropped beyond a message bound.")
        self.dead_letters = self._counter("dead_letters", "Messages that became dead letters.")
        self.latency = Histogram(
            "hqueue_hub_publish_latency_seconds",
            "From a publish's arrival to its place in the log.",
            buckets=LATENCY_BUCKETS_S,
            registry=self.registry,
        )
        self.registry.register(_Gauges(figures, pending))

    def page(self) -> bytes:
        """All metrics as text."""
        return generate_latest(self.registry)

    def _counter(self, name: str, text: str) -> Counter:
        return Counter(f"hqueue_hub_{name}", text, registry=self.registry)


class _Gauges(Collector):
    """What is as it is now, and is not counted."""

    def __init__(
        self, figures: Callable[[], Mapping[str, QueueFigures]], pending: Callable[[], int]
    ) -> None:
        self._figures = figures
        self._pending = pending

    def collect(self) -> Iterator[GaugeMetricFamily]:
        topics = GaugeMetricFamily("hqueue_hub_topics", "Topics owned.", labels=["queue"])
        partitions = GaugeMetricFamily(
            "hqueue_hub_partitions", "Partitions claimed.", labels=["queue"]
        )
        subscriptions = GaugeMetricFamily(
            "hqueue_hub_subscriptions", "Subscriptions attached.", labels=["queue"]
        )
        labels = ["queue", "topic", "subscriber"]
        messages = GaugeMetricFamily(
            "hqueue_hub_lag_messages",
            "Messages of a topic that a subscription was not given yet.",
            labels=labels,
        )
        age = GaugeMetricFamily(
            "hqueue_hub_lag_seconds",
            "Age of the oldest message that a subscription was not given yet.",
            labels=labels,
        )
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
        pending = GaugeMetricFamily("hqueue_hub_pending_bytes", "Bytes that wait to be appended.")
        pending.add_metric([], self._pending())
        yield pending

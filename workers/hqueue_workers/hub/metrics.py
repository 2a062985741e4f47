"""The metrics of a hub, for Prometheus."""

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
        self.take_overs = self._counter("takeovers", "Topics that this hub took over.")
        self.redirects = self._counter("redirects", "Calls answered with another hub's address.")
        self.fenced = self._counter(
            "fenced_topics", "Topics of this hub that another owner fenced off."
        )
        self.appends = self._counter("appends", "Batches appended.")
        self.published = self._counter("published_messages", "Messages published.")
        self.failed = self._counter("failed_publishes", "Publishes that ended with an error.")
        self.delivered = self._counter("delivered_messages", "Messages delivered to subscribers.")
        self.retried = self._counter(
            "retried_messages", "Messages that subscribers asked to have delivered again."
        )
        self.rejected = self._counter("rejected_messages", "Messages that subscribers rejected.")
        self.unanswered = self._counter(
            "unanswered_calls", "Calls that subscribers did not answer."
        )
        self.halved = self._counter(
            "halved_calls",
            "Unanswered calls that were repeated with half their messages, to isolate the one that "
            "ends the subscriber.",
        )
        self.dropped = self._counter(
            "dropped_messages",
            "Messages dropped because more were waiting than a subscription allows.",
        )
        self.dead_letters = self._counter("dead_letters", "Messages that became dead letters.")
        self.latency = Histogram(
            "hqueue_hub_publish_latency_seconds",
            "Time from a publish's arrival until its messages are in the log.",
            buckets=LATENCY_BUCKETS_S,
            registry=self.registry,
        )
        self.registry.register(_Gauges(figures, pending))

    def page(self) -> bytes:
        """All metrics, in Prometheus's text format."""
        return generate_latest(self.registry)

    def _counter(self, name: str, text: str) -> Counter:
        return Counter(f"hqueue_hub_{name}", text, registry=self.registry)


class _Gauges(Collector):
    """The gauges, whose values are read when the page is asked for."""

    def __init__(
        self, figures: Callable[[], Mapping[str, QueueFigures]], pending: Callable[[], int]
    ) -> None:
        self._figures = figures
        self._pending = pending

    def collect(self) -> Iterator[GaugeMetricFamily]:
        topics = GaugeMetricFamily(
            "hqueue_hub_topics", "Topics that this hub owns.", labels=["queue"]
        )
        partitions = GaugeMetricFamily(
            "hqueue_hub_partitions", "Partitions that this hub has claimed.", labels=["queue"]
        )
        subscriptions = GaugeMetricFamily(
            "hqueue_hub_subscriptions", "Subscriptions attached to this hub.", labels=["queue"]
        )
        labels = ["queue", "topic", "subscriber"]
        messages = GaugeMetricFamily(
            "hqueue_hub_lag_messages",
            "Messages of a topic not yet delivered to a subscription.",
            labels=labels,
        )
        age = GaugeMetricFamily(
            "hqueue_hub_lag_seconds",
            "Age of the oldest message not yet delivered to a subscription.",
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

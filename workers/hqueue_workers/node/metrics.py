"""The metrics of a worker, for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from hqueue import GroupDescription
from hqueue.metadata import SubscriptionKey

__all__ = ["DeliveryMetrics", "Lag", "Metrics"]

LABELS = ("queue", "partition", "subscriber")
GROUP_LABELS = ("queue", "partition", "group")
LATENCY_BUCKETS_S = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 3_600,
)  # fmt: skip


class Lag(NamedTuple):
    """How far one subscriber is behind in one partition."""

    key: SubscriptionKey
    messages: int
    """The partition's messages not delivered yet, of all topics."""
    age_ms: float
    """The age of the oldest message not delivered yet; 0 if there is none."""


class Metrics:
    """All metrics of a worker, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.delivered = self._counter(
            "delivered_messages", "Messages delivered, without repeated deliveries."
        )
        self.retried = self._counter(
            "retried_messages", "Messages that the subscriber asked to have delivered again."
        )
        self.rejected = self._counter("rejected_messages", "Messages that the subscriber rejected.")
        self.dead_letters = self._counter("dead_letters", "Messages that became dead letters.")
        self.unanswered = self._counter(
            "unanswered_calls", "Calls that the subscriber did not answer."
        )
        self.halved = self._counter(
            "halved_calls",
            "Unanswered calls that were repeated with half their messages, to isolate the one that "
            "ends the subscriber.",
        )
        self.latency = Histogram(
            "hqueue_delivery_latency_seconds",
            "Time from the write of a call's first message to the subscriber's answer.",
            LABELS,
            buckets=LATENCY_BUCKETS_S,
            registry=self.registry,
        )
        self.notified = Counter(
            "hqueue_append_notifications",
            "Batches that arrived with append notifications; batches that were not authenticated "
            "were read from HBase.",
            ("authenticated",),
            registry=self.registry,
        )
        self._gauges = _Gauges()
        self.registry.register(self._gauges)

    def page(self, lags: Sequence[Lag], claimed: int, groups: Sequence[GroupDescription]) -> bytes:
        """All metrics, in Prometheus's text format. One call at a time.

        Args:
            lags: the current lags of all subscribers.
            claimed: how many partitions this worker serves.
            groups: the groups that this worker measures.
        """
        gauges = self._gauges
        gauges.lags, gauges.claimed, gauges.groups = lags, claimed, groups
        return generate_latest(self.registry)

    def of(self, key: SubscriptionKey) -> DeliveryMetrics:
        """The metrics of one subscriber in one partition, until they are closed."""
        return DeliveryMetrics(self, key)

    def count_notified(self, *, vouched: bool) -> None:
        """Count a batch that came with a notification."""
        self.notified.labels("yes" if vouched else "no").inc()

    def _counter(self, name: str, text: str) -> Counter:
        return Counter(f"hqueue_{name}", text, LABELS, registry=self.registry)


class DeliveryMetrics:
    """The metrics of one subscriber in one partition."""

    def __init__(self, metrics: Metrics, key: SubscriptionKey) -> None:
        labels = (key.queue, str(key.partition), key.subscriber)
        families = (
            metrics.delivered, metrics.retried, metrics.rejected, metrics.dead_letters,
            metrics.unanswered, metrics.halved,
        )  # fmt: skip
        self._families = (*families, metrics.latency)
        self._labels = labels
        self._closed = False
        (
            self._delivered, self._retried, self._rejected, self._dead_letters, self._unanswered,
            self._halved,
        ) = (family.labels(*labels) for family in families)  # fmt: skip
        self._latency = metrics.latency.labels(*labels)

    def delivered(self, messages: int, age_ms: float) -> None:
        """Count the messages of a call that is done, whose first was written this long ago."""
        self._delivered.inc(messages)
        self._latency.observe(age_ms / 1e3)

    def answered(self, retried: int, rejected: int) -> None:
        """Count the messages that an answer asks to have delivered again, or rejects."""
        self._retried.inc(retried)
        self._rejected.inc(rejected)

    def buried(self, messages: int) -> None:
        """Count messages that became dead letters."""
        self._dead_letters.inc(messages)

    def unanswered(self) -> None:
        """Count a call that had no answer."""
        self._unanswered.inc()

    def halved(self) -> None:
        """Count an unanswered call that is repeated with half its messages."""
        self._halved.inc()

    def close(self) -> None:
        """Stop showing these metrics: another worker counts from now on."""
        if self._closed:
            return
        self._closed = True
        for family in self._families:
            family.remove(*self._labels)


class _Gauges(Collector):
    """The gauges, whose values are given when the page is asked for."""

    def __init__(self) -> None:
        self.lags: Sequence[Lag] = ()
        self.claimed = 0
        self.groups: Sequence[GroupDescription] = ()

    def collect(self) -> Iterator[Metric]:
        claimed = GaugeMetricFamily(
            "hqueue_partitions_claimed", "Partitions that this worker serves."
        )
        claimed.add_metric([], self.claimed)
        yield claimed
        messages = GaugeMetricFamily(
            "hqueue_lag_messages", "Messages not delivered yet, of all topics.", labels=LABELS
        )
        age = GaugeMetricFamily(
            "hqueue_lag_seconds", "Age of the oldest message not delivered yet.", labels=LABELS
        )
        for lag in self.lags:
            labels = [lag.key.queue, str(lag.key.partition), lag.key.subscriber]
            messages.add_metric(labels, lag.messages)
            age.add_metric(labels, lag.age_ms / 1e3)
        yield messages
        yield age
        yield from self._collect_groups()

    def _collect_groups(self) -> Iterator[Metric]:
        members = GaugeMetricFamily(
            "hqueue_group_members", "Consumers in a group.", labels=["group"]
        )
        messages = GaugeMetricFamily(
            "hqueue_group_lag_messages",
            "Messages after a group's committed offset, of all topics.",
            labels=GROUP_LABELS,
        )
        age = GaugeMetricFamily(
            "hqueue_group_lag_seconds",
            "Age of the oldest message after a group's committed offset.",
            labels=GROUP_LABELS,
        )
        for group in self.groups:
            members.add_metric([group.group], len(group.members))
            for each in group.partitions:
                if each.lag is not None:
                    labels = [each.queue, str(each.partition), group.group]
                    messages.add_metric(labels, each.lag.messages)
                    age.add_metric(labels, each.lag.age_ms / 1e3)
        yield members
        yield messages
        yield age
        yield from self._collect_shared()

    def _collect_shared(self) -> Iterator[Metric]:
        families = [
            GaugeMetricFamily(f"hqueue_share_group_{name}", text, labels=GROUP_LABELS)
            for name, text in (
                ("acquired_messages", "Messages that consumers of a share group hold now."),
                ("redelivered_messages", "Held messages that were delivered before."),
                ("released_messages", "Messages that were released and wait for a consumer."),
                ("delayed_messages", "Messages that wait for their time."),
                ("acquired_seconds", "Age of the oldest message that a consumer holds."),
            )
        ]
        letters = CounterMetricFamily(
            "hqueue_share_group_rejected_messages",
            "Messages of a share group that became dead letters.",
            labels=(*GROUP_LABELS, "reason"),
        )
        for group in self.groups:
            for each in group.partitions:
                if each.shared is not None:
                    now = each.shared
                    values = (
                        now.acquired,
                        now.redelivered,
                        now.released,
                        now.delayed,
                        now.acquired_age_ms / 1e3,
                    )
                    labels = [each.queue, str(each.partition), group.group]
                    for family, value in zip(families, values, strict=True):
                        family.add_metric(labels, value)
                    letters.add_metric([*labels, "rejected"], now.rejected)
                    letters.add_metric([*labels, "exhausted"], now.exhausted)
        yield from families
        yield letters

"""The metrics of a worker, for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from hqueue import GroupDescription
from hqueue.metadata import SubscriptionKey
from hqueue.metrics.families import counter, counts, gauge, histogram

__all__ = ["DeliveryMetrics", "Lag", "Metrics"]


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
        self.delivered = counter("hqueue_delivered_messages", self.registry)
        self.retried = counter("hqueue_retried_messages", self.registry)
        self.rejected = counter("hqueue_rejected_messages", self.registry)
        self.dead_letters = counter("hqueue_dead_letters", self.registry)
        self.unanswered = counter("hqueue_unanswered_calls", self.registry)
        self.halved = counter("hqueue_halved_calls", self.registry)
        self.latency = histogram("hqueue_delivery_latency_seconds", self.registry)
        self.notified = counter("hqueue_append_notifications", self.registry)
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
        claimed = gauge("hqueue_partitions_claimed")
        claimed.add_metric([], self.claimed)
        yield claimed
        messages, age = gauge("hqueue_lag_messages"), gauge("hqueue_lag_seconds")
        for lag in self.lags:
            labels = [lag.key.queue, str(lag.key.partition), lag.key.subscriber]
            messages.add_metric(labels, lag.messages)
            age.add_metric(labels, lag.age_ms / 1e3)
        yield messages
        yield age
        yield from self._collect_groups()

    def _collect_groups(self) -> Iterator[Metric]:
        members = gauge("hqueue_group_members")
        messages, age = gauge("hqueue_group_lag_messages"), gauge("hqueue_group_lag_seconds")
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
        names = (
            "acquired_messages", "redelivered_messages", "released_messages", "delayed_messages",
            "acquired_seconds",
        )  # fmt: skip
        families = [gauge(f"hqueue_share_group_{name}") for name in names]
        letters = counts("hqueue_share_group_rejected_messages")
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

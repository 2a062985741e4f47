"""Makes Prometheus' objects from the list of metrics. Needs the extra ``metrics``."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from hqueue.metrics.catalog import METRICS

__all__ = ["counter", "counts", "describe_process", "gauge", "histogram"]


def counter(name: str, registry: CollectorRegistry) -> Counter:
    """A counter of the list, in a registry."""
    metric = METRICS[name]
    return Counter(name, metric.help, metric.labels, registry=registry)


def histogram(name: str, registry: CollectorRegistry) -> Histogram:
    """A histogram of the list, in a registry."""
    metric = METRICS[name]
    return Histogram(name, metric.help, metric.labels, buckets=metric.buckets, registry=registry)


def gauge(name: str) -> GaugeMetricFamily:
    """A gauge of the list, for a collector that reads its values when it is asked for them."""
    metric = METRICS[name]
    return GaugeMetricFamily(name, metric.help, labels=metric.labels)


def counts(name: str) -> CounterMetricFamily:
    """A counter of the list, for a collector that reads its values when it is asked for them."""
    metric = METRICS[name]
    return CounterMetricFamily(name, metric.help, labels=metric.labels)


def describe_process(registry: CollectorRegistry, version: str) -> None:
    """Add what each process shows of itself: the version that it runs, memory, processor time and
    files.
    """
    registry.register(_Build(version))
    ProcessCollector(registry=registry)


class _Build(Collector):
    def __init__(self, version: str) -> None:
        self._version = version

    def collect(self) -> Iterator[Family]:
        family = gauge("hqueue_build_info")
        family.add_metric([self._version], 1)
        yield family

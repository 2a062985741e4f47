"""What happens in the API, as Prometheus metrics."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from hqueue_workers.api.scanners import ScannerTable

__all__ = ["ApiMetrics"]

LATENCY_BUCKETS_S = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60,
)  # fmt: skip


class ApiMetrics:
    """The API's metrics, beside the worker's.

    Args:
        registry: the worker's.
        scanners: those that are open.
    """

    def __init__(self, registry: CollectorRegistry, scanners: ScannerTable) -> None:
        self._calls = Counter(
            "hqueue_api_calls",
            "Calls of the Thrift API that were answered, by the error if there was one.",
            ("method", "result"),
            registry=registry,
        )
        self._latency = Histogram(
            "hqueue_api_call_seconds",
            "From a call of the Thrift API that has come whole to its answer.",
            ("method",),
            buckets=LATENCY_BUCKETS_S,
            registry=registry,
        )
        registry.register(_Scanners(scanners))

    def count(self, method: str, result: str, took_ms: float) -> None:
        """A call was answered."""
        self._calls.labels(method, result).inc()
        self._latency.labels(method).observe(took_ms / 1e3)


class _Scanners(Collector):
    """What the scanners are now."""

    def __init__(self, scanners: ScannerTable) -> None:
        self._scanners = scanners

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        yield GaugeMetricFamily(
            "hqueue_api_scanners", "Scanners that are open.", value=len(self._scanners)
        )
        yield GaugeMetricFamily(
            "hqueue_api_scanners_bytes",
            "About how much scanners hold between calls.",
            value=self._scanners.held_bytes,
        )
        yield CounterMetricFamily(
            "hqueue_api_scanners_expired",
            "Scanners that expired unused.",
            value=self._scanners.expired,
        )

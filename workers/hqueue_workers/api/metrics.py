"""The metrics of the Thrift API, for Prometheus."""

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
    """The API's metrics, in the registry of the process.

    Args:
        registry: the registry of the process that serves the API.
        scanners: the open scanners.
    """

    def __init__(self, registry: CollectorRegistry, scanners: ScannerTable) -> None:
        self._calls = Counter(
            "hqueue_api_calls",
            "Calls of the Thrift API that were answered, by method and result.",
            ("method", "result"),
            registry=registry,
        )
        self._latency = Histogram(
            "hqueue_api_call_seconds",
            "Time from the end of receiving a call of the Thrift API to its answer.",
            ("method",),
            buckets=LATENCY_BUCKETS_S,
            registry=registry,
        )
        registry.register(_Scanners(scanners))

    def count(self, method: str, result: str, took_ms: float) -> None:
        """Count a call that was answered."""
        self._calls.labels(method, result).inc()
        self._latency.labels(method).observe(took_ms / 1e3)


class _Scanners(Collector):
    """The metrics of the scanners, whose values are read when the page is asked for."""

    def __init__(self, scanners: ScannerTable) -> None:
        self._scanners = scanners

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        yield GaugeMetricFamily(
            "hqueue_api_scanners", "Open scanners of the Thrift API.", value=len(self._scanners)
        )
        yield GaugeMetricFamily(
            "hqueue_api_scanners_bytes",
            "Approximate bytes that scanners hold between calls.",
            value=self._scanners.held_bytes,
        )
        yield CounterMetricFamily(
            "hqueue_api_scanners_expired",
            "Scanners that expired because they were unused.",
            value=self._scanners.expired,
        )

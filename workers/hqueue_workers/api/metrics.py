"""The metrics of the Thrift API, for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from hqueue.metrics.families import counter, counts, gauge, histogram
from hqueue_workers.api.scanners import ScannerTable

__all__ = ["ApiMetrics"]


class ApiMetrics:
    """The API's metrics, in the registry of the process.

    Args:
        registry: the registry of the process that serves the API.
        scanners: the open scanners.
    """

    def __init__(self, registry: CollectorRegistry, scanners: ScannerTable) -> None:
        self._calls = counter("hqueue_api_calls", registry)
        self._latency = histogram("hqueue_api_call_seconds", registry)
        registry.register(_Scanners(scanners))

    def count(self, method: str, result: str, took_ms: float) -> None:
        """Count a call that was answered."""
        self._calls.labels(method, result).inc()
        self._latency.labels(method).observe(took_ms / 1e3)


class _Scanners(Collector):
    """The metrics of the scanners, whose values are read when the page is asked for."""

    def __init__(self, scanners: ScannerTable) -> None:
        self._scanners = scanners

    def collect(self) -> Iterator[Metric]:
        scanners, held = gauge("hqueue_api_scanners"), gauge("hqueue_api_scanners_bytes")
        expired = counts("hqueue_api_scanners_expired")
        scanners.add_metric([], len(self._scanners))
        held.add_metric([], self._scanners.held_bytes)
        expired.add_metric([], self._scanners.expired)
        yield from (scanners, held, expired)

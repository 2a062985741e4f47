"""The metrics of the console, for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from hqueue.metrics.families import counter, describe_process, gauge, histogram
from hqueue_workers.console.history import KEPT, SIZE, History

__all__ = ["OTHER", "ConsoleMetrics"]

OTHER = "other"
"""The page of requests for what is no page."""


class ConsoleMetrics:
    """All metrics of a console, in a registry of their own.

    Args:
        history: the newest measurements.
        streams: how many pages follow messages now.
        connections: how many connections of browsers are open.
        version: the version of HQueue.
    """

    def __init__(
        self,
        history: History,
        streams: Callable[[], int],
        connections: Callable[[], int],
        version: str,
    ) -> None:
        self.registry = CollectorRegistry()
        describe_process(self.registry, version)
        self._requests = counter("hqueue_console_requests", self.registry)
        self._refused = counter("hqueue_console_refused_requests", self.registry)
        self._seconds = histogram("hqueue_console_request_seconds", self.registry)
        self.registry.register(_Gauges(history, streams, connections))

    def answered(self, page: str, status: int, took_s: float) -> None:
        """Count a request that was answered.

        Args:
            page: the page's path, with the names of its fields; `OTHER` for what is no page.
            status: the answer's status.
            took_s: how long the answer took; of a stream, until it began.
        """
        self._requests.labels(page, str(status)).inc()
        self._seconds.labels(page).observe(took_s)

    def refused(self, status: int) -> None:
        """Count a request that was refused before it came to a page."""
        self._refused.labels(str(status)).inc()

    def text(self) -> bytes:
        """All metrics, in Prometheus's text format."""
        return generate_latest(self.registry)


class _Gauges(Collector):
    """The gauges, whose values are read when the metrics are asked for."""

    def __init__(
        self, history: History, streams: Callable[[], int], connections: Callable[[], int]
    ) -> None:
        self._history = history
        self._streams = streams
        self._connections = connections

    def collect(self) -> Iterator[Metric]:
        for name, value in (
            ("hqueue_console_streams", self._streams()),
            ("hqueue_console_connections", self._connections()),
            ("hqueue_console_unmeasured", self._history.left_out),
        ):
            family = gauge(name)
            family.add_metric([], value)
            yield family
        for name, kind in (
            ("hqueue_console_queue_messages", KEPT),
            ("hqueue_console_queue_bytes", SIZE),
        ):
            family = gauge(name)
            for queue, newest in self._history.newest(kind):
                family.add_metric([queue], newest)
            yield family

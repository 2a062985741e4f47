"""The metric of a process's session with ZooKeeper, for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from hqueue.metrics.families import gauge

__all__ = ["SessionMetrics"]


class SessionMetrics(Collector):
    """Shows whether a process may act.

    Args:
        holds: says whether the process's session certainly lives now.
    """

    def __init__(self, holds: Callable[[], bool]) -> None:
        self._holds = holds

    def collect(self) -> Iterator[Metric]:
        certain = gauge("hqueue_session_certain")
        certain.add_metric([], int(self._holds()))
        yield certain

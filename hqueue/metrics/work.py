"""The metrics of ``hqueue work``. Needs the extra ``metrics``."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, generate_latest

from hqueue.metrics.client import ClientMetrics
from hqueue.metrics.families import counter, describe_process, histogram
from hqueue.watching.observers import observe

__all__ = ["WorkMetrics"]


class WorkMetrics:
    """All metrics of a process that works on a queue, in a registry of their own. The process's
    consumers are counted from now on.

    Args:
        queue: the queue.
        group: the share group.
        version: the version of HQueue.
    """

    def __init__(self, queue: str, group: str, version: str) -> None:
        self._registry = CollectorRegistry()
        describe_process(self._registry, version)
        observe(ClientMetrics(self._registry))
        self._processes = counter("hqueue_work_processes", self._registry)
        seconds = histogram("hqueue_work_process_seconds", self._registry)
        self._labels = (queue, group)
        self._seconds = seconds.labels(*self._labels)

    def ended(self, result: str, took_s: float) -> None:
        """Count a process that has ended.

        Args:
            result: what became of its message: ``done``, ``retried`` or ``rejected``.
            took_s: how long the process took.
        """
        self._processes.labels(*self._labels, result).inc()
        self._seconds.observe(took_s)

    def page(self) -> bytes:
        """All metrics, in Prometheus's text format."""
        return generate_latest(self._registry)

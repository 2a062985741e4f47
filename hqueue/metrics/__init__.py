"""Metrics for Prometheus: the list of all metrics, and the metrics of programs that produce and
consume.

    import hqueue.metrics
    import prometheus_client

    hqueue.metrics.enable()
    prometheus_client.start_http_server(9464, addr="127.0.0.1")
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hqueue.errors import InvalidInputError
from hqueue.metrics.catalog import METRICS, metrics_of
from hqueue.metrics.metric import Metric
from hqueue.runtime.extras import needing
from hqueue.watching.observers import observe

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

__all__ = ["METRICS", "Metric", "enable", "metrics_of"]


def enable(registry: CollectorRegistry | None = None) -> None:
    """Count what the producers, consumers, share consumers, subscribers and clients of hubs of this
    process do, blocking and asyncio ones, from now on: the metrics ``hqueue_client_…``. Needs the
    extra ``hqueue-hbase[metrics]``. Before this call the library counts nothing.

    Call it once for a registry. It serves nothing: the program decides how Prometheus gets the
    metrics, such as by ``prometheus_client.start_http_server``.

    Args:
        registry: where the metrics are added; Prometheus' default registry if None.

    Raises:
        InvalidInputError: ``prometheus_client`` is not installed, or the registry has these metrics
            already.
    """
    with needing("metrics", "prometheus_client", "prometheus_client"):
        from prometheus_client import REGISTRY  # noqa: PLC0415  (an extra)

        from hqueue.metrics.client import ClientMetrics  # noqa: PLC0415
    try:
        metrics = ClientMetrics(REGISTRY if registry is None else registry)
    except ValueError as exc:
        raise InvalidInputError(
            "the registry has HQueue's metrics already: enable them once for a registry"
        ) from exc
    observe(metrics)

"""Metrics for Prometheus: the list of all metrics, and the metrics of programs that produce and
consume.
"""

from __future__ import annotations

from hqueue.metrics.catalog import METRICS, metrics_of
from hqueue.metrics.metric import Metric

__all__ = ["METRICS", "Metric", "metrics_of"]

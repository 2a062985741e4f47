"""Counts what ports refused, for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from hqueue.net.quotas import Quotas
from hqueue.net.security import PortSecurity

__all__ = ["QuotaRefusals", "RefusedConnections"]


class RefusedConnections(Collector):
    """The connections that the ports of a process refused.

    Args:
        security: the ports'; nothing is refused if it is None.
    """

    def __init__(self, security: PortSecurity | None) -> None:
        self._security = security

    def collect(self) -> Iterator[CounterMetricFamily]:
        refused = CounterMetricFamily(
            "hqueue_refused_connections",
            "Connections to a port of this process that were refused.",
            labels=["port", "reason"],
        )
        for guard in () if self._security is None else list(self._security.guards):
            for reason, count in sorted(guard.refused.items()):
                refused.add_metric([guard.port, reason], count)
        yield refused


class QuotaRefusals(Collector):
    """The calls that were refused because their callers were over their quotas.

    Args:
        quotas: the process's.
    """

    def __init__(self, quotas: Quotas) -> None:
        self._quotas = quotas

    def collect(self) -> Iterator[CounterMetricFamily]:
        refused = CounterMetricFamily(
            "hqueue_quota_refusals",
            "Calls that were refused because their callers were over their quotas.",
            labels=["port", "limit"],
        )
        for each in list(self._quotas.ports):
            for limit, count in sorted(each.refused.items()):
                refused.add_metric([each.port, limit], count)
        yield refused

"""What ports show of their security, for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from hqueue.net.quotas import Quotas
from hqueue.net.security import PortSecurity

__all__ = ["PortSecurityMetrics", "QuotaRefusals"]


class PortSecurityMetrics(Collector):
    """What the ports of a process show of their security.

    Args:
        security: the ports'; there is nothing to show if it is None.
    """

    def __init__(self, security: PortSecurity | None) -> None:
        self._security = security

    def collect(self) -> Iterator[Metric]:
        refused = CounterMetricFamily(
            "hqueue_refused_connections",
            "Connections to a port of this process that were refused.",
            labels=["port", "reason"],
        )
        plaintext = CounterMetricFamily(
            "hqueue_plaintext_connections",
            "Connections without TLS that a port of this process served (tls_optional).",
            labels=["port"],
        )
        expires = GaugeMetricFamily(
            "hqueue_certificate_expiration_timestamp_seconds",
            "When the certificate expires that this process's ports show.",
        )
        if self._security is not None:
            for guard in list(self._security.guards):
                for reason, count in sorted(guard.refused.items()):
                    refused.add_metric([guard.port, reason], count)
                if guard.optional:
                    plaintext.add_metric([guard.port], guard.plaintext)
            expires.add_metric([], self._security.expires_s)
        yield from (refused, plaintext, expires)


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

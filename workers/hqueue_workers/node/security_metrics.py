"""The metrics of the security of ports, for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from hqueue.metrics.families import counts, gauge
from hqueue.net.quotas import Quotas
from hqueue.net.security import PortSecurity

__all__ = ["PortSecurityMetrics", "QuotaRefusals"]


class PortSecurityMetrics(Collector):
    """The security metrics of a process's ports.

    Args:
        security: the security of the ports; None for no metrics.
    """

    def __init__(self, security: PortSecurity | None) -> None:
        self._security = security

    def collect(self) -> Iterator[Metric]:
        refused = counts("hqueue_refused_connections")
        plaintext = counts("hqueue_plaintext_connections")
        expires = gauge("hqueue_certificate_expiration_timestamp_seconds")
        if self._security is not None:
            for guard in list(self._security.guards):
                for reason, count in sorted(guard.refused.items()):
                    refused.add_metric([guard.port, reason], count)
                if guard.optional:
                    plaintext.add_metric([guard.port], guard.plaintext)
            expires.add_metric([], self._security.expires_s)
        yield from (refused, plaintext, expires)


class QuotaRefusals(Collector):
    """The calls that were refused because their callers exceeded their quotas.

    Args:
        quotas: the quotas of the process.
    """

    def __init__(self, quotas: Quotas) -> None:
        self._quotas = quotas

    def collect(self) -> Iterator[CounterMetricFamily]:
        refused = counts("hqueue_quota_refusals")
        for each in list(self._quotas.ports):
            for limit, count in sorted(each.refused.items()):
                refused.add_metric([each.port, limit], count)
        yield refused

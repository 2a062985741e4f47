"""The pages' tables name each metric in full, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from prometheus_client import CollectorRegistry

from hqueue.net.quotas import QuotaRules, Quotas
from hqueue.runtime.clock import SYSTEM_CLOCK
from hqueue_workers.api.metrics import ApiMetrics
from hqueue_workers.api.scanners import ScannerTable
from hqueue_workers.hub.metrics import HubMetrics, QueueFigures
from hqueue_workers.node.metrics import Metrics
from hqueue_workers.node.security_metrics import PortSecurityMetrics, QuotaRefusals
from hqueue_workers.node.skipped import SkippedMessages

DOCS = Path(__file__).parents[3] / "docs"
PAGES = ("operating.md", "hubs.md", "thrift-api.md")
ROW = re.compile(r"^\| (`hqueue_[^|]*) \|", re.MULTILINE)


def names_in(registry: CollectorRegistry) -> set[str]:
    """As Prometheus shows them: a counter with its suffix, a histogram without any."""
    return {
        family.name + ("_total" if family.type == "counter" else "")
        for family in registry.collect()
    }


def test_the_tables_of_metrics_name_each_metric_and_no_other() -> None:
    worker = Metrics()
    scanners = ScannerTable(count_max=1, bytes_max=1, idle_ms=1, clock=SYSTEM_CLOCK)
    ApiMetrics(worker.registry, scanners)
    hub = HubMetrics(lambda: {"q": QueueFigures(0, 0)}, lambda: 0)
    for registry in (worker.registry, hub.registry):
        registry.register(SkippedMessages(dict))
        registry.register(PortSecurityMetrics(None))
        registry.register(QuotaRefusals(Quotas(QuotaRules())))
    there = names_in(worker.registry) | names_in(hub.registry)
    named = {
        name
        for page in PAGES
        for cell in ROW.findall((DOCS / page).read_text(encoding="utf-8"))
        for name in re.findall(r"`(hqueue_[a-z_]+)`", cell)
    }
    assert named == there

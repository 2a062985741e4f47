"""The files that follow from the list of metrics, as text."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

from hqueue.metrics import METRICS, Metric
from tests.monitoring.alert import Alert
from tests.monitoring.alerts import ALERTS
from tests.monitoring.panels import ROWS, Panel

__all__ = ["FILES", "ROOT", "runbook_of"]

ROOT = Path(__file__).parents[2]
COMMAND = "make monitoring"
NOTE = f"Written by `{COMMAND}` from the list of metrics: a change belongs there."

TITLES = {
    ("worker", "hub", "work", "console"): "All processes",
    ("worker", "hub", "console"): "Workers, hubs and consoles",
    ("worker", "hub"): "Workers and hubs",
    ("worker",): "Workers",
    ("hub",): "Hubs",
    ("api",): "The Thrift API",
    ("console",): "Consoles",
    ("client", "work"): "Programs that produce and consume",
    ("work",): "`hqueue work`",
}


def runbook_of(alert: Alert) -> str:
    """Where the paragraph of an alert lies, from the root of the repository."""
    return f"docs/alerts.md#{alert.name.lower()}"


def reference_page() -> str:
    """``docs/reference/metrics.md``."""
    lines = [
        "# Metrics",
        "",
        f"<!-- {NOTE} -->",
        "",
        "All metrics that HQueue exposes for Prometheus. [Watching](../watching.md) says",
        "how to scrape them, and [Alerts](../alerts.md) which of them to alert on.",
        "",
        "The labels queue, group, subscriber and topic have the names that exist in the cluster;",
        "partition has numbers; all others have a fixed number of values.",
    ]
    for roles, title in TITLES.items():
        listed = [each for each in METRICS.values() if each.roles == roles]
        if listed:
            lines += [
                "",
                f"## {title}",
                "",
                "| metric | type | labels | unit | |",
                "|---|---|---|---|---|",
            ]
            lines += map(_row, listed)
    return "\n".join(lines) + "\n"


def _row(metric: Metric) -> str:
    labels = ", ".join(metric.labels)
    text = f"{metric.help} {metric.notes}".strip()
    return f"| `{metric.exposed}` | {metric.kind} | {labels} | {metric.unit} | {text} |"


def runbook() -> str:
    """``docs/alerts.md``."""
    lines = [
        "# Alerts",
        "",
        f"<!-- {NOTE} -->",
        "",
        "The rules in",
        "[deploy/prometheus/hqueue.rules.yaml](../deploy/prometheus/hqueue.rules.yaml) raise these",
        "alerts. They expect that the names of the scrape jobs contain `hqueue`. The severity",
        "`critical` means that an operator must act now, `warning` that an operator must act",
        "today, and `info` that nothing is broken. [Metrics](reference/metrics.md) describes the",
        "metrics, and [Watching](watching.md) says how to install the rules and the",
        "dashboard.",
    ]
    for alert in ALERTS:
        lines += [
            "",
            f"## {alert.name}",
            "",
            f"`{alert.severity}`, after {alert.minutes} minutes"
            if alert.minutes
            else f"`{alert.severity}`, at once",
            "",
            "```",
            alert.expression,
            "```",
            "",
            f"**What it means.** {alert.means}",
            "",
            f"**What to look at.** {alert.look}",
            "",
            f"**What to do.** {alert.act}",
        ]
    return "\n".join(lines) + "\n"


def rules() -> str:
    """``deploy/prometheus/hqueue.rules.yaml``."""
    lines = [f"# {NOTE}", "groups:", "  - name: hqueue", "    rules:"]
    for alert in ALERTS:
        lines += [
            f"      - alert: {alert.name}",
            f"        expr: {json.dumps(alert.expression)}",
            f"        for: {alert.minutes}m",
            "        labels:",
            f"          severity: {alert.severity}",
            "        annotations:",
            f"          summary: {json.dumps(alert.summary)}",
            f"          description: {json.dumps(_plain(alert.means))}",
            f"          runbook_url: {json.dumps(runbook_of(alert))}",
        ]
    return "\n".join(lines) + "\n"


def _plain(text: str) -> str:
    """Markdown without links."""
    return re.sub(r"\[([^]]+)\]\([^)]+\)", r"\1", text)


def rule_tests() -> str:
    """``deploy/prometheus/hqueue.rules.test.yaml``, for ``promtool test rules``: each alert fires
    with some series, and keeps quiet with others.
    """
    lines = [
        f"# {NOTE}",
        "rule_files: [hqueue.rules.yaml]",
        "evaluation_interval: 1m",
        "tests:",
    ]
    for alert in ALERTS:
        for series, fires in ((alert.firing, True), (alert.quiet, False)):
            lines += [
                "  - interval: 1m",
                f"    name: {alert.name} {'fires' if fires else 'is quiet'}",
            ]
            lines.append("    input_series:")
            for name, values in series.items():
                lines += [
                    f"      - series: {json.dumps(name)}",
                    f"        values: {json.dumps(values)}",
                ]
            lines += [
                "    alert_rule_test:",
                f"      - eval_time: {alert.tested_minutes}m",
                f"        alertname: {alert.name}",
            ]
            lines += _expected(alert) if fires else ["        exp_alerts: []"]
    return "\n".join(lines) + "\n"


def _expected(alert: Alert) -> list[str]:
    summary = re.sub(r"{{ \$labels\.(\w+) }}", lambda each: alert.labels[each[1]], alert.summary)
    labels = {"severity": alert.severity, **alert.labels}
    return [
        "        exp_alerts:",
        f"          - exp_labels: {json.dumps(labels)}",
        "            exp_annotations:",
        f"              summary: {json.dumps(summary)}",
        f"              description: {json.dumps(_plain(alert.means))}",
        f"              runbook_url: {json.dumps(runbook_of(alert))}",
    ]


def dashboard() -> str:
    """``deploy/grafana/hqueue.json``."""
    panels: list[dict[str, object]] = []
    top = 0
    for title, row in ROWS.items():
        panels.append(
            {
                "id": len(panels) + 1,
                "type": "row",
                "title": title,
                "collapsed": False,
                "gridPos": {"x": 0, "y": top, "w": 24, "h": 1},
                "panels": [],
            }
        )
        top += 1
        stats = all(panel.kind == "stat" for panel in row)
        wide, high = (6, 4) if stats else (8, 8)
        for index, panel in enumerate(row):
            across = 24 // wide
            place = {
                "x": index % across * wide,
                "y": top + index // across * high,
                "w": wide,
                "h": high,
            }
            panels.append(_panel(panel, len(panels) + 1, place))
        top += -(-len(row) // (24 // wide)) * high
    document = {
        "title": "HQueue",
        "uid": "hqueue",
        "description": NOTE,
        "tags": ["hqueue"],
        "editable": True,
        "schemaVersion": 38,
        "version": 1,
        "refresh": "30s",
        "timezone": "",
        "time": {"from": "now-1h", "to": "now"},
        "annotations": {"list": []},
        "links": [],
        "templating": {"list": [_source(), _queues()]},
        "panels": panels,
    }
    return json.dumps(document, indent=2) + "\n"


SOURCE = {"type": "prometheus", "uid": "${datasource}"}


def _source() -> dict[str, object]:
    return {
        "name": "datasource",
        "label": "Prometheus",
        "type": "datasource",
        "query": "prometheus",
    }


def _queues() -> dict[str, object]:
    query = 'label_values({__name__=~"hqueue_.+"}, queue)'
    return {
        "name": "queue",
        "label": "Queue",
        "type": "query",
        "datasource": SOURCE,
        "definition": query,
        "query": {"query": query, "refId": "queues"},
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "sort": 1,
        "current": {"text": ["All"], "value": ["$__all"]},
    }


def _panel(panel: Panel, number: int, place: dict[str, int]) -> dict[str, object]:
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.text,
        "datasource": SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [
            {
                "refId": chr(ord("A") + index),
                "datasource": SOURCE,
                "expr": expression,
                "legendFormat": legend,
            }
            for index, (legend, expression) in enumerate(panel.queries.items())
        ],
    }


FILES: dict[str, Callable[[], str]] = {
    "docs/reference/metrics.md": reference_page,
    "docs/alerts.md": runbook,
    "deploy/prometheus/hqueue.rules.yaml": rules,
    "deploy/prometheus/hqueue.rules.test.yaml": rule_tests,
    "deploy/grafana/hqueue.json": dashboard,
}
"""What makes each file, by its path from the root of the repository."""

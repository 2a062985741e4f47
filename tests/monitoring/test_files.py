"""The files that follow from the list of metrics are up to date, and use metrics that exist."""

from __future__ import annotations

import re

import pytest

from hqueue.metrics import METRICS
from tests.monitoring.alerts import ALERTS
from tests.monitoring.expressions import grouped_by, selectors_of
from tests.monitoring.files import FILES, ROOT, runbook_of
from tests.monitoring.panels import ROWS

SERIES = {series: metric for metric in METRICS.values() for series in metric.series}
BY_PROMETHEUS = {"job", "instance", "le"}
EXPRESSIONS = {
    **{alert.name: alert.expression for alert in ALERTS},
    **{
        f"{row}: {panel.title}: {legend}": expression
        for row, panels in ROWS.items()
        for panel in panels
        for legend, expression in panel.queries.items()
    },
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_is_what_the_list_of_metrics_says(name: str) -> None:
    stale = f"{name} is stale: run `make monitoring`, and commit what it writes"
    assert (ROOT / name).read_text(encoding="utf-8") == FILES[name](), stale


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_an_expression_reads_metrics_and_labels_that_exist(name: str) -> None:
    expression = EXPRESSIONS[name]
    selectors = selectors_of(expression)
    assert selectors
    known = set(BY_PROMETHEUS)
    for selector in selectors:
        if selector.name == "up":
            assert set(selector.labels) <= BY_PROMETHEUS
            continue
        metric = SERIES[selector.name]
        assert set(selector.labels) <= {*metric.labels, *BY_PROMETHEUS}
        known.update(metric.labels)
    assert grouped_by(expression) <= known


def test_the_dashboard_shows_every_metric_of_ours() -> None:
    shown = {selector.name for each in EXPRESSIONS.values() for selector in selectors_of(each)}
    hidden = [
        metric.name
        for metric in METRICS.values()
        if metric.name.startswith("hqueue_") and not shown.intersection(metric.series)
    ]
    assert hidden == []


def test_legends_and_summaries_name_labels_that_are_there() -> None:
    for panels in ROWS.values():
        for panel in panels:
            for legend, expression in panel.queries.items():
                labels = set(re.findall(r"{{(\w+)}}", legend))
                known = grouped_by(expression) | BY_PROMETHEUS
                for selector in selectors_of(expression):
                    if not grouped_by(expression) and selector.name in SERIES:
                        known |= set(SERIES[selector.name].labels)
                assert labels <= known, panel.title
    for alert in ALERTS:
        assert set(re.findall(r"\$labels\.(\w+)", alert.summary)) <= alert.labels.keys()


def test_each_alert_has_a_paragraph_where_its_annotation_points() -> None:
    headings = re.findall(r"^## (\w+)$", (ROOT / "docs/alerts.md").read_text("utf-8"), re.M)
    assert headings == [alert.name for alert in ALERTS]
    for alert in ALERTS:
        page, _, anchor = runbook_of(alert).partition("#")
        assert (ROOT / page).exists()
        assert anchor == alert.name.lower()


def test_metrics_follow_the_conventions_of_prometheus() -> None:
    for metric in METRICS.values():
        assert re.fullmatch(r"(hqueue|process)(_[a-z0-9]+)+", metric.name)
        assert not metric.name.endswith("_total")
        assert metric.help.endswith(".")
        assert (metric.kind == "histogram") == bool(metric.buckets)
        if metric.unit in ("seconds", "bytes"):
            assert f"_{metric.unit}" in metric.name, metric.name
        assert not re.search(r"_(ms|millis|minutes|kb|mb|percent)(_|$)", metric.name)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ('sum by (a) (rate(m_total{x="1}", y=~"z"}[5m])) > 0.5', [("m_total", ("x", "y"))]),
        ("a and on (g) b unless c offset 20m", [("a", ()), ("b", ()), ("c", ())]),
        ('up{job=~".*"} == 0 or vector(0)', [("up", ("job",))]),
        ("histogram_quantile(0.99, sum by (le) (rate(h_bucket{}[5m]))) > 1", [("h_bucket", ())]),
    ],
)
def test_the_metrics_of_an_expression_are_found(
    expression: str, expected: list[tuple[str, tuple[str, ...]]]
) -> None:
    assert [tuple(each) for each in selectors_of(expression)] == expected

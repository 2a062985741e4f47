"""An alert."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

__all__ = ["Alert"]


class Alert(NamedTuple):
    """An alert, as a rule of Prometheus and as a paragraph of the runbook.

    Args:
        name: the alert's name.
        severity: ``critical`` wakes somebody, ``warning`` waits until the morning, ``info`` only
            shows.
        expression: PromQL.
        minutes: how long the expression must hold.
        summary: one line; ``{{ $labels.x }}`` stands for a label's value.
        means, look, act: the paragraph of the runbook, in Markdown.
        firing: series, in the notation of promtool, with which the alert fires.
        quiet: series with which it does not.
        labels: the labels of the alert that fires.
        tested_minutes: after how many minutes of these series the test looks.
    """

    name: str
    severity: str
    expression: str
    minutes: int
    summary: str
    means: str
    look: str
    act: str
    firing: dict[str, str]
    quiet: dict[str, str]
    labels: Mapping[str, str] = MappingProxyType({})
    tested_minutes: int = 24

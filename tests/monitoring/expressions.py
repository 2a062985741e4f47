"""The names and labels in expressions of PromQL."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

__all__ = ["Selector", "grouped_by", "plain", "selectors_of"]

TEXT = r'"(?:[^"\\]|\\.)*"'
GROUPING = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)")
TOKEN = re.compile(rf"{TEXT}|\b\d[\w.]*|\b([A-Za-z_:][\w:]*)(\s*\{{(?:{TEXT}|[^}}\"])*\}})?")
MATCHER = re.compile(rf"(\w+)\s*(?:=~|!~|!=|=)\s*{TEXT}")
KEYWORDS = {"and", "or", "unless", "bool", "offset"}


class Selector(NamedTuple):
    """A metric in an expression, with the labels that it is selected by."""

    name: str
    labels: tuple[str, ...]


def selectors_of(expression: str) -> list[Selector]:
    """The metrics that an expression reads. The labels by which it groups are in `grouped_by`."""
    return list(_selectors(expression))


def _selectors(expression: str) -> Iterator[Selector]:
    bare = re.sub(r"\[[^]]*\]", "", GROUPING.sub(" ", expression))
    for found in TOKEN.finditer(bare):
        name, matchers = found[1], found[2]
        is_function = bare[found.end() :].lstrip().startswith("(")
        if name and name not in KEYWORDS and not is_function:
            yield Selector(name, tuple(MATCHER.findall(matchers or "")))


def grouped_by(expression: str) -> set[str]:
    """The labels by which an expression groups."""
    return {
        label.strip() for each in GROUPING.findall(expression) for label in each.split(",") if label
    }


def plain(expression: str) -> str:
    """An expression of the dashboard as Prometheus takes it, with Grafana's variables replaced."""
    return expression.replace("$__rate_interval", "5m").replace("$queue", ".*")

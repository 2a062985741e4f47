"""The description of a metric."""

from __future__ import annotations

from typing import NamedTuple

__all__ = [
    "LATENCY_BUCKETS_S",
    "Kind",
    "Metric",
    "Role",
    "counter_of",
    "gauge_of",
    "seconds_of",
]

LATENCY_BUCKETS_S = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
)  # fmt: skip

Kind = str
"""``counter``, ``gauge`` or ``histogram``."""
Role = str
"""What exposes a metric: ``worker``, ``hub``, ``console``, ``api`` (in the process of a
worker or hub), ``client``, or ``work`` (``hqueue work``)."""


class Metric(NamedTuple):
    """A metric, as the list of all metrics describes it.

    Args:
        name: the name without the suffix that Prometheus gives its series: ``_total``, ``_bucket``.
        kind: ``counter``, ``gauge`` or ``histogram``.
        help: a sentence without Markdown, which the process exposes, too.
        labels: the names of the labels. All have a bounded number of values.
        unit: the base unit.
        roles: the roles that expose it.
        notes: what the reference page adds, in Markdown. Links are relative to ``docs/reference``.
        buckets: the upper bounds of a histogram's buckets.
    """

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...]
    unit: str
    roles: tuple[Role, ...]
    notes: str = ""
    buckets: tuple[float, ...] = ()

    @property
    def exposed(self) -> str:
        """The name in Prometheus' text format, in which counters end with ``_total``."""
        return f"{self.name}_total" if self.kind == "counter" else self.name

    @property
    def series(self) -> tuple[str, ...]:
        """The names that an expression may use."""
        if self.kind == "histogram":
            return tuple(f"{self.name}_{each}" for each in ("bucket", "sum", "count"))
        return (self.exposed,)


def counter_of(
    name: str,
    text: str,
    roles: tuple[Role, ...],
    labels: tuple[str, ...] = (),
    unit: str = "messages",
    *,
    notes: str = "",
) -> Metric:
    """A counter of the list."""
    return Metric(f"hqueue_{name}", "counter", text, labels, unit, roles, notes)


def gauge_of(
    name: str,
    text: str,
    roles: tuple[Role, ...],
    labels: tuple[str, ...] = (),
    unit: str = "messages",
    *,
    notes: str = "",
) -> Metric:
    """A gauge of the list."""
    return Metric(f"hqueue_{name}", "gauge", text, labels, unit, roles, notes)


def seconds_of(
    name: str,
    text: str,
    roles: tuple[Role, ...],
    labels: tuple[str, ...] = (),
    buckets: tuple[float, ...] = LATENCY_BUCKETS_S,
) -> Metric:
    """A histogram of seconds of the list."""
    return Metric(f"hqueue_{name}", "histogram", text, labels, "seconds", roles, "", buckets)

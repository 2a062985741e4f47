"""Whether a process of a run has done its work, by its own history or its own metrics."""

from __future__ import annotations

import urllib.request
from pathlib import Path

from .record_files import records

__all__ = ["SERVING", "has_worked", "served"]

GOT = ("read", "handed", "delivered", "given")
"""Records of messages that readers, consumers, subscribers and listeners got."""

SERVING = {
    "worker": ("hqueue_delivered_messages_total",),
    "hub": ("hqueue_hub_published_messages_total", "hqueue_hub_delivered_messages_total"),
}
"""The kinds that keep no history, and the metrics that count the messages which they served."""

ANSWERS_S = 5.0


def has_worked(folder: Path, kind: str, name: str, metrics_port: int) -> bool:
    """Whether a process has put, got or served a message.

    Args:
        folder: of the histories.
        kind: of the process.
        name: of the process.
        metrics_port: of the process, if it is of a kind that serves.
    """
    if kind in SERVING:
        return served(kind, _page(metrics_port)) > 0
    path = folder / f"{name}.{kind}.jsonl"
    return path.exists() and any(
        record[0] in GOT or (record[0] == "complete" and record[2] == "ok")
        for record in records(path)
    )


def served(kind: str, page: str) -> float:
    """How many messages a page of metrics counts.

    Args:
        kind: of the process: one of `SERVING`.
        page: in Prometheus's text format.
    """
    lines = (line.rpartition(" ") for line in page.splitlines() if not line.startswith("#"))
    return sum(
        float(value) for series, _, value in lines if series.partition("{")[0] in SERVING[kind]
    )


def _page(port: int) -> str:
    """The page of metrics; empty if the process does not answer now."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=ANSWERS_S) as page:
            return str(page.read().decode())
    except OSError:
        return ""

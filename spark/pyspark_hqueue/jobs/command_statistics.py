"""How a queue's statistics are shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hqueue.cli.formats import iso_timestamp, printable
from hqueue.cli.output import show_table, write_json
from hqueue.cli.progress import size_text

if TYPE_CHECKING:
    from pyspark_hqueue.jobs.queue_statistics import Count, Statistics

__all__ = ["show_statistics"]

SHOWN_IN_WINDOW = 3


def show_statistics(found: Statistics, *, top: int, json: bool) -> None:
    """Write counts to stdout.

    Args:
        found: the counts.
        top: how many groups are listed over all windows.
        json: a document for each window and group instead of tables.
    """
    if json:
        for counts in found.windows().values():
            for count in counts:
                write_json(_as_json(found, count))
        return
    seconds = found.window_ms / 1e3
    show_table(
        ("window", "messages", "bytes", "messages/s", "top"),
        [
            (
                iso_timestamp(window_ms),
                f"{sum(c.messages for c in counts):,}",
                size_text(sum(c.bytes for c in counts)),
                f"{sum(c.messages for c in counts) / seconds:,.1f}",
                _top(counts),
            )
            for window_ms, counts in found.windows().items()
        ],
        title=found.queue,
        numbers=("messages", "bytes", "messages/s"),
    )
    groups = found.groups()
    show_table(
        ("topic", "messages", "bytes", "share"),
        [
            (
                count.group,
                f"{count.messages:,}",
                size_text(count.bytes),
                f"{count.messages / found.messages:.1%}",
            )
            for count in groups[:top]
        ],
        title=f"the first {top} of {len(groups)}" if len(groups) > top else None,
        numbers=("messages", "bytes", "share"),
    )


def _top(counts: list[Count]) -> str:
    shown = [f"{printable(c.group)} {c.messages:,}" for c in counts[:SHOWN_IN_WINDOW]]
    more = len(counts) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def _as_json(found: Statistics, count: Count) -> dict[str, object]:
    return {
        "window": iso_timestamp(count.window_ms),
        "seconds": found.window_ms / 1e3,
        "topic": count.group,
        "messages": count.messages,
        "bytes": count.bytes,
    }

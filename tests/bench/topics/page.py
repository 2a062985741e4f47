"""The table of the page about hubs, and its picture."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from ..report import number, origin, stolen, table
from .growth import STORES, Figures

__all__ = ["COMMAND", "PICTURE", "draw", "part"]

COMMAND = "make bench-topics"
PICTURE = "hubs-topics.png"

_HEAD = (
    "metadata in", "topics", "made and owned a second", "processor time, each", "idle, of a core",
    "memory", "on demand", "of a killed hub, taken over",
)  # fmt: skip
_NAMES = {"zookeeper": "ZooKeeper", "hbase": "HBase"}
_CURVES: Sequence[tuple[str, Callable[[Figures], float]]] = (
    ("topics made and owned a second", lambda each: each.made_a_second),
    ("hubs' processor time to make one, ms", lambda each: each.made_hub_ms),
    ("memory of a hub, MiB", lambda each: each.rss_mib),
    ("idle, % of a core", lambda each: each.idle_core_percent),
    ("taken over a second", lambda each: each.taken / each.taken_s),
    ("hubs' processor time to take one over, ms", lambda each: each.taken_hub_ms),
)


def part(figures: Sequence[Figures]) -> str:
    """The part, in Markdown."""
    rows = [
        (
            _NAMES[each.store],
            f"{each.topics:,}",
            number(each.made_a_second),
            f"{number(each.made_hub_ms)} ms",
            f"{number(each.idle_core_percent)}%",
            f"{number(each.rss_mib)} MiB",
            f"{number(each.on_demand_ms / 1e3)} s",
            f"{each.taken:,} in {number(each.taken_s)} s",
        )
        for each in figures
    ]
    return "\n\n".join(
        (
            f"{origin(COMMAND)}.\n{stolen()}",
            table(_HEAD, rows),
            f"![What topics cost hubs, with more and more of them]({PICTURE})",
        )
    )


def draw(figures: Sequence[Figures], path: Path) -> None:
    """What topics cost, by their number."""
    figure = Figure(figsize=(13, 7), layout="constrained")
    for axes, (title, value) in zip(figure.subplots(2, 3).flat, _CURVES, strict=True):
        for store, colour in zip(STORES, ("tab:orange", "tab:blue"), strict=True):
            of_store = [each for each in figures if each.store == store]
            sizes = [each.topics for each in of_store]
            axes.plot(sizes, [*map(value, of_store)], "o-", color=colour, label=_NAMES[store])
        axes.set_title(title, loc="left")
        axes.set_xscale("log")
        axes.set_ylim(bottom=0)
        axes.set_xlabel("topics")
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
    figure.savefig(path, dpi=80)

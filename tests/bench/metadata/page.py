"""The part of the page about topics' metadata, and its picture."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..measure import Comparison
from ..report import comparisons, number, origin, stolen, table
from .cases import LATENCIES, Latency
from .stores import HEAP_MB, Point

__all__ = ["PICTURE", "draw", "part"]

PICTURE = "benchmarks-metadata.png"

_HOW = """\
A topic has five subscriptions and one record of where its messages lie. One process asks for
records one after the other, each chosen at random, by turns from a large population of topics and
from a small one. On HBase the two populations are two tables of the standalone server. ZooKeeper
runs as a server of its own, with a heap of up to {heap_mb:,} MiB; its memory is that of its process
after a garbage collection.

One process updates the states of {updates} subscriptions at once. The bare updates send the same
bytes on the same conditions, and are built before the clock starts. On HBase a request has as many
of them as the library's have; on ZooKeeper one session sends them without waiting for answers.
"""


def part(results: Sequence[Comparison], points: Sequence[Point], updates: int) -> str:
    """The part, in Markdown."""
    parts = [
        "## Topics' metadata",
        f"{origin('make bench-metadata')}.\n{stolen()}",
        _HOW.format(heap_mb=HEAP_MB, updates=f"{updates:,}"),
        comparisons(results),
        "### How ZooKeeper copes",
        f"![ZooKeeper, with more and more records, and HBase]({PICTURE})",
        _growth(points),
    ]
    return "\n\n".join(each.strip() for each in parts)


def _growth(points: Sequence[Point]) -> str:
    head = [
        "records", "memory, MiB", "start, s",
        *(f"{operation}, {name}, ms" for operation in LATENCIES for name in ("p50", "p99")),
    ]  # fmt: skip
    rows = []
    for point in points:
        rows.append(
            [
                f"{point.records:,}",
                number(point.memory_bytes / 2**20),
                number(point.start_s),
                *(
                    number(statistics.median(each[place] for each in point.latencies[operation]))
                    for operation in LATENCIES
                    for place in (0, 1)
                ),
            ]
        )
    return table(head, rows)


def draw(
    points: Sequence[Point],
    on_hbase: Mapping[int, Mapping[str, Sequence[Latency]]],
    path: Path,
) -> None:
    """ZooKeeper's memory and start, and both stores' latencies, by the number of records.

    Args:
        points: on ZooKeeper.
        on_hbase: by the number of records.
        path: of the picture.
    """
    figure = Figure(figsize=(13, 7), layout="constrained")
    grid = figure.subplots(2, 3, squeeze=False)
    sizes = [point.records for point in points]
    _line(grid[0, 0], "ZooKeeper", sizes, [point.memory_bytes / 2**20 for point in points])
    _line(grid[0, 1], "ZooKeeper", sizes, [point.start_s for point in points])
    grid[0, 0].set_title("a server's memory, MiB", loc="left")
    grid[0, 1].set_title("a server's start, s", loc="left")
    grid[0, 2].set_axis_off()
    for axes, operation in zip(grid[1], LATENCIES, strict=True):
        of_zookeeper = [point.latencies[operation] for point in points]
        of_hbase = [each[operation] for each in on_hbase.values()]
        for place, name in enumerate(("p50", "p99")):
            style = "-" if place == 0 else ":"
            for store, at, rounds in (
                ("ZooKeeper", sizes, of_zookeeper),
                ("HBase", [*on_hbase], of_hbase),
            ):
                middle = [statistics.median(each[place] for each in of_one) for of_one in rounds]
                _line(axes, f"{store}, {name}", at, middle, style)
        axes.set_title(f"{operation}, ms", loc="left")
    for axes in (*grid[0, :2], *grid[1]):
        axes.set_xscale("log")
        axes.set_ylim(bottom=0)
        axes.set_xlabel("records")
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
    figure.savefig(path, dpi=80)


def _line(
    axes: Axes, label: str, sizes: Sequence[int], values: Sequence[float], style: str = "-"
) -> None:
    colour = "tab:orange" if label.startswith("ZooKeeper") else "tab:blue"
    axes.plot(sizes, values, "o", linestyle=style, color=colour, label=label)

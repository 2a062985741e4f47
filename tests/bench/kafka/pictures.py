"""The results as pictures: bars for each case, and lines for the growth."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..measure import Comparison
from .growth import MEASURES, Point

__all__ = ["draw_cases", "draw_growth", "series"]

COLOURS = {
    "hqueue": "tab:blue",
    "hqueue, Message": "tab:blue",
    "hqueue, Arrow": "tab:cyan",
    "hqueue, Message, values alone": "lightsteelblue",
    "hqueue, Arrow, values alone": "paleturquoise",
    "confluent-kafka": "tab:orange",
    "confluent-kafka, lz4": "tab:olive",
    "kafka-python": "tab:red",
}


def series(results: Sequence[Comparison]) -> dict[str, dict[str, tuple[float, ...]]]:
    """Of each that ran, under each title, the figures of the rounds."""
    found: dict[str, dict[str, tuple[float, ...]]] = {}
    for result in results:
        found.setdefault(result.contender, {})[result.title] = result.contender_figures
        found.setdefault(result.rival, {})[result.title] = result.rival_figures
    # hqueue first: the rivals of the first contender came before the second contender.
    return dict(sorted(found.items(), key=lambda item: not item[0].startswith("hqueue")))


def draw_cases(results: Mapping[str, Sequence[Comparison]], path: Path) -> None:
    """A row of bars for each case: medians, with the lowest and the highest."""
    figure = Figure(figsize=(13, 3.6 * len(results)), layout="constrained")
    rows = figure.subplots(len(results), 1, squeeze=False)[:, 0]
    for axes, (title, comparisons) in zip(rows, results.items(), strict=True):
        _bars(axes, comparisons)
        axes.set_title(title, loc="left")
    figure.savefig(path, dpi=80)


def draw_growth(points: Mapping[str, Sequence[Point]], path: Path) -> None:
    """A column for each axis, a row for each measure."""
    figure = Figure(figsize=(13, 3 * len(MEASURES)), layout="constrained")
    grid = figure.subplots(len(MEASURES), len(points), squeeze=False)
    for column, (axis, of_axis) in enumerate(points.items()):
        for row, (measure, label) in enumerate(MEASURES.items()):
            axes = grid[row, column]
            sizes = [point.size for point in of_axis]
            for name in of_axis[0].figures[measure]:
                colour = COLOURS.get(name)
                rounds = [point.figures[measure][name] for point in of_axis]
                axes.plot(
                    sizes, list(map(statistics.median, rounds)), "o-", color=colour, label=name
                )
                axes.fill_between(
                    sizes, list(map(min, rounds)), list(map(max, rounds)), color=colour, alpha=0.2
                )
            axes.set_xscale("log")
            axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
            axes.minorticks_off()
            axes.set_ylim(bottom=0)
            axes.set_title(label, loc="left", fontsize=10)
            axes.grid(alpha=0.3)
            axes.legend()
        grid[-1, column].set_xlabel(axis)
    figure.savefig(path, dpi=80)


def _bars(axes: Axes, comparisons: Sequence[Comparison]) -> None:
    found = series(comparisons)
    titles = list(dict.fromkeys(result.title for result in comparisons))
    width = 0.8 / len(found)
    for number, (name, by_title) in enumerate(found.items()):
        places = [at + number * width for at, title in enumerate(titles) if title in by_title]
        rounds = [by_title[title] for title in titles if title in by_title]
        middle = list(map(statistics.median, rounds))
        spread = [
            [median - min(figures) for median, figures in zip(middle, rounds, strict=True)],
            [max(figures) - median for median, figures in zip(middle, rounds, strict=True)],
        ]
        axes.bar(places, middle, width, yerr=spread, label=name, color=COLOURS.get(name))
    axes.set_yscale("log")
    lowest = min(min(map(min, by_title.values())) for by_title in found.values())
    axes.set_ylim(bottom=10 ** math.floor(math.log10(lowest)))
    axes.set_xticks(
        [at + 0.4 - width / 2 for at in range(len(titles))],
        [title.replace(", ", ",\n") for title in titles],
    )
    axes.set_ylabel(comparisons[0].unit)
    axes.legend(ncols=len(found), fontsize=8, loc="lower right", bbox_to_anchor=(1, 1))

"""The time-line of a run as a picture: operations a second, with the faults marked."""

from __future__ import annotations

import collections
from collections.abc import Iterable
from pathlib import Path

from matplotlib.figure import Figure

from .run import Result
from .schedule import FAULTS, SERVERS

__all__ = ["draw"]


def draw(result: Result, path: Path) -> None:
    """Puts, messages read and faults over time."""
    history = result.history
    figure = Figure(figsize=(13, 8), layout="constrained")
    puts, reads, faults = figure.subplots(3, 1, sharex=True, height_ratios=(3, 2, 3))
    for outcome, colour in (("ok", "tab:green"), ("fail", "tab:orange"), ("unknown", "tab:red")):
        times = [p.completed_s or p.invoked_s for p in history.puts if p.outcome == outcome]
        puts.plot(*_rate(times, result), label=outcome, color=colour, lw=1)
    puts.set_ylabel("puts a second")
    puts.legend(loc="upper right")
    read = (read.at_s for view in history.views for read in view.reads)
    reads.plot(*_rate(read, result), color="tab:blue", lw=1)
    reads.set_ylabel("messages read a second")
    kinds = [kind for kind in FAULTS if any(event.fault == kind for event in result.events)]
    for event in result.events:
        began_s, ended_s = event.began_s - result.began_s, event.ended_s - result.began_s
        of_servers = FAULTS[event.fault].track == SERVERS
        colour = "tab:red" if of_servers else "tab:purple"
        faults.barh(
            kinds.index(event.fault), max(ended_s - began_s, 0.5), left=began_s, color=colour
        )
        if of_servers:
            for axes in (puts, reads):
                axes.axvspan(began_s, ended_s, color=colour, alpha=0.12, lw=0)
    faults.set_yticks(range(len(kinds)), kinds)
    faults.invert_yaxis()
    faults.grid(axis="y", alpha=0.3)
    faults.set_xlabel(f"seconds (seed {result.options.seed})")
    figure.savefig(path, dpi=80)


def _rate(times: Iterable[float], result: Result) -> tuple[list[int], list[int]]:
    seconds = range(int(result.ended_s - result.began_s) + 1)
    counts = collections.Counter(int(time - result.began_s) for time in times)
    return list(seconds), [counts[second] for second in seconds]

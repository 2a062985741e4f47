"""What a run tells: figures, the longest stalls, and a picture."""

from __future__ import annotations

import collections
import itertools
import json
from collections.abc import Iterable
from pathlib import Path

from .checker import KINDS
from .run import Result

__all__ = ["draw", "figures", "stalls", "summary"]


def stalls(result: Result) -> dict[str, float]:
    """For each kind of fault the longest time without any ok put, in seconds.

    A stall counts for the first fault that began in it, else for the last one before it.
    """
    ok = sorted(put.completed_s for put in result.history.puts if put.outcome == "ok")
    ends = [time for time in ok if time is not None]
    longest: dict[str, float] = collections.defaultdict(float)
    for before, after in itertools.pairwise(ends):
        within = [e for e in result.events if before - 0.5 <= e.began_s <= after]
        earlier = [e for e in result.events if e.began_s < before]
        if within or earlier:
            event = within[0] if within else earlier[-1]
            longest[event.fault] = max(longest[event.fault], after - before)
    return dict(longest)


def figures(result: Result) -> dict[str, object]:
    """The run in numbers."""
    outcomes = collections.Counter(put.outcome for put in result.history.puts)
    faults = collections.Counter(event.fault for event in result.events)
    kinds = collections.Counter(violation.kind for violation in result.violations)
    return {
        "seed": result.options.seed,
        "duration_s": round(result.ended_s - result.began_s),
        "puts": dict(outcomes),
        "messages": sum(map(len, result.history.final.values())),
        "reads": sum(map(len, result.history.reads.values())),
        "faults": dict(faults),
        "violations": {kind: kinds[kind] for kind in KINDS},
        "longest_stall_s": {k: round(v, 1) for k, v in sorted(stalls(result).items())},
    }


def summary(result: Result) -> str:
    """The verdict in words."""
    verdict = "nothing lost, doubled or reordered"
    if result.violations:
        shown = "\n".join(f"  {v.kind}: {v.text}" for v in result.violations[:50])
        verdict = f"{len(result.violations)} VIOLATIONS\n{shown}"
    return f"{json.dumps(figures(result), indent=2)}\nseed {result.options.seed}: {verdict}"


def draw(result: Result, path: Path) -> None:
    """Operations a second with the faults marked, as a picture."""
    import matplotlib as mpl  # noqa: PLC0415  (slow to import)

    mpl.use("Agg")
    import matplotlib.pyplot as plt  # noqa: PLC0415

    puts = result.history.puts
    figure, (above, below) = plt.subplots(
        2, 1, figsize=(14, 8), sharex=True, height_ratios=(2, 1), layout="constrained"
    )
    for outcome, colour in (("ok", "tab:green"), ("fail", "tab:orange"), ("unknown", "tab:red")):
        times = [p.completed_s or p.invoked_s for p in puts if p.outcome == outcome]
        above.plot(*_rate(times, result), label=f"puts: {outcome}", color=colour)
    reads = [read.at_s for reader in result.history.reads.values() for read in reader]
    below.plot(*_rate(reads, result), label="messages read", color="tab:blue")
    kinds = sorted({event.fault for event in result.events})
    colours = dict(zip(kinds, plt.cm.tab20.colors, strict=False))
    for event in result.events:
        for axes in (above, below):
            axes.axvspan(
                event.began_s - result.began_s,
                max(event.ended_s, event.began_s + 0.5) - result.began_s,
                color=colours[event.fault],
                alpha=0.35,
                lw=0,
            )
        above.text(
            event.began_s - result.began_s, above.get_ylim()[1], event.fault,
            rotation=60, fontsize=7, va="bottom",
        )  # fmt: skip
    above.set_ylabel("a second")
    above.legend(loc="upper right")
    below.set_ylabel("a second")
    below.set_xlabel(f"seconds (seed {result.options.seed})")
    below.legend(loc="upper right")
    figure.savefig(path)
    plt.close(figure)


def _rate(times: Iterable[float], result: Result) -> tuple[list[int], list[int]]:
    seconds = range(int(result.ended_s - result.began_s) + 1)
    counts = collections.Counter(int(time - result.began_s) for time in times)
    return list(seconds), [counts[second] for second in seconds]

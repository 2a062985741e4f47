"""Running rivals in turns, and what comes out of it."""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Callable, Mapping

__all__ = ["Comparison", "compare", "rate"]


@dataclasses.dataclass(frozen=True)
class Comparison:
    """A contender against a rival: figures of each round, and their ratio."""

    title: str
    contender: str
    rival: str
    unit: str
    contender_figures: tuple[float, ...]
    rival_figures: tuple[float, ...]
    goal: float
    at_most: bool = False

    @property
    def ratios(self) -> list[float]:
        """Contender over rival, round by round."""
        pairs = zip(self.contender_figures, self.rival_figures, strict=True)
        return [contender / rival for contender, rival in pairs]

    @property
    def ratio(self) -> float:
        """The median of the rounds."""
        return statistics.median(self.ratios)

    @property
    def reached(self) -> bool:
        """Whether the goal is met."""
        return self.ratio <= self.goal if self.at_most else self.ratio >= self.goal


def rate(work: Callable[[], int]) -> Callable[[], float]:
    """Turn work that returns how many messages it did into messages a second."""

    def timed() -> float:
        start = time.perf_counter()
        messages = work()
        return messages / (time.perf_counter() - start)

    return timed


def compare(runs: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, tuple[float, ...]]:
    """Call each in turn, twice unmeasured and then `rounds` times; the figures of each.

    The servers compile their code while they run: a first round measures that.
    """
    for run in [*runs.values()] * 2:
        run()
    figures: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            figures[name].append(run())
    return {name: tuple(values) for name, values in figures.items()}

"""Running rivals in turns, and what comes out of it."""

from __future__ import annotations

import dataclasses
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import psutil

__all__ = ["WARM_ROUNDS", "Comparison", "Figures", "await_calm", "compare", "interleave", "rate"]

WARM_ROUNDS = 2
CALM_S, CALM_S_MAX = 2.0, 60.0
CALM_PERCENT = 10.0

Figures = Mapping[str, tuple[float, ...]]
"""Of each that ran, the figure of each round."""

Figure = TypeVar("Figure")


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


def await_calm() -> None:
    """Wait until the machine is idle, for a minute at most.

    What came before leaves the server with flushes and compactions to do.
    """
    ends_s = time.monotonic() + CALM_S_MAX
    while psutil.cpu_percent(CALM_S) > CALM_PERCENT and time.monotonic() < ends_s:
        pass


def compare(runs: Mapping[str, Callable[[], float]], rounds: int) -> Figures:
    """Call each in turn, twice unmeasured and then `rounds` times; the figures of each.

    The servers compile their code while they run: a first round measures that.
    """
    figures: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(-WARM_ROUNDS, rounds):
        for name, run in runs.items():
            figure = run()
            if number >= 0:
                figures[name].append(figure)
    return {name: tuple(values) for name, values in figures.items()}


def interleave(
    steps: Mapping[str, Callable[[], object]],
    *,
    times: int,
    rounds: int,
    prepare: Callable[[], None],
    figure: Callable[[Sequence[float]], Figure],
) -> dict[str, tuple[Figure, ...]]:
    """As `compare`, but small steps take turns in each round, so many times.

    What comes over a server now and then, a garbage collection or a flush, then meets all alike.

    Args:
        steps: what is timed.
        times: how often each comes in a round.
        rounds: measured rounds.
        prepare: called before each round, not timed.
        figure: makes the figure of a round from the seconds that the steps took.
    """
    figures: dict[str, list[Figure]] = {name: [] for name in steps}
    order = random.Random(0)  # Of two neighbours neither always pays for what the other left.
    for number in range(-WARM_ROUNDS, rounds):
        prepare()
        took: dict[str, list[float]] = {name: [] for name in steps}
        for _ in range(times):
            for name in order.sample(list(steps), len(steps)):
                start = time.perf_counter()
                steps[name]()
                took[name].append(time.perf_counter() - start)
        if number >= 0:
            for name, seconds in took.items():
                figures[name].append(figure(seconds))
    return {name: tuple(values) for name, values in figures.items()}

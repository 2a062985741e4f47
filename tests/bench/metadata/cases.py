"""What is measured on either store: how long an operation takes, and updates a second."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from hqueue.metadata.managers import SubscriptionData
from hqueue.metadata.ports import Version

from ..measure import Comparison, compare, interleave
from .population import Population, Subscription, subscription_of, updates

__all__ = ["LATENCIES", "Latency", "Work", "flatness", "latencies", "update_rates"]

TIMES = 2_000
UPDATES = 10_000
WAIT_S = 120.0

Latency = tuple[float, float]
"""The median and the 99th percentile, in milliseconds."""

LATENCIES: Mapping[str, Callable[[Population], None]] = {
    "read a subscription": Population.read,
    "update a state": Population.update,
    "read all of a topic": Population.read_all,
}
"""What is asked of a store, one after the other."""


class Work(NamedTuple):
    """How much to do."""

    rounds: int
    """Measured rounds of each comparison."""
    scale: float
    """1 for the full amount; less for a quick look."""

    def many(self, number: int) -> int:
        """An amount, scaled."""
        return max(1, int(number * self.scale))


Send = Callable[[SubscriptionData], float]
"""Writes this into each of some subscriptions, without the library; how many a second."""


def latencies(
    populations: Mapping[str, Population], amount: Work
) -> dict[str, dict[str, tuple[Latency, ...]]]:
    """How long each operation takes, in turns; by operation and population, of each round."""
    times = amount.many(TIMES)

    def prepare() -> None:
        for population in populations.values():
            population.prepare(times)

    return {
        operation: interleave(
            {name: lambda work=work, each=each: work(each) for name, each in populations.items()},
            times=times,
            rounds=amount.rounds,
            prepare=prepare,
            figure=_latency,
        )
        for operation, work in LATENCIES.items()
    }


def _latency(seconds: Sequence[float]) -> Latency:
    ordered = sorted(seconds)
    return ordered[len(ordered) // 2] * 1e3, ordered[len(ordered) * 99 // 100] * 1e3


def flatness(
    found: Mapping[str, Mapping[str, Sequence[Latency]]], many: str, few: str
) -> Iterator[Comparison]:
    """The latencies among many topics, against those among few."""
    for operation, by_population in found.items():
        for place, name in enumerate(("p50", "p99")):
            yield Comparison(
                f"{operation}, {name}", many, few, "ms",
                tuple(each[place] for each in by_population[many]),
                tuple(each[place] for each in by_population[few]),
                1.5, at_most=True,
            )  # fmt: skip


def update_rates(
    amount: Work,
    population: Population,
    store: str,
    rival: str,
    sender: Callable[[Mapping[Subscription, Version]], Send],
) -> Comparison:
    """Updates of state from one process, many under way, against bare ones.

    Args:
        amount: how much to do.
        population: whose subscriptions are updated.
        store: the store's name.
        rival: what the bare ones are.
        sender: prepares them, for subscriptions of these versions.
    """
    number = min(amount.many(UPDATES), population.subscriptions // 2)
    chosen = [*population.choose(2 * number).items()]
    known = dict(chosen[:number])
    send = sender(dict(chosen[number:]))
    states = itertools.cycle(map(subscription_of, range(100)))

    def update() -> float:
        start = time.perf_counter()
        futures = updates(population.metadata, known, next(states))
        written = [future.result(WAIT_S) for future in futures]
        rate = number / (time.perf_counter() - start)
        known.update(dict(zip(known, written, strict=True)))
        return rate

    figures = compare({"ours": update, "bare": lambda: send(next(states))}, amount.rounds)
    return Comparison(
        f"updates of state, {store}", "SubscriptionDataManager", rival,
        "updates/s", figures["ours"], figures["bare"], 0.8,
    )  # fmt: skip

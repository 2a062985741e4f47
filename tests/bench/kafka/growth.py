"""How the cost grows with the partitions of a log, and with what lies in it."""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

from ..measure import Figures, compare, rate
from .library import Log
from .payloads import PAYLOADS

if TYPE_CHECKING:
    from .cases import Arena

__all__ = ["AXES", "MEASURES", "Point", "by_messages", "by_partitions"]

A_BATCH = 1_000
READ_MAX = 1_000_000
PARTITIONS = (1, 8, 64, 512)
MESSAGES = (10_000, 1_000_000, 20_000_000)

MEASURES: Mapping[str, str] = {
    "read": "consume from the oldest on, msg/s",
    "last": "read the newest message, p50, ms",
    "one": "produce one and wait, p50, ms",
    "batches": "produce, 1,000 a batch, msg/s",
}


@dataclasses.dataclass(frozen=True)
class Point:
    """What was measured at one size: of each measure each library's figures, of every round."""

    size: int
    figures: Mapping[str, Figures]


def by_partitions(arena: Arena) -> Iterator[Point]:
    """Logs of ever more partitions; a thousand messages in each, at least."""
    for partitions in PARTITIONS:
        number = arena.bench.many(max(200_000, partitions * A_BATCH))
        yield Point(partitions, _measured(arena, partitions, number))


def by_messages(arena: Arena) -> Iterator[Point]:
    """Logs of four partitions, with ever more messages."""
    for number in map(arena.bench.many, MESSAGES):
        yield Point(number, _measured(arena, 4, number))


AXES: Mapping[str, Callable[[Arena], Iterator[Point]]] = {
    "partitions": by_partitions,
    "messages in the log": by_messages,
}


def _measured(arena: Arena, partitions: int, number: int) -> dict[str, Figures]:
    logs = {lib.name: lib.fresh(partitions) for lib in (arena.ours, arena.confluent)}
    values = PAYLOADS[0].values(min(number, 200_000))
    some = values[: min(arena.bench.many(100_000), number)]
    times = arena.bench.many(100)
    works: dict[str, Callable[[Log], Callable[[], float]]] = {
        "read": lambda log: rate(partial(log.read, min(number, READ_MAX))),
        "one": lambda log: partial(_median_ms, partial(log.put_one, some[0]), times),
        "last": lambda log: partial(_median_ms, log.read_last, times),
        "batches": lambda log: rate(partial(log.put_batches, some, A_BATCH)),
    }
    try:
        for log in logs.values():
            for left in range(number, 0, -len(values)):
                log.put_batches(values[:left], A_BATCH)
        return {
            measure: compare({name: work(log) for name, log in logs.items()}, arena.bench.rounds)
            for measure, work in works.items()
        }
    finally:
        for log in logs.values():
            log.close()


def _median_ms(work: Callable[[], object], times: int) -> float:
    took: list[float] = []
    for _ in range(times):
        start = time.perf_counter()
        work()
        took.append(time.perf_counter() - start)
    return statistics.median(took) * 1e3

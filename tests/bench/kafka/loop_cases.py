"""What is measured in an event loop: beside aiokafka, confluent-kafka's, and calls that block."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from ..cases import Bench
from ..measure import Comparison, Figures, compare, rate
from .in_loops import Aiokafka, ConfluentInLoop, HQueueInLoop, Loop, LoopLog
from .ours import HQueue, HQueueLog
from .payloads import Payload

__all__ = ["loops"]

MESSAGES, COLUMNS = "hqueue.aio", "hqueue.aio, Arrow"
BLOCKING, BLOCKING_COLUMNS = "hqueue, blocking", "hqueue, blocking, Arrow"
AT_ONCE = 1_000
ONES = 300
RIVALS_GOAL, BATCHES_GOAL = 1.0, 3.0
"""At least, beside aiokafka: where messages are single, and where they are batches or columns."""
BLOCKING_GOAL = 0.8
"""At least, beside the blocking calls: a turn of a loop costs a little."""

Runs = Mapping[str, Callable[[], float]]


def loops(bench: Bench, ours: HQueue, address: str, payload: Payload) -> Iterator[Comparison]:
    """Batches, single messages and reads, by one event loop."""
    loop = Loop()
    log = ours.fresh()
    name = f"{log.name}-in-loop"
    logs: dict[str, LoopLog] = {}
    try:
        logs[MESSAGES] = loop.run(HQueueInLoop(bench.client.settings, name).open())
        logs["aiokafka"] = loop.run(Aiokafka(address).open())
        logs["confluent-kafka, asyncio"] = loop.run(ConfluentInLoop(address).open())
        yield from _measured(bench, loop, log, logs, payload)
    finally:
        for each in logs.values():
            loop.run(each.close())
        log.close()
        loop.close()


def _measured(
    bench: Bench,
    loop: Loop,
    log: HQueueLog,
    logs: Mapping[str, LoopLog],
    payload: Payload,
) -> Iterator[Comparison]:
    mine = logs[MESSAGES]
    assert isinstance(mine, HQueueInLoop)
    values = payload.values(bench.many(payload.messages))
    some = values[: max(1, len(values) // 10)]
    ones, at_once = values[: bench.many(ONES)], values[:AT_ONCE]

    def by_loop(work: Callable[[], Coroutine[Any, Any, int]]) -> Callable[[], float]:
        return rate(lambda: loop.run(work()))

    # First what is read: only that is in the logs then, as often as rounds are written.
    for each in logs.values():
        loop.run(each.put_batches(values))
    log.put_batches(values)
    runs = {n: by_loop(partial(each.read, len(values))) for n, each in logs.items()}
    runs[COLUMNS] = by_loop(partial(mine.read_columns, len(values)))
    runs[BLOCKING] = rate(partial(log.read, len(values)))
    runs[BLOCKING_COLUMNS] = rate(partial(log.read_columns, len(values)))
    aims = {MESSAGES: BATCHES_GOAL, COLUMNS: BATCHES_GOAL}
    yield from _against(f"consume, {payload.name}", compare(runs, bench.rounds), aims)

    runs = {n: by_loop(partial(each.put_batches, values)) for n, each in logs.items()}
    runs[COLUMNS] = by_loop(partial(mine.put_columns, values))
    runs[BLOCKING] = rate(partial(log.put_batches, values))
    runs[BLOCKING_COLUMNS] = rate(partial(log.put_columns, values))
    yield from _against(f"batches, {payload.name}", compare(runs, bench.rounds), aims)

    runs = {n: by_loop(partial(each.put_each, some)) for n, each in logs.items()}
    runs[BLOCKING] = rate(partial(log.put_each, some))
    aims = {MESSAGES: RIVALS_GOAL}
    yield from _against(f"one by one, {payload.name}", compare(runs, bench.rounds), aims)

    runs = {n: by_loop(partial(each.put_at_once, at_once)) for n, each in logs.items()}
    figures = compare(runs, bench.rounds)
    yield from _against(f"{AT_ONCE:,} puts at once, {payload.name}", figures, aims)

    medians = {n: partial(loop.run_median, each.put_one, ones) for n, each in logs.items()}
    medians[BLOCKING] = partial(_median_ms, log.put_one, ones)
    figures = compare(medians, bench.rounds)
    yield from _against(f"one message, {payload.name}", figures, aims, unit="ms")


def _median_ms(put: Callable[[bytes], object], values: Sequence[bytes]) -> float:
    took_s = []
    for value in values:
        start = time.perf_counter()
        put(value)
        took_s.append(time.perf_counter() - start)
    return statistics.median(took_s) * 1e3


def _against(
    title: str, figures: Figures, aims: Mapping[str, float], *, unit: str = "msg/s"
) -> Iterator[Comparison]:
    """Each way in a loop beside each rival, and beside the same way that blocks."""
    at_most = unit == "ms"
    own = {MESSAGES: BLOCKING, COLUMNS: BLOCKING_COLUMNS}
    for contender, goal in aims.items():
        for rival in figures:
            if rival in own or (rival in own.values() and rival != own[contender]):
                continue
            aim = BLOCKING_GOAL if rival in own.values() else goal
            yield Comparison(
                title, contender, rival, unit, figures[contender], figures[rival],
                1 / aim if at_most else aim, at_most,
            )  # fmt: skip

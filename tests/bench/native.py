"""HBase's own RPC against the gateways, from one process to one server."""

from __future__ import annotations

import contextlib
import os
import statistics
from collections.abc import Callable, Iterator, Mapping

import hqueue
from hqueue import Message, Messages, Queue
from hqueue.connecting import open_store
from hqueue.settings.connection import GATEWAYS, NATIVE
from hqueue.settings.limits import MESSAGE_ID_MAX

from .cases import Bench
from .measure import Comparison, compare, interleave, rate

__all__ = ["NATIVE_CASES", "latency"]

SIZES = ((100, 10_000, 100), (1_000, 2_000, 100), (10_000, 200, 100))
"""Bytes of a value, messages of a batch, and batches."""

ABSENT = 256
"""Rows that a follower asks for at once."""


def native(bench: Bench) -> Iterator[Comparison]:
    """One message, single rows, batches, scans and columns: over either way to the same queues."""
    with hqueue.connect(bench.settings(GATEWAYS)) as client:
        yield from _one(bench, client)
        yield from _rows(bench)
        for value_bytes, a_batch, batches in SIZES:
            name = f"native-{value_bytes}"
            ways = {NATIVE: bench.queue(name, partitions=1)}
            ways[GATEWAYS] = client.queue(ways[NATIVE].name)
            values = [os.urandom(value_bytes) for _ in range(a_batch)]
            messages, count = Messages("topic", values), bench.many(batches)
            title = f"{value_bytes:,} bytes"
            small = value_bytes < 1_000
            put = _putting(messages, count)
            yield _compared(bench, f"batches, {title}", ways, put, 1.0 if small else 1.4)
            yield _compared(bench, f"scan, {title}", ways, _scan, 1.0 if small else 2.0)
            yield _compared(bench, f"Arrow, {title}", ways, _columns, 1.7)


def _one(bench: Bench, client: hqueue.Client) -> Iterator[Comparison]:
    queue = bench.queue("native-one", partitions=2)
    ways = {NATIVE: queue, GATEWAYS: client.queue(queue.name)}
    message = Message("topic", bytes(100))
    # A partition each: in one they would contend for places.
    steps = {
        name: lambda way=way, partition=partition: way.put(message, partition=partition)
        for partition, (name, way) in enumerate(ways.items())
    }
    yield latency(bench, "one message", steps, 300, 0.67)


def _rows(bench: Bench) -> Iterator[Comparison]:
    """What is asked of single rows: where a log ends, and whether something came."""
    queue = bench.queue("native-rows", partitions=1)
    for _ in range(100):
        queue.put(Message("topic", bytes(100)), partition=0)
    slots = [(0, MESSAGE_ID_MAX - number) for number in range(ABSENT)]
    with contextlib.ExitStack() as opened:
        logs = {}
        for way in (NATIVE, GATEWAYS):
            store = opened.enter_context(contextlib.closing(open_store(bench.settings(way))))
            logs[way] = store.log(queue.name)
        newest = {way: lambda log=log: log.newest(0, MESSAGE_ID_MAX) for way, log in logs.items()}
        yield latency(bench, "the newest header", newest, 500, 0.45)
        absent = {way: lambda log=log: log.get(slots, None) for way, log in logs.items()}
        yield latency(bench, f"{ABSENT} absent rows", absent, 200, 0.8)


def latency(
    bench: Bench, title: str, steps: Mapping[str, Callable[[], object]], times: int, goal: float
) -> Comparison:
    """What a step takes, in turns by either way: medians."""
    figures = interleave(
        steps,
        times=bench.many(times),
        rounds=bench.rounds,
        prepare=lambda: None,
        figure=lambda seconds: statistics.median(seconds) * 1e3,
    )
    return Comparison(
        f"{title}, p50", NATIVE, GATEWAYS, "ms", figures[NATIVE], figures[GATEWAYS], goal,
        at_most=True,
    )  # fmt: skip


def _compared(
    bench: Bench, title: str, ways: dict[str, Queue], work: Callable[[Queue], int], goal: float
) -> Comparison:
    runs = {name: rate(lambda way=way: work(way)) for name, way in ways.items()}
    figures = compare(runs, bench.rounds)
    return Comparison(title, NATIVE, GATEWAYS, "msg/s", figures[NATIVE], figures[GATEWAYS], goal)


def _putting(messages: Messages, batches: int) -> Callable[[Queue], int]:
    def put(queue: Queue) -> int:
        for _ in range(batches):
            queue.put(messages, partition=0)
        return batches * len(messages)

    return put


def _scan(queue: Queue) -> int:
    with queue.scan(partition=0) as scanner:
        return sum(1 for _ in scanner)


def _columns(queue: Queue) -> int:
    with queue.scan(partition=0) as scanner:
        return sum(batch.num_rows for batch in scanner.arrow_batches())


NATIVE_CASES: dict[str, Callable[[Bench], Iterator[Comparison]]] = {"native": native}

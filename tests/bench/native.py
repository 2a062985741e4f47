"""HBase's own RPC against the gateways, from one process to one server."""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Iterator

import hqueue
from hqueue import Message, Messages, Queue

from .cases import Bench
from .measure import Comparison, compare, interleave, rate

__all__ = ["NATIVE_CASES"]

SIZES = ((100, 10_000, 100), (1_000, 2_000, 100), (10_000, 200, 100))
"""Bytes of a value, messages of a batch, and batches."""


def native(bench: Bench) -> Iterator[Comparison]:
    """One message, batches, scans and columns: over either way to the same queues."""
    with hqueue.connect(hbase="native", zookeeper=bench.client.settings.zookeeper) as client:
        yield from _one(bench, client)
        for value_bytes, a_batch, batches in SIZES:
            name = f"native-{value_bytes}"
            ways = {"gateways": bench.queue(name, partitions=1)}
            ways["native"] = client.queue(ways["gateways"].name)
            values = [os.urandom(value_bytes) for _ in range(a_batch)]
            messages, count = Messages("topic", values), bench.many(batches)
            title = f"{value_bytes:,} bytes"
            small = value_bytes < 1_000
            put = _putting(messages, count)
            yield _compared(bench, f"batches, {title}", ways, put, 1.0 if small else 1.4)
            yield _compared(bench, f"scan, {title}", ways, _scan, 1.0 if small else 2.0)
            yield _compared(bench, f"Arrow, {title}", ways, _columns, 1.7)


def _one(bench: Bench, client: hqueue.Client) -> Iterator[Comparison]:
    queue = bench.queue("native-one", partitions=1)
    ways = {"gateways": queue, "native": client.queue(queue.name)}
    message = Message("topic", bytes(100))
    figures = interleave(
        {name: lambda way=way: way.put(message, partition=0) for name, way in ways.items()},
        times=bench.many(300),
        rounds=bench.rounds,
        prepare=lambda: None,
        figure=lambda seconds: statistics.median(seconds) * 1e3,
    )
    yield Comparison(
        "one message, p50", "native", "gateways", "ms",
        figures["native"], figures["gateways"], 0.67, at_most=True,
    )  # fmt: skip


def _compared(
    bench: Bench, title: str, ways: dict[str, Queue], work: Callable[[Queue], int], goal: float
) -> Comparison:
    runs = {name: rate(lambda way=way: work(way)) for name, way in ways.items()}
    figures = compare(runs, bench.rounds)
    return Comparison(
        title, "native", "gateways", "msg/s", figures["native"], figures["gateways"], goal
    )


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

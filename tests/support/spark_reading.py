"""Queues in memory that Spark's part reads, without Spark."""

from __future__ import annotations

from typing import Any

from hqueue import Message, Queue
from hqueue.format import rowkey
from pyspark_hqueue.reading.plan import Position
from pyspark_hqueue.reading.read_options import ReadOptions
from tests.support.backends import MemoryBackend

__all__ = ["collect", "options_of", "put"]


def options_of(kind: Any = "stream", **given: object) -> ReadOptions:
    texts = {name: str(value) for name, value in given.items()}
    return ReadOptions.of({"queue": "events", **texts}, kind)


def put(queue: Queue, *sizes: int, topic: str = "t", partition: int = 0) -> list[Position]:
    """Put batches; where each of them begins, and the end."""
    for size in sizes:
        queue.put([Message(topic, b"v")] * size, partition=partition)
    found = [
        Position(int(header.base), header.ordinal)
        for header in queue.headers(partition, None, None)
    ]
    (offsets,) = queue.offsets([partition])
    return [*found, Position(int(offsets.end), offsets.end_ordinal)]


def collect(memory: MemoryBackend, partition: int, *slots: int) -> None:
    """Let HBase collect rows of the queue: their headers, too."""
    for slot in slots:
        memory.raw.delete_cells("events", rowkey.encode(partition, slot))

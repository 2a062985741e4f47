"""The ranges of a stream's batches: the same each time, and whole."""

from __future__ import annotations

import hqueue
from hqueue import Message, Queue
from hqueue.format import rowkey
from pyspark_hqueue.reading.options import ReadOptions
from pyspark_hqueue.reading.plan import Position, ranges_between
from tests.support.backends import MemoryBackend


def options_of(**given: object) -> ReadOptions:
    texts = {name: str(value) for name, value in given.items()}
    return ReadOptions.of({"queue": "events", **texts}, "stream")


def put(queue: Queue, *sizes: int, partition: int = 0) -> list[Position]:
    """Put batches; where each of them begins, and the end."""
    for size in sizes:
        queue.put([Message("t", b"v")] * size, partition=partition)
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


def test_a_first_batch_that_is_repeated_has_the_same_ranges_when_some_of_it_was_collected(
    memory: MemoryBackend, memory_client: hqueue.Client
) -> None:
    queue = memory_client.create_queue("events", partitions=1)
    places = put(queue, 10, 10, 10)
    options = options_of(startingOffsets="earliest")
    start, stop = {0: Position(0, 0)}, {0: places[-1]}
    before = ranges_between(queue, start, stop, {}, options, first=True)
    collect(memory, 0, 0)
    assert ranges_between(queue, start, stop, {}, options, first=True) == before
    assert [range_.messages for range_ in before] == [30]

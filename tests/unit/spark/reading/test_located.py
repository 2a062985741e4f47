"""How batches are divided into tasks, and where those should run."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest

import hqueue
from hqueue import Message
from pyspark_hqueue.reading import located
from pyspark_hqueue.reading.plan import Range, Task
from tests.support.backends import MemoryBackend

OPTIONS = {"maxRecordsPerPartition": 20_000}


@pytest.fixture
def ranges(memory_client: hqueue.Client) -> list[Range]:
    """Those of a batch: all that is in a queue of three regions."""
    queue = memory_client.create_queue("events", partitions=3)
    for partition, puts in enumerate([4, 1, 1]):
        for _ in range(puts):
            queue.put([Message("t", b"v")] * 10_000, partition=partition)
    return [
        Range(each.partition, int(each.beginning or 0), int(each.end), 0, each.end_ordinal, True)
        for each in queue.offsets()
    ]


def placed_batch(
    monkeypatch: pytest.MonkeyPatch, ranges: Sequence[Range], cores: int
) -> list[tuple[Task, str]]:
    """The tasks that `foreach_batch` makes of a batch, and where each should run."""
    placed: list[tuple[Task, str]] = []
    monkeypatch.setattr(located, "_placed", lambda _, tasks: placed.extend(tasks) or MagicMock())
    spark = MagicMock()
    spark.sparkContext.defaultParallelism = cores
    located.foreach_batch(spark, "events", lambda frame, batch: None, **OPTIONS)
    stream = spark.readStream.format().options().load().writeStream
    (run,) = stream.foreachBatch.call_args.args
    rows = [SimpleNamespace(asDict=lambda each=each: dataclasses.asdict(each)) for each in ranges]
    run(SimpleNamespace(collect=lambda: rows), 0)
    return placed


def test_a_batch_has_the_same_tasks_wherever_regions_are_and_however_many_cores(
    memory: MemoryBackend, ranges: list[Range], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = placed_batch(monkeypatch, ranges, cores=1)
    memory.raw.move("events", 1, "other.test", 1)
    after = placed_batch(monkeypatch, ranges, cores=16)
    assert [task.ranges for task, _ in after] == [task.ranges for task, _ in before]
    assert [task.messages for task, _ in after] == [20_000] * 3


def test_a_task_prefers_the_host_that_has_the_most_of_it(
    memory: MemoryBackend, ranges: list[Range], monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.raw.move("events", 0, "first.test", 1)
    memory.raw.move("events", 2, "last.test", 1)
    ranges[2] = dataclasses.replace(ranges[2], messages=ranges[2].messages + 4)
    placed = placed_batch(monkeypatch, ranges, cores=4)
    assert [[r.partition for r in task.ranges] for task, _ in placed] == [[0], [0], [0, 1], [1, 2]]
    assert [host for _, host in placed] == ["first.test"] * 3 + ["last.test"]

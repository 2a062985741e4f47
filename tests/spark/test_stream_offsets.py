"""The offsets that the stream reader names, called as Spark calls it in each version: on a real
queue, without a JVM.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.cloudpickle import dumps, loads
from pyspark.sql.streaming.datasource import ReadAllAvailable

import hqueue
from hqueue import local
from pyspark_hqueue import DefaultSource
from pyspark_hqueue.reading.loss import DataLossError
from pyspark_hqueue.reading.schema import COLUMNS
from pyspark_hqueue.reading.stream import QueueStreamReader
from tests.support.waiting import wait_for

from .queries import put

MakeQueue = Callable[..., hqueue.Queue]
Open = Callable[..., "Driven"]


class Driven:
    """A reader in the hands of a Spark: offsets go through JSON, tasks through pickles."""

    def __init__(self, options: dict[str, str]) -> None:
        self._options = options
        self.reader: QueueStreamReader = DefaultSource(options).streamReader(COLUMNS)

    def initial(self) -> dict[str, Any]:
        return _through_json(self.reader.initialOffset())

    def latest(self, *arguments: Any) -> dict[str, Any]:
        return _through_json(self.reader.latestOffset(*arguments))

    def admitted(self, start: dict[str, Any]) -> dict[str, Any]:
        return self.latest(start, self.reader.getDefaultReadLimit())

    def values(self, start: dict[str, Any], end: dict[str, Any]) -> list[str]:
        """What lies between two offsets, read in another process's way."""
        elsewhere = loads(dumps(Driven(self._options).reader))
        rows = []
        for task in self.reader.partitions(start, end):
            for batch in elsewhere.read(loads(dumps(task))):
                columns = (batch.column(name).to_pylist() for name in ("partition", "id", "value"))
                rows.extend(zip(*columns, strict=True))
        return [value.decode() for _, _, value in sorted(rows)]


def _through_json(offset: dict[str, Any]) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(json.dumps(offset))
    return read


@pytest.fixture
def driven(server: local.LocalServer) -> Open:
    gateways = ",".join(map(str, server.gateways))

    def open_reader(queue: hqueue.Queue, **options: object) -> Driven:
        given = {name.lower(): str(value) for name, value in options.items()}
        return Driven({**given, "queue": queue.name, "hqueue.gateways": gateways})

    return open_reader


def test_batches_keep_their_limit_share_it_and_read_the_same_again(
    make_queue: MakeQueue, driven: Open
) -> None:
    queue = make_queue(3)
    for partition, number in enumerate([560, 1_030, 10]):
        put(queue, partition, 0, number)
    reading = driven(queue, startingOffsets="earliest", maxOffsetsPerTrigger=600)
    read: list[str] = []
    offset, sizes = reading.initial(), []
    while (end := reading.admitted(offset)) != offset:
        values = reading.values(offset, end)
        assert driven(queue, startingOffsets="earliest").values(offset, end) == values
        read += values
        sizes.append(len(values))
        if not offset:
            assert [end["partitions"][str(p)][1] for p in range(3)] == [210, 386, 4]
        offset = end
    assert sizes == [600, 600, 400]
    wanted = [f"{p}:{n}" for p, number in enumerate([560, 1_030, 10]) for n in range(number)]
    assert sorted(read) == sorted(wanted)
    assert driven(queue).latest(offset, ReadAllAvailable()) == offset


def test_a_limit_of_spark_for_all_there_is_goes_before_the_options(
    make_queue: MakeQueue, driven: Open
) -> None:
    queue = make_queue(1)
    put(queue, 0, 0, 100)
    reading = driven(queue, startingOffsets="earliest", maxOffsetsPerTrigger=10)
    end = reading.latest(reading.initial(), ReadAllAvailable())
    assert end["partitions"]["0"][1] == 100


def test_the_first_offset_says_where_the_query_began(make_queue: MakeQueue, driven: Open) -> None:
    queue = make_queue(2)
    put(queue, 0, 0, 10)
    first = driven(queue)
    start = first.initial()
    end = first.latest(start, ReadAllAvailable())
    assert end["start"] == end["partitions"]
    assert end != start, "so that Spark writes it down, though there is nothing to read"
    put(queue, 1, 0, 5)
    restarted = driven(queue)
    assert restarted.initial() == start
    assert restarted.values(start, end) == []
    later = restarted.latest(end, ReadAllAvailable())
    assert restarted.values(end, later) == [f"1:{n}" for n in range(5)]


def test_before_pyspark_4_2_there_are_no_arguments(make_queue: MakeQueue, driven: Open) -> None:
    queue = make_queue(2)
    put(queue, 0, 0, 10)
    reading = driven(queue, startingOffsets="earliest")
    end = reading.latest()  # It is asked before the query's beginning is.
    assert reading.values(reading.initial(), end) == [f"0:{n}" for n in range(10)]
    idle = reading.latest()
    assert idle["partitions"] == end["partitions"]
    assert reading.latest() == idle
    put(queue, 1, 0, 5)
    restarted = driven(queue, startingOffsets="latest")
    later = restarted.latest()
    assert restarted.values(idle, later) == [f"1:{n}" for n in range(5)]
    assert restarted.latest()["partitions"] == later["partitions"]


def test_available_now_ends_where_the_log_did_when_it_was_prepared(
    make_queue: MakeQueue, driven: Open
) -> None:
    queue = make_queue(1)
    put(queue, 0, 0, 25)
    reading = driven(
        queue, startingOffsets="earliest", maxOffsetsPerTrigger=10, minOffsetsPerTrigger=10
    )
    reading.reader.prepareForTriggerAvailableNow()
    put(queue, 0, 25, 25)
    offset, ordinals = reading.initial(), []
    while (end := reading.admitted(offset)) != offset:
        offset = end
        ordinals.append(end["partitions"]["0"][1])
    assert ordinals == [10, 20, 25]


def test_a_truncation_that_was_seen_is_counted(
    make_queue: MakeQueue, driven: Open, client: hqueue.Client
) -> None:
    queue = make_queue(1)
    put(queue, 0, 0, 10)
    reading = driven(queue, startingOffsets="earliest", minOffsetsPerTrigger=5)
    offset = reading.latest(reading.initial(), ReadAllAvailable())
    put(queue, 0, 10, 4)
    wait_for(lambda: reading.reader.reportLatestOffset()["partitions"]["0"][1] == 14, "it is seen")
    assert reading.admitted(offset) == offset, "too few to begin a batch"
    client.truncate_queue(queue.name)
    put(queue, 0, 100, 7)
    wait_for(lambda: reading.admitted(offset) != offset, "the new messages are seen")
    end = reading.admitted(offset)
    with pytest.raises(DataLossError, match="truncated") as caught:
        reading.reader.partitions(offset, end)
    assert caught.value.lost == 4
    lenient = driven(queue, failOnDataLoss=False)
    assert lenient.values(offset, end) == [f"0:{n}" for n in range(100, 107)]

"""Where a stream's batches end, and what is a loss in them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

import hqueue
from hqueue import InvalidInputError, Queue
from pyspark_hqueue.reading.loss import DataLossError
from pyspark_hqueue.reading.schema import COLUMNS
from pyspark_hqueue.reading.stream import QueueStreamReader, stream_reader
from tests.support.backends import MemoryBackend
from tests.support.doubles import SteppedClock
from tests.support.spark_reading import collect, options_of, put

from ..conftest import NOW_MS

TTL_MS = 3_600_000
FIVE = SimpleNamespace(max_rows=5)


@pytest.fixture
def queue(memory_client: hqueue.Client) -> Queue:
    return memory_client.create_queue("events", partitions=1, ttl="1h")


def reader_of(**options: object) -> QueueStreamReader:
    made = options_of(**options)
    return QueueStreamReader(made, made.columns)


def rows(reader: QueueStreamReader, start: dict[str, Any], end: dict[str, Any]) -> int:
    """How many messages a batch has."""
    tasks = reader.partitions(start, end)
    return sum(batch.num_rows for task in tasks for batch in reader.read(task))


@pytest.mark.parametrize(
    "begin",
    [{"startingOffsets": "earliest"}, {"startingTimestamp": NOW_MS - 1}, {"startingTimestamp": 1}],
)
@pytest.mark.parametrize("late_ms", [30_000, 1_000_000])
def test_a_stream_that_begins_with_what_is_left_misses_nothing_by_it(
    queue: Queue, clock: SteppedClock, begin: dict[str, object], late_ms: int
) -> None:
    """Headers are kept longer than the messages, so these count, and are not there any more."""
    put(queue, 10)
    clock.now_ms += 20_000
    put(queue, 10)
    clock.now_ms += TTL_MS + late_ms
    put(queue, 10)
    reader = reader_of(**begin)
    first = reader.latestOffset({}, FIVE)
    later = reader.latestOffset(first, None)
    assert rows(reader, {}, first) + rows(reader, first, later) == 10
    assert first["partitions"]["0"][1] < 30, "it has a limit all the same"


def test_a_stream_from_a_named_message_misses_it_when_it_expired(
    queue: Queue, clock: SteppedClock
) -> None:
    (place, _) = put(queue, 10)
    clock.now_ms += TTL_MS + 30_000
    put(queue, 10)
    reader = reader_of(startingOffsets=place.id)
    with pytest.raises(DataLossError, match="lost=10"):
        rows(reader, {}, reader.latestOffset({}, None))


def test_a_queue_made_again_with_more_partitions_is_truncated_or_read_on_whole(
    memory_client: hqueue.Client, queue: Queue, clock: SteppedClock
) -> None:
    put(queue, 10)
    strict = reader_of(startingOffsets="earliest")
    first = strict.latestOffset({}, None)
    clock.now_ms += 1_000
    memory_client.disable_queue("events")
    memory_client.delete_queue("events")
    again = memory_client.create_queue("events", partitions=3)
    for partition in range(3):
        put(again, 2, partition=partition)
    lenient = reader_of(startingOffsets="earliest", failOnDataLoss=False)
    for reader in (strict, lenient):
        reader.prepareForTriggerAvailableNow()  # It looks at the queue at once.
    later = strict.latestOffset(first, None)
    assert lenient.latestOffset(first, None) == later
    assert rows(lenient, first, later) == 6
    with pytest.raises(DataLossError, match="truncated"):
        strict.partitions(first, later)


def test_before_pyspark_4_2_a_query_that_goes_on_needs_nothing_of_where_it_began(
    memory: MemoryBackend, queue: Queue
) -> None:
    places = put(queue, 10, 10)
    begin = {"startingOffsets": places[0].id}
    first = reader_of(**begin).latestOffset()
    put(queue, 10)
    collect(memory, 0, *(place.id if place.ordinal else 0 for place in places[:-1]))
    restarted = reader_of(**begin)
    later = restarted.latestOffset()
    assert rows(restarted, first, later) == 10


def test_before_pyspark_4_2_a_query_that_begins_misses_what_is_gone(
    memory: MemoryBackend, queue: Queue
) -> None:
    places = put(queue, 10, 10)
    begin = {"startingOffsets": places[0].id}
    collect(memory, 0, 0)
    reader = reader_of(**begin)
    end = reader.latestOffset()
    for each in (reader, reader_of(**begin)):
        with pytest.raises(DataLossError, match="lost=10"):
            each.partitions({}, end)
    assert rows(reader_of(failOnDataLoss=False, **begin), {}, end) == 10
    with pytest.raises(DataLossError, match="lost=10"):
        reader_of(**begin).latestOffset({}, None)


def test_a_stream_with_wrong_options_is_refused_by_the_first_call_of_its_reader() -> None:
    reader: Any = stream_reader({"queue": "q", "endingoffsets": "latest"}, COLUMNS)
    for call in (
        reader.getDefaultReadLimit,
        reader.prepareForTriggerAvailableNow,
        reader.initialOffset,
        lambda: reader.latestOffset({}, None),
        lambda: reader.partitions({}, {}),
    ):
        with pytest.raises(InvalidInputError, match="only for a batch"):
            call()

"""The ranges of a stream's batches: the same each time, and whole."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

import hqueue
from hqueue import MessageID
from hqueue.consume.queue_reader import QueueReader
from pyspark_hqueue.reading.plan import Position, pieces_of, ranges_between, snapshot
from pyspark_hqueue.reading.stream import QueueStreamReader
from tests.support.backends import MemoryBackend
from tests.support.interposed import Interposed
from tests.support.spark_reading import collect, options_of, put


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


def test_a_count_by_a_log_that_ends_earlier_leaves_no_range_out(
    memory_client: hqueue.Client,
) -> None:
    queue = memory_client.create_queue("events", partitions=1)
    places = put(queue, 10, 10, 10)
    bounds = {
        f"{name}Offsets": str(MessageID.from_int(places[at].id))
        for name, at in (("starting", 1), ("ending", 2))
    }
    queue = cast(hqueue.Queue, Interposed(queue, count_before=lambda *_: 10))
    (range_,) = snapshot(queue, options_of("batch", **bounds))
    assert (range_.start, range_.stop) == (places[1].id, places[2].id)
    assert pieces_of(queue, [range_], options_of("batch", **bounds)) == 1


def test_a_limit_counts_in_the_checkpoint_what_the_log_that_answered_had(
    memory_client: hqueue.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = memory_client.create_queue("events", partitions=1)
    places = put(queue, 10, 10, 10)
    ended = MessageID.from_int(places[1].id)
    monkeypatch.setattr(QueueReader, "id_at", lambda *_: ended)
    options = options_of(startingOffsets="earliest", maxOffsetsPerTrigger=15)
    reader = QueueStreamReader(options, options.columns)
    end = reader.latestOffset({}, SimpleNamespace(max_rows=15))
    assert end["partitions"] == {"0": [int(ended), 10]}

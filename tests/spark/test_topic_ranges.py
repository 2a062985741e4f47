"""A topic that owners wrote, over its ranges; and control records among what is read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import hqueue
from hqueue import InvalidInputError, Message
from hqueue.errors import NoTopicPersistenceInfoError
from hqueue.store import StorePort
from pyspark_hqueue import read
from pyspark_hqueue.jobs.queue_statistics import Counting
from pyspark_hqueue.reading.read_options import ReadOptions
from tests.support.topic_owners import TopicOwner

from .queries import Stream

Load = Callable[..., DataFrame]


@pytest.fixture
def queue(
    make_queue: Callable[..., hqueue.Queue], client: hqueue.Client, store: StorePort
) -> hqueue.Queue:
    """Its topic "t" moved twice; and messages of that name lie outside of its ranges."""
    queue = make_queue(2)
    with client.topic_metadata(queue.name) as metadata:
        a, b = (TopicOwner(metadata, store, queue.name, partition) for partition in range(2))
        queue.put(Message("t", b"early"), partition=1)
        for number, owner in enumerate((a, b, a)):
            owner.take()
            owner.publish(b"%d" % (2 * number), b"%d" % (2 * number + 1))
            queue.put(Message("u", b"another's"), partition=number % 2)
            queue.put(Message("t", b"past"), partition=number % 2)  # Into the range that is open.
        queue.put(Message("t", b"late"), partition=1)
    return queue


def by_id(frame: DataFrame) -> list[str]:
    return [bytes(row.value).decode() for row in frame.orderBy("id").collect()]


def test_a_topics_ranges_are_read_and_sorted_by_id_nothing_else_comes(
    queue: hqueue.Queue, load: Load, spark: SparkSession, connection: dict[str, str]
) -> None:
    whole = [str(number) for number in range(6)]
    for options in ({}, {"minPartitions": 4}, {"maxRecordsPerPartition": 1}):
        assert by_id(load(queue, subscribe="t", topicRanges="true", **options)) == whole
    located = read(spark, queue.name, subscribe="t", topicRanges=True, **connection)
    assert by_id(located) == whole
    with queue.scan_topic("t") as scanner:
        ids = [int(message.id) for message in scanner]
    part = load(queue, subscribe="t", topicRanges="true",
                startingOffsets=str(ids[1]), endingOffsets=str(ids[5]))  # fmt: skip
    assert by_id(part) == whole[1:5]
    assert by_id(load(queue, subscribe="t", topicRanges="true", assign="1")) == ["2", "3"]
    topic = {**connection, "subscribe": "t", "topicRanges": "true"}
    counted = Counting(queue.name, window_ms=86_400_000, options=topic).by_headers().counts
    assert sum(count.messages for count in counted) == 6
    assert by_id(load(queue, subscribe="t")) == [
        "early", *whole[:2], "past", *whole[2:4], "past", *whole[4:], "past", "late",
    ]  # fmt: skip


def test_control_records_among_messages_are_stepped_over_in_batch_and_as_a_stream(
    queue: hqueue.Queue, load: Load, spark: SparkSession, tmp_path: Path
) -> None:
    expected = sorted(message.value.decode() for message in queue.scan())
    assert len(expected) == 14
    for options in ({}, {"minPartitions": 7}):
        assert sorted(by_id(load(queue, **options))) == expected
    stream = Stream(spark, queue, tmp_path, startingOffsets="earliest")
    stream.run_to_the_end()
    assert sorted(stream.values()) == expected


def test_what_can_not_be_is_refused(queue: hqueue.Queue, load: Load) -> None:
    given = {"queue": queue.name, "topicRanges": "true"}
    for topics in ({}, {"subscribe": "t,u"}, {"subscribePattern": "t"}):
        with pytest.raises(InvalidInputError, match="one topic"):
            ReadOptions.of({**given, **topics}, "batch")
    with pytest.raises(InvalidInputError, match="only for a batch"):
        ReadOptions.of({**given, "subscribe": "t"}, "stream")
    with pytest.raises(PySparkException, match=NoTopicPersistenceInfoError.__name__):
        load(queue, subscribe="u", topicRanges="true").collect()

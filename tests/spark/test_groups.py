"""Streams and batches of Spark beside consumers: a group's offsets, and the lag of streams."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import hqueue
from hqueue import Consumer, MessageID
from pyspark_hqueue import LagListener, StreamLag, read_group
from tests.support.command_line import run_here
from tests.support.waiting import wait_for

from .queries import Stream, put

MakeQueue = Callable[..., hqueue.Queue]


@pytest.fixture
def group(make_queue: MakeQueue, client: hqueue.Client) -> str:
    """A group that has consumed four messages of partition 0, of a queue of two partitions."""
    queue = make_queue(2)
    put(queue, 0, 0, 10)
    put(queue, 1, 0, 3)
    name = f"group of {queue.name}"
    with Consumer(group=name, client=client, auto_commit=False) as consumer:
        consumer.assign([(queue.name, 0)])
        messages = wait_for(lambda: consumer.poll(1_000, messages_max=4), "the first messages")
        consumer.commit({(queue.name, 0): messages[3].id.next()})
    return name


@pytest.fixture
def queue(group: str, client: hqueue.Client) -> hqueue.Queue:
    return client.queue(group.removeprefix("group of "))


def lags(client: hqueue.Client, group: str) -> list[int | None]:
    """How far the group is behind, by partition."""
    return [each.lag and each.lag.messages for each in client.describe_group(group).partitions]


@pytest.mark.pyspark("4.2")
def test_a_stream_goes_on_where_the_group_was_and_commits_only_what_it_has_finished(
    queue: hqueue.Queue, group: str, client: hqueue.Client, spark: SparkSession, tmp_path: Path
) -> None:
    stream = Stream(spark, queue, tmp_path, startingGroup=group, commitGroup=group)
    with stream.running(processingTime="1 hour"):
        stream.await_batch(0)
        assert lags(client, group) == [6, 3], "that comes with the next batch"
    # It was killed when its batch was finished, and was not committed.
    assert stream.values() == [*(f"0:{n}" for n in range(4, 10)), "1:0", "1:1", "1:2"]
    with stream.running():
        wait_for(lambda: lags(client, group) == [0, 0], "it is committed after the restart")
        put(queue, 1, 3, 5)
        stream.await_values(14)
        wait_for(lambda: lags(client, group) == [0, 0], "what came is committed")
        with Consumer(group=group, client=client, auto_commit=False) as consumer:
            consumer.subscribe([queue.name])
            wait_for(lambda: consumer.poll(50) or len(consumer.assignment()) == 2, "it joined")
            put(queue, 0, 10, 2)
            stream.await_values(16)
            with pytest.raises(StreamingQueryException, match="GroupActiveError"):
                Stream(spark, queue, tmp_path / "2", commitGroup=group).run_to_the_end()
    assert lags(client, group) == [2, 0], "the offsets are those of the consumer that joined"

    def fail(frame: DataFrame, number: int) -> None:
        raise ZeroDivisionError

    failing = stream.source().writeStream.foreachBatch(fail)
    put(queue, 0, 12, 1)
    query = failing.option("checkpointLocation", str(stream.checkpoint)).start(availableNow=True)
    with pytest.raises(StreamingQueryException, match="ZeroDivisionError"):
        query.awaitTermination(120)
    assert lags(client, group) in ([1, 0], [3, 0]), "the batch that failed is not committed"
    stream.run_to_the_end()
    assert lags(client, group) == [0, 0], "the last batch is committed before the query ends"


@pytest.mark.pyspark("4.2")
def test_the_lag_is_in_the_progress_reported_to_a_listener_and_read_from_the_checkpoint(
    queue: hqueue.Queue,
    spark: SparkSession,
    tmp_path: Path,
    server_environment: dict[str, str],
) -> None:
    reported: list[StreamLag] = []
    listener = LagListener(reported.append)
    spark.streams.addListener(listener)
    stream = Stream(spark, queue, tmp_path, startingOffsets="earliest", maxOffsetsPerTrigger=8)
    try:
        with stream.running(processingTime="1 hour") as query:
            stream.await_batch(0)
            wait_for(lambda: reported and query.lastProgress, "it is reported")
            latest = json.loads(query.lastProgress["sources"][0]["latestOffset"])
    finally:
        spark.streams.removeListener(listener)
    assert latest["queue"] == queue.name
    numbers = {name: n for name, n in latest.items() if name.endswith("BehindLatest")}
    assert numbers == {
        "minOffsetsBehindLatest": 1,
        "avgOffsetsBehindLatest": 2.5,
        "maxOffsetsBehindLatest": 4,
    }
    assert (reported[0].queue, reported[0].partitions) == (queue.name, {0: 4, 1: 1})
    assert reported[0].query_id == str(query.id)
    command = ["lag", queue.name, "--checkpoint", str(stream.checkpoint), "--json"]
    code, out, err = run_here(command, b"", server_environment)
    assert code == 0, err
    rows = [json.loads(line) for line in out.splitlines()]
    found = [(row["partition"], row["lag"], row["group"]) for row in rows]
    assert found == [(0, 4, None), (1, 1, None)]
    assert {row["checkpoint"] for row in rows} == {str(stream.checkpoint)}


def test_a_batch_reads_what_the_group_has_not_consumed_and_commits_it(
    queue: hqueue.Queue, group: str, client: hqueue.Client, spark: SparkSession
) -> None:
    def read(**options: Any) -> list[str]:
        with read_group(spark, queue.name, group, columns=["Value"], **options) as frame:
            return sorted(row.Value.decode() for row in frame.collect())

    assert read(subscribe="other") == []
    assert lags(client, group) == [0, 0], "all topics count"
    client.reset_group(group, queue.name, MessageID(0, 1))
    put(queue, 1, 3, 1)
    assert read() == [*(f"0:{n}" for n in range(10)), *(f"1:{n}" for n in range(4))]
    assert read() == []

"""Streaming: exactly once over restarts, admission control, truncation and expiry."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

import hqueue
from hqueue import local
from tests.support.past import DAY_MS, put_in_the_past
from tests.support.proxy import Proxies
from tests.support.raw import RawTables
from tests.support.waiting import wait_for

from .queries import Stream, put

MakeQueue = Callable[..., hqueue.Queue]
OpenStream = Callable[..., Stream]


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> OpenStream:
    return lambda queue, **options: Stream(spark, queue, tmp_path, **options)


def numbered(*counts: int) -> list[str]:
    """What `put` wrote: so many messages in each partition."""
    return [f"{p}:{n}" for p, count in enumerate(counts) for n in range(count)]


def failure_of(query: StreamingQuery, error: str = "DataLossError") -> str:
    """The text that a query fails with."""
    with pytest.raises(StreamingQueryException, match=error) as caught:
        query.awaitTermination(120)
    return str(caught.value)


def test_what_is_there_and_what_comes_is_read_once(
    make_queue: MakeQueue, stream: OpenStream
) -> None:
    queue = make_queue(2)
    put(queue, 0, 0, 10)
    reading = stream(queue, startingOffsets="earliest")
    with reading.running():
        reading.await_values(10)
        put(queue, 1, 0, 5)
        put(queue, 0, 10, 5)
        assert reading.await_values(20) == numbered(15, 5)


@pytest.mark.pyspark("4.2")
def test_a_querys_progress_tells_where_the_log_ends(
    make_queue: MakeQueue, stream: OpenStream
) -> None:
    queue = make_queue(2)
    put(queue, 0, 0, 10)
    reading = stream(queue, startingOffsets="earliest")
    with reading.running() as query:
        reading.await_values(10)
        offsets = {str(e.partition): [int(e.end), e.end_ordinal] for e in queue.offsets()}
        wait_for(
            lambda: query.lastProgress and query.lastProgress["sources"][0]["latestOffset"],
            "the progress tells where the log ends",
        )
        source = query.lastProgress["sources"][0]
        assert _json(source["latestOffset"])["partitions"] == offsets
        assert _json(source["endOffset"])["partitions"] == offsets


def _json(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) else value


def test_a_stream_from_the_latest_reads_what_was_put_after_it_began(
    make_queue: MakeQueue, stream: OpenStream
) -> None:
    queue = make_queue(2)
    put(queue, 0, 0, 10)
    reading = stream(queue)
    with reading.running():
        reading.await_batch(0)
    assert reading.offsets(0)["start"] == reading.offsets(0)["partitions"]
    put(queue, 0, 10, 3)
    put(queue, 1, 0, 2)
    reading.run_to_the_end()
    assert reading.values() == ["0:10", "0:11", "0:12", "1:0", "1:1"]


def test_the_start_is_pinned_by_the_first_batch_though_that_is_repeated(
    make_queue: MakeQueue, stream: OpenStream
) -> None:
    queue = make_queue(1)
    put(queue, 0, 0, 10)
    reading = stream(queue)
    with reading.running():
        reading.await_batch(0)
    pinned = reading.offsets(0)
    reading.undo_commit(0)
    put(queue, 0, 10, 5)
    reading.run_to_the_end()
    assert reading.offsets(0) == pinned
    assert reading.values() == numbered(15)[10:]


@pytest.mark.parametrize("undone", [0, 1, pytest.param(2, marks=pytest.mark.thorough("as with 1"))])
def test_each_message_comes_once_over_a_restart_at_any_batch(
    make_queue: MakeQueue, stream: OpenStream, undone: int
) -> None:
    queue = make_queue(3)
    reading = stream(queue, startingOffsets="earliest")
    for batch in range(undone + 1):
        for partition in range(3):
            put(queue, partition, 4 * batch, 4)
        reading.run_to_the_end()
    last = reading.batches() - 1
    named = reading.offsets(last)
    reading.undo_commit(last)
    put(queue, 0, 4 * (undone + 1), 7)
    reading.run_to_the_end()
    assert reading.offsets(last) == named, "a batch that was named stays as it was"
    assert reading.values() == numbered(4 * (undone + 1) + 7, *[4 * (undone + 1)] * 2)


@pytest.fixture
def proxies(server: local.LocalServer) -> Iterator[Proxies]:
    with Proxies(server) as between:
        yield between


def through(proxies: Proxies) -> dict[str, str]:
    """The option that lets a stream read through the proxies."""
    return {"hqueue.gateways": ",".join(map(str, proxies.settings().gateways))}


def await_polls(proxies: Proxies, number: int = 5) -> None:
    """Wait until the query has asked so often whether something came."""
    polls = proxies.thrift1[0].calls
    wanted = polls["getRowsWithColumns"] + number
    wait_for(lambda: polls["getRowsWithColumns"] >= wanted, "the ends are asked for")


def test_a_stream_that_stands_still_makes_no_batches_and_scans_nothing(
    make_queue: MakeQueue, stream: OpenStream, proxies: Proxies
) -> None:
    queue = make_queue(2)
    put(queue, 0, 0, 4)
    reading = stream(queue, startingOffsets="earliest", **through(proxies))
    with reading.running():
        reading.await_values(4)
        await_polls(proxies)
        batches = reading.batches()
        scans = proxies.thrift1[0].calls["scannerOpenWithScan"]
        await_polls(proxies)
        assert reading.batches() == batches
        assert proxies.thrift1[0].calls["scannerOpenWithScan"] == scans


@pytest.mark.pyspark("4.2")
def test_batches_have_at_most_what_was_set_and_all_partitions_get_their_share(
    make_queue: MakeQueue, stream: OpenStream
) -> None:
    queue = make_queue(3)
    for partition, number in enumerate([900, 90, 10]):
        put(queue, partition, 0, number)
    reading = stream(queue, startingOffsets="earliest", maxOffsetsPerTrigger=100)
    query = reading.run_to_the_end()
    rows = [progress["numInputRows"] for progress in query.recentProgress]
    assert max(rows) == 100
    assert sum(rows) == 1_000
    first = reading.offsets(0)["partitions"]
    assert [first[str(p)][1] for p in range(3)] == [90, 9, 1]
    assert reading.values() == numbered(900, 90, 10)


@pytest.mark.thorough("another way to end a stream, 11 s")
@pytest.mark.pyspark("4.2")
def test_available_now_ends_at_what_was_there_when_it_began(
    make_queue: MakeQueue, stream: OpenStream
) -> None:
    queue = make_queue(1)
    put(queue, 0, 0, 50)
    reading = stream(queue, startingOffsets="earliest", maxOffsetsPerTrigger=5)
    query = reading.start(availableNow=True)
    reading.await_batch(0)
    put(queue, 0, 50, 50)
    assert query.awaitTermination(120)
    assert reading.values() == numbered(50)
    reading.run_to_the_end()
    assert reading.values() == numbered(100)


@pytest.mark.pyspark("4.2")
def test_a_batch_waits_for_as_many_as_were_set(
    make_queue: MakeQueue, stream: OpenStream, proxies: Proxies
) -> None:
    queue = make_queue(1)
    put(queue, 0, 0, 1)
    reading = stream(
        queue,
        startingOffsets="earliest",
        minOffsetsPerTrigger=10,
        maxTriggerDelay="1h",
        **through(proxies),
    )
    with reading.running():
        assert reading.await_values(1) == numbered(1), "the first batch waits for nothing"
        put(queue, 0, 1, 5)
        await_polls(proxies)
        assert len(reading.values()) == 1
        put(queue, 0, 6, 5)
        assert reading.await_values(11) == numbered(11)


@pytest.mark.pyspark("4.2")
def test_a_batch_that_waited_long_enough_comes_with_what_there_is(
    make_queue: MakeQueue, stream: OpenStream
) -> None:
    queue = make_queue(1)
    put(queue, 0, 0, 1)
    reading = stream(
        queue, startingOffsets="earliest", minOffsetsPerTrigger=1_000, maxTriggerDelay="2s"
    )
    with reading.running():
        reading.await_values(1)
        put(queue, 0, 1, 5)
        assert reading.await_values(6) == numbered(6)


def test_topics_and_partitions_are_chosen(make_queue: MakeQueue, stream: OpenStream) -> None:
    queue = make_queue(3)
    for partition in range(3):
        put(queue, partition, 0, 2, "a")
        put(queue, partition, 2, 2, "b")
    reading = stream(queue, startingOffsets="earliest", subscribePattern="b+", assign="[0, 2]")
    reading.run_to_the_end()
    assert reading.values() == ["0:2", "0:3", "2:2", "2:3"]


@pytest.mark.thorough("waits for the time to live, 12 s")
def test_what_expired_before_its_batch_is_a_loss_with_its_number(
    make_queue: MakeQueue, stream: OpenStream, client: hqueue.Client, raw: RawTables
) -> None:
    queue = make_queue(ttl=None)
    now_ms = time.time_ns() // 1_000_000
    ages = [5 * DAY_MS, 4 * DAY_MS, 3 * DAY_MS, DAY_MS // 2]
    put_in_the_past(raw, queue, ages[:1], now_ms=now_ms)
    reading = stream(queue, startingOffsets="earliest")
    reading.run_to_the_end()
    assert reading.values() == ["0"] * 3
    put_in_the_past(raw, queue, ages, now_ms=now_ms)
    client.alter_queue(queue.name, ttl="1d")
    text = failure_of(reading.start(availableNow=True))
    assert "messages expired before they were read" in text
    assert "lost=6" in text
    stream(queue, failOnDataLoss=False).run_to_the_end()
    assert reading.values() == ["0"] * 3 + ["3"] * 3


@pytest.mark.thorough("tables are truncated, 19 s")
@pytest.mark.pyspark("4.2")
def test_a_truncated_queue_is_a_loss_with_the_number_of_messages(
    make_queue: MakeQueue, stream: OpenStream, client: hqueue.Client, proxies: Proxies
) -> None:
    queue = make_queue(1)
    put(queue, 0, 0, 10)
    reading = stream(queue, startingOffsets="earliest", minOffsetsPerTrigger=5, **through(proxies))
    with reading.running() as query:
        reading.await_values(10)
        put(queue, 0, 10, 4)
        await_polls(proxies)
        client.truncate_queue(queue.name)
        put(queue, 0, 100, 7)
        text = failure_of(query)
    assert "the queue was truncated" in text
    assert "lost=4" in text
    stream(queue, failOnDataLoss=False).run_to_the_end()
    assert reading.values() == [*numbered(10), *(f"0:{n}" for n in range(100, 107))]


@pytest.mark.thorough("tables are deleted and made, 15 s")
def test_a_queue_made_again_with_more_partitions_is_read_whole(
    make_queue: MakeQueue, stream: OpenStream, client: hqueue.Client
) -> None:
    queue = make_queue(1)
    put(queue, 0, 0, 3)
    reading = stream(queue, startingOffsets="earliest", failOnDataLoss=False)
    reading.run_to_the_end()
    client.disable_queue(queue.name)
    client.delete_queue(queue.name)
    again = client.create_queue(queue.name, partitions=3)
    for partition in range(3):
        put(again, partition, 10, 2)
    reading.run_to_the_end()
    assert reading.values() == [*numbered(3), "0:10", "0:11", "1:10", "1:11", "2:10", "2:11"]


@pytest.mark.thorough("tables are deleted and made, 15 s")
def test_a_running_stream_reads_on_in_a_queue_made_again_with_more_partitions(
    make_queue: MakeQueue, stream: OpenStream, client: hqueue.Client
) -> None:
    queue = make_queue(1)
    put(queue, 0, 0, 3)
    reading = stream(queue, startingOffsets="earliest", failOnDataLoss=False)
    with reading.running():
        reading.await_values(3)
        client.disable_queue(queue.name)
        client.delete_queue(queue.name)
        again = client.create_queue(queue.name, partitions=3)
        for partition in range(3):
            put(again, partition, 10, 2)
        wanted = [*numbered(3), "0:10", "0:11", "1:10", "1:11", "2:10", "2:11"]
        assert reading.await_values(9) == wanted


@pytest.mark.thorough("a table is deleted, 12 s")
def test_running_streams_end_without_their_queue_and_name_it(
    queue_name: str,
    spark: SparkSession,
    connection: dict[str, str],
    client: hqueue.Client,
    tmp_path: Path,
) -> None:
    queue = client.create_queue(queue_name, partitions=2)
    put(queue, 0, 0, 3)
    native = {"hqueue.zookeeper": connection["hqueue.zookeeper"], "hqueue.hbase": "native"}
    given = {"startingOffsets": "earliest", "hqueue.operation_timeout_ms": 3_000}
    with contextlib.ExitStack() as running:
        queries = []
        for way, options in (("gateways", connection), ("native", native)):
            reading = Stream(spark, queue, tmp_path / way, **given, **options)
            queries.append(running.enter_context(reading.running()))
            reading.await_batch(0)
        client.disable_queue(queue.name)
        client.delete_queue(queue.name)
        for query in queries:
            line = failure_of(query, "QueueNotFoundError").splitlines()[0]
            assert "QueueNotFoundError: there is no such queue" in line
            assert queue.name in line

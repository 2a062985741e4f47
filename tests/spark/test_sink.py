"""Frames and streams are written to a queue, and read back."""

from __future__ import annotations

import collections
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import hqueue
from hqueue import Message

MakeQueue = Callable[..., hqueue.Queue]
Connection = dict[str, str]


def numbers(spark: SparkSession, count: int, tasks: int = 2) -> DataFrame:
    """Rows with the topics t0 to t2 and the values ``0``, ``1``, …"""
    return spark.range(0, count, 1, tasks).select(
        f.concat(f.lit("t"), (f.col("id") % 3).cast("string")).alias("topic"),
        f.col("id").cast("string").cast("binary").alias("value"),
        f.col("id"),
    )


def put(frame: DataFrame, connection: Connection, **options: str) -> None:
    frame.write.format("hqueue").mode("append").options(**connection, **options).save()


def header(name: str, value: str) -> str:
    """A column of headers: one pair in each row."""
    return f"array(named_struct('key', {name}, 'value', {value})) as headers"


def values(queue: hqueue.Queue, partition: int | None = None) -> list[int]:
    return [int(message.value) for message in queue.scan(partition=partition)]


def test_a_frame_is_written_and_read_back(
    spark: SparkSession, connection: Connection, make_queue: MakeQueue
) -> None:
    queue = make_queue(4)
    put(numbers(spark, 45_000, 3), connection, queue=queue.name)
    found = list(queue.scan())
    assert sorted(int(m.value) for m in found) == list(range(45_000))
    assert all(m.topic == f"t{int(m.value) % 3}" for m in found)
    with_messages = [p for p in range(4) if queue.offsets([p])[0].count]
    assert len(with_messages) == 3, "each task has a partition of its own"
    again = spark.read.format("hqueue").options(**connection, queue=queue.name).load()
    assert again.count() == 45_000


def test_rows_go_where_their_partition_or_key_says_in_their_order(
    spark: SparkSession, connection: Connection, make_queue: MakeQueue
) -> None:
    queue = make_queue(4)
    frame = numbers(spark, 30_000, 1).select(
        "topic",
        "value",
        f.when(f.col("id") % 2 == 0, f.concat(f.lit("k"), (f.col("id") % 7).cast("string"))).alias(
            "key"
        ),
        f.when(f.col("id") % 5 == 0, (f.col("id") % 4).cast("short")).alias("partition"),
    )
    put(frame, connection, queue=queue.name)
    for message in queue.scan():
        number = int(message.value)
        if number % 5 == 0:
            assert message.partition == number % 4
        elif number % 2 == 0:
            assert message.partition == zlib.crc32(f"k{number % 7}".encode()) % 4
    for partition in range(4):
        there = [n for n in values(queue, partition) if n % 5 == 0 or n % 2 == 0]
        by_key: dict[int, list[int]] = collections.defaultdict(list)
        for number in there:
            by_key[-1 if number % 5 == 0 else number % 7].append(number)
        assert all(part == sorted(part) for part in by_key.values())
    assert sorted(values(queue)) == list(range(30_000))


def test_what_a_queue_holds_is_written_to_another(
    spark: SparkSession, connection: Connection, make_queue: MakeQueue
) -> None:
    source, target = make_queue(2), make_queue(2)
    for n in range(20):
        source.put([Message("a", b"%d" % n), Message("b", b"")], partition=n % 2)
    frame = spark.read.format("hqueue").options(**connection, queue=source.name).load()
    put(frame.filter("topic = 'a'"), connection, queue=target.name, topic="copied")
    for partition in (0, 1):
        assert values(target, partition) == list(range(partition, 20, 2))
    assert {message.topic for message in target.scan()} == {"copied"}


def test_columns_are_found_in_any_case_unless_the_session_is_case_sensitive(
    spark: SparkSession, connection: Connection, make_queue: MakeQueue
) -> None:
    queue = make_queue(4)
    frame = numbers(spark, 20, 1).selectExpr("topic as TOPIC", "value as Value", "'k' as KEY")
    put(frame, connection, queue=queue.name)
    assert values(queue, zlib.crc32(b"k") % 4) == list(range(20))
    chosen = spark.read.format("hqueue").options(**connection).schema("KEY binary, Topic string")
    row = chosen.load(queue.name).first()
    assert row is not None
    assert (bytes(row.KEY), row.Topic) == (b"k", "t0")
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        with pytest.raises(PySparkException, match="needs the columns value and topic"):
            put(frame, connection, queue=queue.name)
    finally:
        spark.conf.unset("spark.sql.caseSensitive")
    assert len(values(queue)) == 20


def test_a_row_that_is_too_large_is_named(
    spark: SparkSession, connection: Connection, make_queue: MakeQueue
) -> None:
    queue = make_queue(1)
    value = "if(id = 7, repeat('v', 8388609), 'small') as value"
    frame = numbers(spark, 10, 1).selectExpr("topic", value, "concat('key ', id) as key")
    with pytest.raises(PySparkException) as caught:
        put(frame, connection, queue=queue.name)
    for fact in ("a row is too large", "row=7", "topic='t1'", "key=b'key 7'", "bytes_max=8388608"):
        assert fact in str(caught.value)
    assert {message.value for message in queue.scan()} <= {b"small"}


@pytest.mark.thorough("several jobs one after the other; `make test-drivers` kills them")
def test_a_frame_with_a_write_id_is_written_once_over_jobs(
    spark: SparkSession, connection: Connection, make_queue: MakeQueue
) -> None:
    queue = make_queue(3)
    frame = numbers(spark, 25_000)
    for _ in range(2):
        put(frame, connection, queue=queue.name, writeId="load-1")
    assert sorted(values(queue)) == list(range(25_000))
    put(frame, connection, queue=queue.name, writeId="load-2")
    put(frame, connection, queue=queue.name)
    assert len(values(queue)) == 75_000
    with pytest.raises(PySparkException, match="another order"):
        put(
            numbers(spark, 20_000).filter("id != 3"), connection, queue=queue.name, writeId="load-1"
        )
    assert len(values(queue)) == 75_000


@pytest.mark.pyspark("4.2")
def test_a_stream_is_written_and_goes_on_after_a_restart(
    spark: SparkSession, connection: Connection, make_queue: MakeQueue, tmp_path: Path
) -> None:
    source, target = make_queue(2), make_queue(3)

    def run() -> None:
        frame = (
            spark.readStream.format("hqueue")
            .options(**connection, queue=source.name, startingOffsets="earliest")
            .option("maxOffsetsPerTrigger", "7")
            .load()
        )
        query = (
            frame.select("topic", "value", f.col("value").alias("key"))
            .writeStream.format("hqueue")
            .options(**connection, queue=target.name, checkpointLocation=str(tmp_path))
            .queryName("copy")
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)

    for first in (0, 20):
        for n in range(first, first + 20):
            source.put(Message("a", b"%d" % n), partition=n % 2)
        run()
        assert sorted(values(target)) == list(range(first + 20))
    for message in target.scan():
        assert message.partition == zlib.crc32(message.value) % 3


IN_A_ROW = pytest.mark.thorough("Spark tries four times; `make test` has it for a partition")


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"mode": "overwrite"}, "only be appended to"),
        ({"mode": "error"}, "Append"),
        ({"columns": ["topic"]}, "value and topic"),
        ({"columns": ["value", "id as partition"]}, "option topic"),
        ({"columns": ["id as topic", "value"]}, "column='topic'"),
        ({"columns": ["topic", "id as value"]}, "column='value'"),
        ({"columns": ["topic", "value", "id as key"]}, "column='key'"),
        ({"columns": ["topic", "value", "topic as partition"]}, "column='partition'"),
        ({"columns": ["topic", "value", "topic as headers"]}, "column='headers'"),
        ({"columns": ["topic", "value", "array(topic) as headers"]}, "column='headers'"),
        ({"columns": ["topic", "value", header("id", "value")]}, "column='headers'"),
        ({"columns": ["topic", "value", header("topic", "id")]}, "column='headers'"),
        pytest.param(
            {"columns": ["topic", "value", header("topic", "nullif(value, value)")]},
            "can't be null",
            marks=IN_A_ROW,
        ),
        ({"columns": ["topic", "value", "id as partition"]}, "no such partition"),
        pytest.param(
            {"columns": ["topic", "nullif(value, value) as value"]}, "can't be null", marks=IN_A_ROW
        ),
        pytest.param(
            {"columns": ["cast(X'636166E9' as string) as topic", "value"]},
            "is not UTF-8",
            marks=IN_A_ROW,
        ),
        pytest.param(
            {"columns": ["topic", "value", header("cast(X'636166E9' as string)", "X'00'")]},
            "is not UTF-8",
            marks=IN_A_ROW,
        ),
        ({"topik": "x"}, "closest='topic'"),
        ({"writeId": "a b"}, "writeId"),
        ({"topic": "x" * 300}, "topic"),
        ({"queue": "missing"}, "no such queue"),
        ({"subscribe": "x"}, "unknown option"),
    ],
)
def test_what_can_t_be_written_is_refused_with_what_is_right(
    spark: SparkSession,
    connection: Connection,
    make_queue: MakeQueue,
    change: dict[str, object],
    match: str,
) -> None:
    queue = make_queue(2)
    options = {"queue": queue.name, **change}
    mode = str(options.pop("mode", "append"))
    frame = numbers(spark, 10).selectExpr(*options.pop("columns", ["topic", "value"]))  # type: ignore[call-overload]
    with pytest.raises(PySparkException) as caught:
        frame.write.format("hqueue").mode(mode).options(**connection, **options).save()
    assert match.lower() in str(caught.value).lower()
    assert values(queue) == []


def test_a_stream_in_complete_mode_is_refused(
    spark: SparkSession, connection: Connection, make_queue: MakeQueue, tmp_path: Path
) -> None:
    queue = make_queue()
    queue.put(Message("a", b"1"))
    frame = (
        spark.readStream.format("hqueue")
        .options(**connection, queue=queue.name, startingOffsets="earliest")
        .load()
    )
    counts = frame.groupBy("topic").agg(f.count("*").cast("string").alias("value"))
    query = (
        counts.writeStream.format("hqueue")
        .outputMode("complete")
        .options(**connection, queue=queue.name, checkpointLocation=str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    with pytest.raises(PySparkException, match="only be appended to"):
        query.awaitTermination(120)

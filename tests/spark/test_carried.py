"""Keys and headers go through the data source: both ways, and unchanged."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import hqueue
from hqueue.message import partition_of_key
from pyspark_hqueue import read
from pyspark_hqueue.reading.schema import WITH_HEADERS

from .carrying import by_key, by_partition, fields_of_row, fill
from .queries import Stream

MakeQueue = Callable[..., hqueue.Queue]
Connection = dict[str, str]


def rows_by_partition(frame: DataFrame, partitions: int) -> dict[int, list[object]]:
    rows = frame.orderBy("partition", "id").collect()
    return {
        partition: [fields_of_row(row) for row in rows if row.partition == partition]
        for partition in range(partitions)
    }


def write(frame: DataFrame, connection: Connection, queue: hqueue.Queue) -> None:
    given = {**connection, "queue": queue.name}
    frame.write.format("hqueue").mode("append").options(**given).save()


def test_a_read_has_them_as_they_were_put(
    spark: SparkSession, make_queue: MakeQueue, load: Callable[..., DataFrame]
) -> None:
    queue = make_queue(2)
    fill(queue, 400)
    expected = by_partition(queue)
    assert sum(map(len, expected.values())) == 406
    for frame in (
        load(queue, includeHeaders=True, minPartitions=3),
        read(spark, queue.name, includeHeaders=True, minPartitions=3),
    ):
        assert frame.schema == WITH_HEADERS
        assert rows_by_partition(frame, 2) == expected
    for frame in (load(queue), load(queue, includeHeaders=False), read(spark, queue.name)):
        assert "headers" not in frame.columns
        keys = frame.orderBy("partition", "id").collect()
        assert [None if row.key is None else bytes(row.key) for row in keys] == [
            key for partition in (0, 1) for _, _, key, _ in expected[partition]
        ]
    frame = read(spark, queue.name, columns=["headers", "value"], includeHeaders=True)
    assert frame.columns == ["headers", "value"]
    assert frame.where("exists(headers, h -> h.key = 'n')").count() == 200


def test_a_schema_of_ones_own_chooses_columns(
    spark: SparkSession, make_queue: MakeQueue, load: Callable[..., DataFrame]
) -> None:
    queue = make_queue(1)
    fill(queue, 20)
    before = (
        "partition int, timestamp timestamp, sequence smallint, id bigint, topic string, "
        "value binary"
    )
    frame = spark.read.format("hqueue").schema(before).load(queue.name)
    assert frame.collect() == load(queue).drop("key").collect()
    frame = spark.read.format("hqueue").schema("key binary, topic string").load(queue.name)
    assert frame.collect() == load(queue).select("key", "topic").collect()
    headers = "headers array<struct<key: string, value: binary>>"
    reader = spark.read.format("hqueue").option("includeHeaders", True)
    frame = reader.schema(f"value binary, {headers}").load(queue.name)
    wanted = load(queue, includeHeaders=True).select("value", "headers").collect()
    assert frame.collect() == wanted
    for wrong in (f"value binary, {headers}", "key string", "key binary not null"):
        with pytest.raises(Exception, match="give no schema"):
            spark.read.format("hqueue").schema(wrong).load(queue.name).collect()


def test_a_stream_has_them_as_they_were_put(
    spark: SparkSession, make_queue: MakeQueue, tmp_path: Path
) -> None:
    queue = make_queue(2)
    reading = Stream(
        spark, queue, tmp_path, startingOffsets="earliest", includeHeaders=True, minPartitions=3
    )
    for first in (0, 100):
        fill(queue, 100, first)
        reading.run_to_the_end()
    assert reading.source().schema == WITH_HEADERS
    written = spark.read.schema(WITH_HEADERS).parquet(str(reading.output))
    assert rows_by_partition(written, 2) == by_partition(queue)


def test_what_was_read_is_written_where_it_lay_or_where_its_key_says(
    spark: SparkSession,
    connection: Connection,
    make_queue: MakeQueue,
    load: Callable[..., DataFrame],
) -> None:
    source, same, other = make_queue(2), make_queue(2), make_queue(3)
    fill(source, 200)
    expected = by_partition(source)
    frame = load(source, includeHeaders=True)
    write(frame, connection, same)
    assert by_partition(same) == expected
    write(frame.drop("partition"), connection, other)
    found = by_partition(other)
    written = [message for messages in found.values() for message in messages]
    assert sorted(map(repr, written)) == sorted(
        repr(message) for messages in expected.values() for message in messages
    )
    for partition, messages in found.items():
        for key, of_key in by_key(messages).items():
            assert partition_of_key(key, 3) == partition
            assert of_key == by_key(expected[partition_of_key(key, 2)])[key]


def test_a_stream_is_written_with_them(
    spark: SparkSession, connection: Connection, make_queue: MakeQueue, tmp_path: Path
) -> None:
    source, target = make_queue(2), make_queue(2)
    for first in (0, 60):
        fill(source, 60, first)
        frame = (
            spark.readStream.format("hqueue")
            .options(**connection, queue=source.name, startingOffsets="earliest")
            .option("includeHeaders", True)
            .load()
        )
        query = (
            frame.writeStream.format("hqueue")
            .options(**connection, queue=target.name, checkpointLocation=str(tmp_path))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)
        assert by_partition(target) == by_partition(source)


def test_texts_are_written_as_their_utf_8(
    spark: SparkSession, connection: Connection, make_queue: MakeQueue
) -> None:
    queue = make_queue(4)
    frame = spark.sql("""
        SELECT 't' topic, 'v' value, 'ü' key,
               array(named_struct('key', 'a', 'value', 'ü'), named_struct('key', '', 'value', ''))
               AS headers
        UNION ALL SELECT 't', 'w', '', array()
    """)
    write(frame, connection, queue)
    key = "ü".encode()
    found = by_partition(queue)
    assert found[partition_of_key(key, 4)] == [("t", b"v", key, (("a", key), ("", b"")))]
    assert found[partition_of_key(b"", 4)] == [("t", b"w", b"", ())]

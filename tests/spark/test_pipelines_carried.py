"""Keys and headers go through the pipelines."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import hqueue
from hqueue import InvalidInputError, Message
from hqueue.message import partition_of_key
from pyspark_hqueue.jobs.archive import FILES, Archive
from pyspark_hqueue.jobs.manifest import RoundRecord
from pyspark_hqueue.jobs.queue_copy import Copy
from pyspark_hqueue.jobs.queue_statistics import Counting
from pyspark_hqueue.jobs.replay import Replay
from pyspark_hqueue.reading.schema import WITH_HEADERS

from .carrying import Fields, by_key, by_partition, fields_of_row, fill

Make = Callable[..., hqueue.Queue]


def lie_by_key(source: dict[int, list[Fields]], target: dict[int, list[Fields]]) -> bool:
    """Whether a target has what its source has: messages with a key where that says, in the order
    of the key; others by the source's partition, in its order.
    """
    assert sum(map(len, target.values())) == sum(map(len, source.values()))
    for messages in source.values():
        for key, wanted in by_key(messages).items():
            assert by_key(target[partition_of_key(key, len(target))])[key] == wanted
    for partition, messages in source.items():
        there = [each for each in target[partition % len(target)] if each[2] is None]
        wanted = [each for each in messages if each[2] is None]
        assert [each for each in there if each in wanted] == wanted
    return True


def archive(
    spark: SparkSession, queue: hqueue.Queue, path: Path, options: dict[str, str]
) -> list[RoundRecord]:
    """Archive what is there; what the rounds wrote."""
    records: list[RoundRecord] = []
    job = Archive(spark, queue.name, str(path), options=options)
    job.run(lambda _, record: records.append(record))
    return records


def test_an_archive_keeps_them_and_a_replay_restores_them(
    spark: SparkSession, connection: dict[str, str], make_queue: Make, tmp_path: Path
) -> None:
    queue, target, wide = make_queue(2), make_queue(2), make_queue(3)
    records = []
    for first in (0, 200):
        fill(queue, 200, first)
        records += archive(spark, queue, tmp_path, connection)
    assert sum(record.messages for record in records) == 412
    assert sum(record.bytes for record in records) == sum(m.size for m in queue.scan())
    expected = by_partition(queue)
    path = str(tmp_path)
    rows = spark.read.parquet(path).orderBy("partition", "id").collect()
    found = [fields_of_row(row) for row in rows]
    assert found == [message for messages in expected.values() for message in messages]

    assert Replay(spark, path, target.name, options=connection).run() == 412
    assert by_partition(target) == expected
    assert Replay(spark, path, target.name, options=connection).run() == 0
    assert Replay(spark, path, wide.name, by="key", options=connection).run() == 412
    assert lie_by_key(expected, by_partition(wide))


def test_an_archive_of_before_is_replayed_as_before(
    spark: SparkSession, connection: dict[str, str], make_queue: Make, tmp_path: Path
) -> None:
    queue, target = make_queue(2), make_queue(2)
    fill(queue, 40)
    archive(spark, queue, tmp_path, connection)
    for file in tmp_path.glob("date=*/*/*.parquet"):
        table = pq.ParquetFile(file).read().drop_columns(["key", "headers"])
        pq.write_table(table, file, use_deprecated_int96_timestamps=True)
    expected: dict[int, list[Fields]] = {
        partition: [(topic, value, None, ()) for topic, value, _, _ in messages]
        for partition, messages in by_partition(queue).items()
    }
    assert Replay(spark, str(tmp_path), target.name, options=connection).run() == 46
    assert by_partition(target) == expected
    fill(queue, 40, first=40)
    archive(spark, queue, tmp_path, connection)
    assert Replay(spark, str(tmp_path), target.name, options=connection).run() == 46
    for partition, messages in by_partition(queue).items():
        expected[partition] += messages[len(expected[partition]) :]
    assert by_partition(target) == expected


def test_parquet_of_others_is_replayed_with_them(
    spark: SparkSession, connection: dict[str, str], make_queue: Make, tmp_path: Path
) -> None:
    target = make_queue(3)
    pair = [{"key": "n", "value": b"v"}]
    numbers = range(30)
    table = pa.table(
        {
            "topic": ["t"] * 30,
            "value": [b"%d" % n for n in numbers],
            "key": [None if n % 3 == 0 else n % 7 for n in numbers],
            "headers": [pair * (n % 3) or None for n in numbers],
        }
    )
    pq.write_table(table, tmp_path / "rows.parquet")
    assert Replay(spark, str(tmp_path), target.name, options=connection).run() == 30
    found = [
        (int(message.value), message.key, message.headers, message.partition)
        for message in target.scan()
    ]
    assert sorted(number for number, *_ in found) == list(numbers)
    for number, key, headers, partition in found:
        assert headers == (("n", b"v"),) * (number % 3)
        if number % 3 == 0:
            assert key is None
        else:
            assert key == b"%d" % (number % 7)
            assert partition == partition_of_key(key, 3)
    wrong = table.set_column(3, "headers", pa.array(["n: v"] * 30))
    pq.write_table(wrong, tmp_path / "rows.parquet")
    with pytest.raises(InvalidInputError, match="column") as caught:
        Replay(spark, str(tmp_path), target.name, options=connection, write_id="again")
    assert caught.value.facts["column"] == "headers"
    assert len(list(target.scan())) == 30


@pytest.mark.parametrize(
    "sizes", [(2, 3), pytest.param((4, 2), marks=pytest.mark.thorough("as with more"))]
)
def test_a_copy_into_another_number_of_partitions_goes_by_the_keys(
    spark: SparkSession,
    connection: dict[str, str],
    make_queue: Make,
    tmp_path: Path,
    sizes: tuple[int, int],
) -> None:
    queue, target = map(make_queue, sizes)
    for first in (0, 100):
        fill(queue, 100, first)
        job = Copy(
            spark, queue.name, target.name, str(tmp_path), round_messages=70, options=connection
        )
        job.run()
        assert lie_by_key(by_partition(queue), by_partition(target))


def test_a_copy_into_as_many_partitions_leaves_messages_where_they_lay(
    spark: SparkSession, connection: dict[str, str], make_queue: Make, tmp_path: Path
) -> None:
    queue, target, by_its_key = make_queue(2), make_queue(2), make_queue(2)
    fill(queue, 50)
    elsewhere = Message("t", b"here", b"k")
    belongs = partition_of_key(b"k", 2)
    queue.put(elsewhere, partition=1 - belongs)
    Copy(spark, queue.name, target.name, str(tmp_path / "1"), options=connection).run()
    assert by_partition(target) == by_partition(queue)
    job = Copy(
        spark, queue.name, by_its_key.name, str(tmp_path / "2"), by="key", options=connection
    )
    job.run()
    found = by_key(by_partition(by_its_key)[belongs])[b"k"]
    assert ("t", b"here", b"k", ()) in found


def test_statistics_count_their_bytes(
    spark: SparkSession, connection: dict[str, str], make_queue: Make
) -> None:
    queue = make_queue(2)
    fill(queue, 100)
    counting = Counting(queue.name, window_ms=3_600_000, options=connection)
    by_headers, by_messages = counting.by_headers(), counting.by_messages(spark)
    assert [(c.group, c.messages) for c in by_headers.groups()] == [
        (c.group, c.messages) for c in by_messages.groups()
    ]
    assert by_messages.bytes == sum(message.size for message in queue.scan())
    columns = sum(
        entry.key_bytes + entry.header_bytes
        for partition in range(2)
        for header in queue.headers(partition)
        for entry in header.topics
    )
    values = sum(len(message.value) for message in queue.scan())
    assert by_headers.bytes == values + columns
    chosen = Counting(
        queue.name,
        where="key = X'6B' and size(headers) > 1",
        by="headers[0].key",
        options=connection,
    ).by_messages(spark)
    assert [(count.group, count.messages) for count in chosen.groups()] == [("n", 5)]


def test_the_columns_of_an_archive_are_those_of_a_read() -> None:
    assert {*FILES.names} == {*WITH_HEADERS.names, "date"}

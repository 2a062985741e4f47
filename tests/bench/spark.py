"""What is measured of Spark: two local cores, which the servers share."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from multiprocessing.pool import Pool
from typing import Any

import pyarrow.compute as pc
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from hqueue import MessageID, Queue
from hqueue.settings.connection import NATIVE
from pyspark_hqueue import DefaultSource, read
from pyspark_hqueue.reading.clients import client_of
from pyspark_hqueue.reading.decode import read_ranges
from pyspark_hqueue.reading.plan import Task, cut, position_of, snapshot
from pyspark_hqueue.reading.read_options import ReadOptions
from pyspark_hqueue.reading.schema import COLUMNS

from .cases import VALUE_BYTES, Bench
from .measure import Comparison, compare, rate

__all__ = ["SPARK_CASES", "counted", "fill", "spark_session", "spark_settings"]

CORES = 2
KAFKA_RATE = 915_000.0


@contextlib.contextmanager
def spark_session() -> Iterator[SparkSession]:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(f"local[{CORES}]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    builder = builder.config("spark.driver.host", "127.0.0.1")
    session = builder.config("spark.sql.shuffle.partitions", str(CORES)).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    try:
        yield session
    finally:
        session.stop()


class TupleSource(DataSource):
    """The same messages as tuples, one by one: what a reader that knows no Arrow gives."""

    @classmethod
    def name(cls) -> str:
        return "hqueue-tuples"

    def schema(self) -> StructType:
        return COLUMNS

    def reader(self, schema: StructType) -> DataSourceReader:
        return TupleReader(ReadOptions.of(self.options, "batch"))


class TupleReader(DataSourceReader):
    """Plans as the data source does."""

    def __init__(self, options: ReadOptions) -> None:
        self.options = options

    def partitions(self) -> list[InputPartition]:
        queue = client_of(self.options.settings).queue(self.options.queue)
        return list(cut(snapshot(queue, self.options), CORES, partial(position_of, queue)))

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        queue = client_of(self.options.settings).queue(self.options.queue)
        assert isinstance(partition, Task)
        for range_ in partition.ranges:
            start, stop = MessageID.from_int(range_.start), MessageID.from_int(range_.stop)
            for message in queue.scan(partition=range_.partition, start=start, stop=stop):
                yield (
                    message.partition, message.id.datetime, message.id.sequence, int(message.id),
                    message.topic, message.value, message.key,
                )  # fmt: skip


def counted(frame: DataFrame) -> int:
    (row,) = frame.select(F.count("*"), F.sum(F.length("value"))).collect()
    assert row[1] == row[0] * VALUE_BYTES
    return int(row[0])


def _without_spark(options: ReadOptions, task: Task) -> int:
    number, length = 0, 0
    for batch in read_ranges(options, task.ranges):
        number += batch.num_rows
        length += pc.sum(pc.binary_length(batch.column("value"))).as_py()
    assert length == number * VALUE_BYTES
    return number


def fill(bench: Bench, name: str, number: int, partitions: int = 4) -> Queue:
    queue = bench.queue(name, partitions)
    batch = bench.messages(10_000)
    for first in range(0, number, len(batch)):
        queue.put(batch, partition=first // len(batch) % queue.partitions)
    return queue


def spark_settings(bench: Bench, hbase: str = NATIVE) -> dict[str, str]:
    """Options of the data source for this way to HBase."""
    return {
        "hqueue.hbase": hbase,
        "hqueue.gateways": ",".join(map(str, bench.gateways)),
        "hqueue.zookeeper": bench.client.settings.zookeeper,
    }


def spark_read(bench: Bench) -> Iterator[Comparison]:
    """Count and sum of lengths, against the same batches without Spark and against tuples."""
    queue = fill(bench, "spark-read", bench.many(5_000_000))
    few = fill(bench, "spark-read-few", bench.many(500_000))
    settings = spark_settings(bench)
    given = {"queue": queue.name, **settings}
    options = ReadOptions.of(given, "batch")
    tasks = cut(snapshot(queue, options), CORES, partial(position_of, queue))
    with (
        spark_session() as spark,
        multiprocessing.get_context("spawn").Pool(CORES) as pool,
    ):
        spark.dataSource.register(DefaultSource)
        spark.dataSource.register(TupleSource)

        def source() -> int:
            return counted(spark.read.format("hqueue").options(**given).load())

        def located() -> int:
            return counted(read(spark, queue.name, columns=["value"], **settings))

        def processes() -> int:
            return sum(pool.map(partial(_without_spark, options), tasks, 1))

        def tuples() -> int:
            options = {**given, "queue": few.name}
            return counted(spark.read.format("hqueue-tuples").options(**options).load())

        runs = {"source": source, "located": located, "processes": processes, "tuples": tuples}
        figures = compare({name: rate(run) for name, run in runs.items()}, bench.rounds)
    title = "Spark, count and sum of lengths"
    for contender, name in (("data source", "source"), ("located read", "located")):
        for rival, against, goal in (
            ("the same Arrow batches, a process a core", figures["processes"], 0.5),
            ("a data source that yields tuples", figures["tuples"], 5),
            ("Kafka's Spark source", (KAFKA_RATE,) * bench.rounds, 1),
        ):
            yield Comparison(title, contender, rival, "msg/s", figures[name], against, goal)


def spark_columns(bench: Bench) -> Iterator[Comparison]:
    """One column and all of them, of few partitions and of many: the located read against the data
    source, and both against the same Arrow batches without Spark.
    """
    number = bench.many(3_000_000)
    with (
        spark_session() as spark,
        multiprocessing.get_context("spawn").Pool(CORES) as pool,
    ):
        spark.dataSource.register(DefaultSource)
        for partitions in (1, 4, 64):
            queue = fill(bench, f"spark-columns-{partitions}", number, partitions)
            for columns in (StructType([COLUMNS["value"]]), COLUMNS):
                yield from _columns_read(bench, spark, pool, queue, columns)


def _columns_read(
    bench: Bench, spark: SparkSession, pool: Pool, queue: Queue, columns: StructType
) -> Iterator[Comparison]:
    settings = spark_settings(bench)
    given = {"queue": queue.name, **settings}
    options = ReadOptions.of(given, "batch")
    tasks = cut(snapshot(queue, options), CORES, partial(position_of, queue))

    def source() -> DataFrameReader:
        return spark.read.format("hqueue").options(**given)

    def all_counted(frame: DataFrame) -> int:
        """Spark reads each value of each column."""
        hashed = F.sum(F.hash(*columns.names).cast("long"))
        (row,) = frame.agg(F.count("*"), hashed).collect()
        return int(row[0])

    def located() -> int:
        return all_counted(read(spark, queue.name, columns=columns.names, **settings))

    def selecting() -> int:
        return all_counted(source().load().select(*columns.names))

    def with_schema() -> int:
        return all_counted(source().schema(columns).load())

    def processes() -> int:
        return sum(pool.map(partial(_read_bare, options, columns), tasks, 1))

    runs = {"located": located, "schema": with_schema, "processes": processes}
    if columns != COLUMNS:
        runs["select"] = selecting
    figures = compare({name: rate(run) for name, run in runs.items()}, bench.rounds)
    which = "all columns" if columns == COLUMNS else "one column"
    title = f"Spark, {which} of {queue.partitions} partitions"
    for contender, rival, goal in (
        ("located", "schema", 1),
        ("located", "select", 1),
        ("located", "processes", 0.25),
        ("schema", "processes", 0.25),
    ):
        if rival in figures:
            names = (_COLUMN_READS[contender], _COLUMN_READS[rival])
            yield Comparison(title, *names, "msg/s", figures[contender], figures[rival], goal)


_COLUMN_READS = {
    "located": "located read",
    "schema": "data source with a schema",
    "select": "data source, all columns, then select",
    "processes": "the same Arrow batches, a process a core",
}


def _read_bare(options: ReadOptions, columns: StructType, task: Task) -> int:
    return sum(batch.num_rows for batch in read_ranges(options, task.ranges, columns))


def spark_stream(bench: Bench) -> Iterator[Comparison]:
    """A stream in batches of 250,000 messages, and its triggers while nothing comes."""
    number = bench.many(1_000_000)
    queue = fill(bench, "spark-stream", number)
    rates, idle_ms = [], []
    with spark_session() as spark, tempfile.TemporaryDirectory() as folder:
        spark.dataSource.register(DefaultSource)

        def run(name: str, **trigger: Any) -> Any:
            source = spark.readStream.format("hqueue").options(
                queue=queue.name,
                startingOffsets="earliest",
                maxOffsetsPerTrigger=str(max(1, number // 4)),
                **spark_settings(bench),
            )
            sink = source.load().writeStream.foreachBatch(_summed)
            return sink.option("checkpointLocation", f"{folder}/{name}").trigger(**trigger).start()

        for round_ in range(-2, bench.rounds):
            query = run(f"whole-{round_}", availableNow=True)
            query.awaitTermination()
            batches = [p for p in query.recentProgress if p["numInputRows"]]
            took_ms = sum(batch["durationMs"]["triggerExecution"] for batch in batches)
            if round_ >= 0:
                rates.append(sum(batch["numInputRows"] for batch in batches) / took_ms * 1e3)
        spark.conf.set("spark.sql.streaming.noDataProgressEventInterval", "200")
        query = run("idle", processingTime="0 seconds")
        query.processAllAvailable()
        while len(idle_ms) < bench.rounds:
            progress = query.lastProgress
            if progress and not progress["numInputRows"]:
                idle_ms.append(float(progress["durationMs"]["triggerExecution"]))
            query.awaitTermination(1)
        query.stop()
    yield Comparison(
        "a stream in batches of 250,000", "stream", "goal", "msg/s",
        tuple(rates), (100_000.0,) * bench.rounds, 1,
    )  # fmt: skip
    yield Comparison(
        "a trigger of a stream when nothing came", "stream", "goal", "ms",
        tuple(idle_ms), (50.0,) * bench.rounds, 1, at_most=True,
    )  # fmt: skip


def _summed(frame: DataFrame, _: int) -> None:
    frame.select(F.count("*"), F.sum(F.length("value"))).collect()


SPARK_CASES: dict[str, Callable[[Bench], Iterator[Comparison]]] = {
    case.__name__: case for case in (spark_read, spark_columns, spark_stream)
}

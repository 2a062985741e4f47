"""Jobs of the kinds that people write."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import hqueue
from hqueue import Message

MakeQueue = Callable[..., hqueue.Queue]


def put_clicks(queue: hqueue.Queue, users: list[str], clicks: int) -> None:
    """Clicks of some users, each the same number, as JSON."""
    for number in range(clicks):
        queue.put(
            [Message("click", json.dumps({"user": u, "n": number}).encode()) for u in users],
            partition=number % queue.partitions,
        )


def parsed(frame: DataFrame) -> DataFrame:
    body = F.from_json(F.col("value").cast("string"), "user string, n int")
    return frame.withColumn("body", body).select("timestamp", "topic", "body.*")


def test_windowed_counts_over_a_stream_joined_with_a_static_table_into_parquet(
    make_queue: MakeQueue, spark: SparkSession, tmp_path: Path
) -> None:
    queue = make_queue(3)
    users = spark.createDataFrame(
        [("ann", "DE"), ("bob", "FR"), ("eve", "FR")], "user string, land string"
    )
    output = str(tmp_path / "output")

    def store(batch: DataFrame, number: int) -> None:
        batch.write.mode("overwrite").parquet(f"{output}/batch={number}")

    def run() -> None:
        clicks = parsed(
            spark.readStream.format("hqueue")
            .option("queue", queue.name)
            .option("subscribe", "click")
            .option("startingOffsets", "earliest")
            .load()
        )
        counts = (
            clicks.withWatermark("timestamp", "1 minute")
            .join(users, "user")
            .groupBy(F.window("timestamp", "1 day"), "land")
            .count()
        )
        writer = counts.writeStream.outputMode("update").foreachBatch(store)
        query = (
            writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(180)

    put_clicks(queue, ["ann", "bob", "eve", "nobody"], 30)
    queue.put(Message("view", b"{}"))
    run()
    put_clicks(queue, ["bob"], 10)
    run()
    # In update mode the last number of each window and land counts.
    latest = (
        spark.read.parquet(output)
        .groupBy("window", "land")
        .agg(F.max_by("count", "batch").alias("count"))
        .groupBy("land")
        .agg(F.sum("count").alias("count"))
    )
    assert {row.land: row["count"] for row in latest.collect()} == {"DE": 30, "FR": 70}


@pytest.mark.pyspark("4.2")
def test_a_queue_is_archived_by_foreach_batch_and_read_again(
    make_queue: MakeQueue, spark: SparkSession, tmp_path: Path
) -> None:
    queue = make_queue(2)
    put_clicks(queue, ["ann", "bob"], 25)

    def archive(batch: DataFrame, number: int) -> None:
        dated = batch.withColumn("date", F.to_date("timestamp"))
        dated.write.mode("overwrite").partitionBy("date", "topic").parquet(
            str(tmp_path / "archive" / f"batch={number}")
        )

    query = (
        spark.readStream.format("hqueue")
        .options(queue=queue.name, startingOffsets="earliest", maxOffsetsPerTrigger="20")
        .load()
        .writeStream.foreachBatch(archive)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(180)
    archived = spark.read.parquet(str(tmp_path / "archive"))
    assert archived.where("topic = 'click'").count() == 50
    assert archived.select("partition", "id").distinct().count() == 50

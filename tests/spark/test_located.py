"""Reading with tasks that are placed, in a session on this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import hqueue
from hqueue import InvalidInputError
from pyspark_hqueue import foreach_batch, read

from .queries import put, undo_commit
from .test_batch import values
from .test_stream import numbered

MakeQueue = Callable[..., hqueue.Queue]
CONNECT = Path(__file__).parent / "programs" / "connect.py"


def preferred_hosts(frame: DataFrame) -> list[list[str]]:
    """The hosts that each task of a frame prefers."""
    rdd = frame._jdf.queryExecution().toRdd()
    context = frame.sparkSession.sparkContext._jsc.sc()
    locations = [context.getPreferredLocs(rdd, number) for number in range(rdd.getNumPartitions())]
    return [[found.apply(i).host() for i in range(found.size())] for found in locations]


def test_a_located_read_gives_what_the_data_source_gives(
    make_queue: MakeQueue, spark: SparkSession
) -> None:
    queue = make_queue(3)
    for partition, number in enumerate([900, 30]):
        put(queue, partition, 0, number)
    frame = read(spark, queue.name, minPartitions=4)
    source = spark.read.format("hqueue").load(queue.name)
    assert frame.schema == source.schema
    order = ["partition", "id"]
    assert frame.orderBy(order).collect() == source.orderBy(order).collect()
    counted = frame.groupBy(F.spark_partition_id()).count().collect()
    assert sum(row["count"] for row in counted) == 930
    assert max(row["count"] for row in counted) <= 234


def test_each_task_prefers_the_host_of_its_region_through_a_query(
    make_queue: MakeQueue, spark: SparkSession, client: hqueue.Client
) -> None:
    queue = make_queue(2)
    for partition in range(2):
        put(queue, partition, 0, 100)
    host = client.locations(queue.name)[0].host
    frame = read(spark, queue.name, minPartitions=4).where("id > 5").select("value")
    hints = preferred_hosts(frame)
    assert len(hints) == 4
    for names in hints:
        assert host in names


def test_only_the_columns_that_are_wanted_are_made(
    make_queue: MakeQueue, spark: SparkSession
) -> None:
    queue = make_queue(1)
    put(queue, 0, 0, 200)
    frame = read(spark, queue.name, columns=["value", "sequence"])
    assert frame.columns == ["value", "sequence"]
    assert sorted(bytes(row.value) for row in frame.collect())[0] == b"0:0"
    with pytest.raises(InvalidInputError, match="no such column"):
        read(spark, queue.name, columns=["headers"])


def test_a_plan_shows_what_a_read_asks_for(
    make_queue: MakeQueue, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    queue = make_queue(1)
    put(queue, 0, 0, 10)
    stop = queue.offsets()[0].end
    read(spark, queue.name, columns=["id", "value"], subscribe="t,u").where("id > 5").explain()
    assert (
        f"hqueue(queue={queue.name}, topics=[t, u], ranges=[0: 0-0 to {stop}], columns=[id, value])"
        in capsys.readouterr().out
    )


def test_a_frame_holds_one_snapshot(make_queue: MakeQueue, spark: SparkSession) -> None:
    queue = make_queue(1)
    put(queue, 0, 0, 10)
    frame = read(spark, queue.name)
    put(queue, 0, 10, 10)
    assert frame.count() == 10
    assert values(frame) == numbered(10)
    assert read(spark, queue.name).count() == 20


def test_an_empty_queue_and_wrong_options(make_queue: MakeQueue, spark: SparkSession) -> None:
    queue = make_queue(1)
    assert read(spark, queue.name).collect() == []
    with pytest.raises(InvalidInputError, match="unknown option"):
        read(spark, queue.name, subscribes="a")


@pytest.mark.thorough("`test_stream` has the same without locations")
@pytest.mark.pyspark("4.2")
def test_a_stream_of_located_batches_gives_each_message_once_over_restarts(
    make_queue: MakeQueue, spark: SparkSession, tmp_path: Path
) -> None:
    queue = make_queue(2)
    written = tmp_path / "written"

    def write(frame: DataFrame, batch: int) -> None:
        frame.write.mode("overwrite").parquet(str(written / f"batch={batch}"))

    def run(**options: object) -> None:
        writer = foreach_batch(
            spark, queue.name, write, startingOffsets="earliest", **options
        ).option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(120)

    put(queue, 0, 0, 40)
    run(maxOffsetsPerTrigger=15)
    put(queue, 1, 0, 20)
    undo_commit(tmp_path / "checkpoint", 2)
    run()
    assert values(spark.read.parquet(str(written))) == numbered(40, 20)


@pytest.mark.thorough("a Spark Connect server of its own, 25 s")
def test_under_connect_the_data_source_reads_and_writes_and_that_is_said_once(
    make_queue: MakeQueue, connection: dict[str, str], tmp_path: Path
) -> None:
    queue, target = make_queue(2), make_queue(2)
    put(queue, 0, 0, 40)
    put(queue, 1, 0, 20)
    log = tmp_path / "log"
    with log.open("wb") as errors:
        done = subprocess.run(
            [
                sys.executable,
                str(CONNECT),
                queue.name,
                target.name,
                json.dumps(connection),
                str(tmp_path),
            ],
            env={**os.environ, "PYSPARK_PYTHON": sys.executable},
            stdout=subprocess.PIPE,
            stderr=errors,
            timeout=300,
            check=False,
        )
    assert done.returncode == 0, log.read_text(errors="replace")[-5_000:]
    found = json.loads(done.stdout.splitlines()[-1])
    expected = sorted(numbered(40, 20))
    assert [*found["reads"], found["written"]] == [expected] * 5
    assert sorted(message.value.decode() for message in target.scan()) == sorted(expected * 2)
    assert len(found["said"]) == 1
    assert "Spark Connect" in found["said"][0]

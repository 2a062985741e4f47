"""What a user sees first of an error: one line that says what is wrong, and soon."""

from __future__ import annotations

import socket
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import hqueue
from hqueue import SettingsError
from pyspark_hqueue import foreach_batch, read
from pyspark_hqueue.reading import located
from tests.support.waiting import wait_for

from .queries import put

MakeQueue = Callable[..., hqueue.Queue]
Connection = dict[str, str]

BOUND = {"hqueue.operation_timeout_ms": "500"}
SOON_S = 40.0
"""Below the default bound, and enough for Spark on a busy machine."""


def first_line(run: Callable[[], object]) -> str:
    """The first line of what Spark raises; of a task's error the one below Spark's own."""
    with pytest.raises(PySparkException) as caught:
        run()
    shown = str(caught.value).split("JVM stacktrace:")[0]
    assert "Traceback" not in shown
    assert "another exception" not in shown
    lines = str(caught.value).splitlines()
    return lines[1] if lines[0].endswith("from the Python worker:") else lines[0]


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a server that accepts connections, and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=100) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def absent() -> str:
    """An address at which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"subscribes": "a"}, "unknown option [option='subscribes', closest='subscribe']"),
        ({"includeHeaders": "yes"}, "true or false [option='includeHeaders', value='yes']"),
        ({"hqueue.gateway": "x"}, "unknown setting [setting='gateway', closest='gateways']"),
        ({"assign": "x"}, "option='assign'"),
    ],
)
def test_a_wrong_option_is_named_when_a_read_is_described(
    spark: SparkSession, options: dict[str, str], text: str
) -> None:
    for reader in (spark.read, spark.readStream):
        assert text in first_line(reader.format("hqueue").options(**options, queue="q").load)


def test_what_the_queue_or_the_kind_of_read_decides_is_said_when_it_runs(
    make_queue: MakeQueue, load: Callable[..., DataFrame], spark: SparkSession, tmp_path: Path
) -> None:
    queue = make_queue(2)
    for options, text in (
        ({"assign": "7"}, "the queue has no such partition"),
        ({"startingOffsets": '{"0": -2}'}, "must name every partition"),
        ({"maxOffsetsPerTrigger": 3}, "only for a stream [option='maxOffsetsPerTrigger'"),
    ):
        assert text in first_line(load(queue, **options).collect)
    absent = spark.read.format("hqueue").load("there-is-none")
    assert "QueueNotFoundError: there is no such queue" in first_line(absent.collect)
    other = spark.read.format("hqueue").schema("a int").load(queue.name)
    assert "give no schema" in first_line(other.collect)
    ends = spark.readStream.format("hqueue").option("endingOffsets", "latest").load(queue.name)
    query = ends.writeStream.format("noop").option("checkpointLocation", str(tmp_path))
    line = first_line(lambda: query.start().awaitTermination(120))
    assert "only for a batch [option='endingOffsets'" in line


def test_a_task_s_error_has_no_frames(
    make_queue: MakeQueue, spark: SparkSession, connection: Connection
) -> None:
    writer = spark.sql("SELECT 't' topic, cast(null AS string) value").write.format("hqueue")
    writer = writer.mode("append").options(**connection, queue=make_queue(1).name)
    assert first_line(writer.save).startswith("hqueue.errors.InvalidInputError: ")


@pytest.mark.parametrize("there", ["silent", "absent"])
def test_a_read_a_stream_and_a_write_that_reach_no_server_end_in_their_bound(
    spark: SparkSession, tmp_path: Path, there: str, request: pytest.FixtureRequest
) -> None:
    address = request.getfixturevalue(there)
    gateway = f"{address}/{address.rpartition(':')[2]}"
    nowhere = {**BOUND, "queue": "q", "hqueue.gateways": gateway}
    stream = spark.readStream.format("hqueue").options(**nowhere).load()
    rows = spark.sql("SELECT 't' topic, 'v' value").write.format("hqueue").mode("append")

    def run_stream() -> None:
        writer = stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path))
        writer.start().awaitTermination(120)

    for run in (
        spark.read.format("hqueue").options(**nowhere).load().collect,
        rows.options(**nowhere).save,
        run_stream,
    ):
        begun_s = time.monotonic()
        line = first_line(run)
        assert time.monotonic() - begun_s < SOON_S
        assert "StoreUnavailableError: the gateway " in line
        assert gateway in line


@pytest.mark.parametrize(
    ("trigger", "text"),
    [
        ({"continuous": "1 second"}, "hqueue does not support continuous processing"),
        ({"realTime": "5 seconds"}, "STREAMING_REAL_TIME_MODE"),
    ],
)
def test_a_stream_is_not_read_in_continuous_and_real_time_mode(
    make_queue: MakeQueue,
    spark: SparkSession,
    connection: Connection,
    trigger: dict[str, Any],
    text: str,
) -> None:
    queue = make_queue(1)
    stream = spark.readStream.format("hqueue").options(**connection, queue=queue.name).load()
    writer = stream.writeStream.format("noop").outputMode("update").trigger(**trigger)
    line = first_line(lambda: writer.start().awaitTermination(120))
    assert text in line


def test_nothing_that_a_continuous_query_drops_counts_as_written(
    make_queue: MakeQueue, spark: SparkSession, connection: Connection, tmp_path: Path
) -> None:
    queue = make_queue(1)
    rate = spark.readStream.format("rate").option("rowsPerSecond", 10).load()
    query = (
        rate.selectExpr("'t' topic", "string(value) value")
        .writeStream.format("hqueue")
        .options(**connection, queue=queue.name, checkpointLocation=str(tmp_path))
        .trigger(continuous="100 milliseconds")
        .start()
    )
    try:
        wait_for((tmp_path / "offsets" / "2").exists, "two epochs have ended", timeout_s=120)
    finally:
        query.stop()
    assert list(queue.scan()) == []
    assert not list((tmp_path / "commits").glob("[0-9]*"))


def test_the_python_of_tasks_is_checked_before_and_in_a_task(
    make_queue: MakeQueue, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    queue = make_queue(1)
    put(queue, 0, 0, 10)
    bare = tmp_path / "python"  # Of no environment.
    bare.symlink_to(Path(sys.executable).resolve())
    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(bare))
    with pytest.raises(SettingsError, match=r"has no HQueue.*set PYSPARK_PYTHON") as caught:
        read(spark, queue.name)
    assert caught.value.runs == str(bare)
    with pytest.raises(SettingsError, match="has no HQueue"):
        foreach_batch(spark, queue.name, lambda frame, batch: None)
    monkeypatch.setattr(located, "check_tasks", lambda spark: None)  # As on a cluster.
    packages = sysconfig.get_path("purelib")  # They have Arrow, and only a pointer to HQueue.
    monkeypatch.setitem(spark.sparkContext.environment, "PYTHONPATH", packages)
    assert str(bare) in first_line(read(spark, queue.name).collect)

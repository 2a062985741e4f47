"""A driver that writes one queue into another: ``write.py <options as JSON>``.

It copies queue ``source`` into queue ``target``, in batch (``writeId`` given or not) or, with a
``checkpoint``, as a stream of several batches; on this machine's cores or on a Spark cluster whose
``master`` is given, where a task that takes long is begun a second time. The sink is the real one,
cut into small chunks; at one ``point`` of it something happens, once for each name of ``mark``:

    plan, rows, chunk, put, commit, committed   the points, in their order
    kill     the Python process that is there is killed
    fail     it fails
    wait     it stands still, out of reach of the test that kills the driver, until ``mark.go`` is
    there stall    it stands still until then, or until Spark kills it
    twin     it fails, and leaves a twin that goes on as if nothing had happened

``mark`` is there as soon as the point is reached. It prints ``done`` at the end.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark import TaskContext
from pyspark.sql import SparkSession

from pyspark_hqueue import DefaultSource

OPTIONS = json.loads(sys.argv[1])
CHUNK_MESSAGES = 10
WAIT_S = 120


def at(point: str, options: dict[str, Any]) -> None:
    """Let happen what shall happen here, if it did not yet."""
    if options.get("point") != point:
        return
    task = TaskContext.get()
    epoch = options.get("epoch")
    if task and epoch and task.getLocalProperty("streaming.sql.batchId") != str(epoch):
        return
    mark = Path(options["mark"])
    try:
        mark.touch(exist_ok=False)
    except FileExistsError:
        return
    match options["what"]:
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "fail":
            raise RuntimeError("this was planned")
        case "wait":
            os.setsid()
            stand_still(mark)
        case "stall":
            stand_still(mark)
        case "twin":
            if os.fork():
                raise RuntimeError("this was planned, and a twin goes on")
            os.setsid()
            stand_still(mark)


def stand_still(mark: Path) -> None:
    ends = time.monotonic() + WAIT_S
    while not mark.with_suffix(".go").exists():
        if time.monotonic() > ends:
            os._exit(1)
        time.sleep(0.02)


def faulty(writer: Any, options: dict[str, Any]) -> Any:
    """The sink's writer with points in it."""

    class Faulty(type(writer)):  # type: ignore[misc]
        def write(self, iterator: Iterator[Any]) -> Any:
            from pyspark_hqueue.writing import chunks  # noqa: PLC0415

            chunks.CHUNK_MESSAGES = CHUNK_MESSAGES
            rows = list(iterator)  # A process that stands still has what it needs to go on.
            at("rows", options)

            def given() -> Iterator[Any]:
                for number, some in enumerate(rows):
                    yield some
                    if number == 1:
                        at("chunk", options)

            try:
                written = super().write(given())
                at("put", options)
            finally:
                if os.getpid() == os.getsid(0):  # Who goes on alone tells nobody else.
                    Path(options["mark"]).with_suffix(".end").touch()
                    os._exit(0)
            return written

        def commit(self, messages: Any, *batch: Any) -> None:
            at("commit", options)
            super().commit(messages, *batch)
            at("committed", options)

    writer.__class__ = Faulty
    return writer


class FaultySource(DefaultSource):
    """The data source with a faulty sink."""

    faults: dict[str, Any] = OPTIONS

    @classmethod
    def name(cls) -> str:
        return "faulty"

    def writer(self, schema: Any, overwrite: bool) -> Any:
        at("plan", self.faults)
        return faulty(super().writer(schema, overwrite), self.faults)

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:  # noqa: N802
        at("plan", self.faults)
        return faulty(super().streamWriter(schema, overwrite), self.faults)


def main() -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master(OPTIONS.get("master", "local[2,3]"))
        .config("spark.ui.enabled", "false")
        .config("spark.executor.memory", "512m")
        # A second try of whatever takes longer than others, as soon as there are others.
        .config("spark.speculation", str("master" in OPTIONS).lower())
        .config("spark.speculation.quantile", "0.5")
        .config("spark.speculation.minTaskRuntime", "500ms")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "10")
        .getOrCreate()
    )
    spark.dataSource.register(FaultySource)
    connection = OPTIONS["connection"]
    columns = ["topic", "value", *(["value as key"] if OPTIONS.get("keys") else [])]
    if OPTIONS.get("checkpoint"):
        frame = (
            spark.readStream.format("hqueue")
            .options(**connection, queue=OPTIONS["source"], startingOffsets="earliest")
            .option("maxOffsetsPerTrigger", "100")
            .option("minPartitions", "2")
            .load()
        )
        query = (
            frame.selectExpr(*columns)
            .writeStream.format("faulty")
            .options(**connection, queue=OPTIONS["target"])
            .option("checkpointLocation", OPTIONS["checkpoint"])
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(WAIT_S)
    else:
        frame = spark.read.format("hqueue").options(**connection, queue=OPTIONS["source"])
        writer = frame.option("minPartitions", "2").load().selectExpr(*columns).write
        if OPTIONS.get("writeId"):
            writer = writer.option("writeId", OPTIONS["writeId"])
        writer.format("faulty").mode("append").options(**connection, queue=OPTIONS["target"]).save()
    print("done", flush=True)


main()

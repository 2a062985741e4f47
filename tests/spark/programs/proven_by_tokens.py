"""Reads, streams and writes where only the driver can prove who it is. It logs all that Python
says, at the level of debugging.

Its argument is JSON: ``master``, ``options`` of the connection, the queues ``source``, ``copies``
and ``written``, and the folders ``checkpoint`` and ``events``. It writes what came of each step to
stdout, a line of JSON each, streams until a line comes in, and ends.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import sys
import time
from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from pyspark_hqueue import read


def say(step: str, found: object) -> None:
    print(json.dumps({step: found}), flush=True)


def plans_of(frame: DataFrame) -> str:
    """All that Spark shows of a plan."""
    written = io.StringIO()
    with contextlib.redirect_stdout(written):
        for mode in ("extended", "codegen", "cost", "formatted"):
            frame.explain(mode)
    execution: Any = frame._jdf.queryExecution()
    return "\n".join((written.getvalue(), str(execution), execution.logical().toJSON()))


def refusal(options: Mapping[str, str]) -> str:
    """The error in an executor that proves itself by a ticket."""
    import hqueue  # noqa: PLC0415
    from hqueue.errors import AuthenticationError  # noqa: PLC0415

    # A local server that runs beside may have gateways.
    known = {name.removeprefix("hqueue."): value for name, value in options.items()}
    known["hbase"] = "native"
    del known["kerberos_keytab"], known["kerberos_config"]
    try:
        with hqueue.connect(**known) as client:  # type: ignore[arg-type]
            client.queue("any")
    except AuthenticationError as exc:
        return exc.text
    return "let in"


def main(given: Mapping[str, Any]) -> None:
    logging.basicConfig(level=logging.DEBUG)
    spark = (
        SparkSession.builder.master(given["master"])
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.executor.memory", "512m")
        .config("spark.eventLog.enabled", "true")
        .config("spark.eventLog.compress", "false")
        .config("spark.eventLog.dir", given["events"])
        .getOrCreate()
    )
    options, source = given["options"], given["source"]
    stream = (
        spark.readStream.format("hqueue")
        .options(**options, queue=source, startingOffsets="earliest", minPartitions="2")
        .load()
        .select("topic", "value")
        .writeStream.format("hqueue")
        .options(**options, queue=given["copies"], checkpointLocation=given["checkpoint"])
        .trigger(processingTime="1 second")
        .start()
    )
    while not stream.lastProgress or not stream.lastProgress["numInputRows"]:
        assert stream.isActive, stream.exception()
        time.sleep(0.1)
    say("streamed", True)
    reader = spark.read.format("hqueue").options(**options, queue=source, minPartitions="2")
    frame = reader.load()
    say("read", frame.count())
    located = read(spark, source, **options)
    say("located", located.count())
    few = reader.load().limit(5).select("topic", "value")
    few.write.format("hqueue").options(**options, queue=given["written"]).mode("append").save()
    say("written", True)
    say("plans", [plans_of(frame), plans_of(located)])
    tried = spark.sparkContext.parallelize(range(2), 2).map(lambda _: refusal(options))
    say("refused", tried.collect())
    sys.stdin.readline()
    failure = stream.exception()
    say("stream", None if failure is None else str(failure))
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))

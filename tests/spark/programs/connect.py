"""Reads and writes queues under Spark Connect: ``connect.py <queue> <target> <options> <folder>``.

Prints as JSON what the data source gave in Python and in SQL, what two reads gave, what a stream
wrote to the folder, and what was logged. It writes the queue into the target twice, in batch and as
a stream.
"""

from __future__ import annotations

import json
import logging
import sys

from pyspark.sql import DataFrame, SparkSession

from pyspark_hqueue import foreach_batch, read


class Said(logging.Handler):
    """Keeps the texts of what is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


def main(queue: str, target: str, given: str, folder: str) -> None:
    said = Said()
    logging.getLogger("pyspark_hqueue").addHandler(said)
    spark = SparkSession.builder.remote("local[1]").getOrCreate()
    options = json.loads(given)

    def values(frame: DataFrame) -> list[str]:
        return sorted(bytes(row.value).decode() for row in frame.select("value").collect())

    def write(frame: DataFrame, _: int) -> None:
        frame.select("value").write.mode("append").parquet(f"{folder}/written")

    source = spark.read.format("hqueue").options(**options, queue=queue).load()
    in_sql = ", ".join(f"`{name}` '{value}'" for name, value in {**options, "queue": queue}.items())
    spark.sql(f"CREATE TEMPORARY VIEW messages USING hqueue OPTIONS ({in_sql})")
    reads = [values(source), values(spark.sql("SELECT value FROM messages"))]
    reads += [values(read(spark, queue, columns=["value"], **options)) for _ in range(2)]

    stream = foreach_batch(spark, queue, write, startingOffsets="earliest", **options)
    query = stream.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True)
    assert query.start().awaitTermination(120)
    written = values(spark.read.parquet(f"{folder}/written"))

    there = {**options, "queue": target}
    source.write.format("hqueue").mode("append").options(**there).save()
    stream = spark.readStream.format("hqueue").options(**options, queue=queue)
    sink = stream.option("startingOffsets", "earliest").load().writeStream.format("hqueue")
    sink = sink.options(**there, checkpointLocation=f"{folder}/copied").trigger(availableNow=True)
    assert sink.start().awaitTermination(120)
    print(json.dumps({"reads": reads, "written": written, "said": said.texts}))
    spark.stop()


main(*sys.argv[1:])

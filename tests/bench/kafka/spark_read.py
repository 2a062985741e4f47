"""``python -m tests.bench.kafka.spark_read``: the same read in Spark, of a queue and of a topic.

A program of its own, as it needs the Spark that Kafka's source is available for. Its argument is
the JSON of a `Reads`; it prints the rates of each reader, of every round, as JSON.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from collections.abc import Callable

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from pyspark_hqueue import read

from ..measure import compare, rate

__all__ = ["KAFKA", "LOCATED", "SOURCE", "Reads"]

CORES = 2
SOURCE, LOCATED, KAFKA = "hqueue, data source", "hqueue, located read", "Kafka's source"


@dataclasses.dataclass(frozen=True)
class Reads:
    """What is read: a queue and a topic with the same messages."""

    queue: str
    zookeeper: str
    topic: str
    broker: str
    jars: str
    """Those of Kafka's source, as Spark's option has them."""
    messages: int
    bytes: int
    rounds: int


def main(reads: Reads) -> dict[str, tuple[float, ...]]:
    """Count and sum of lengths, by each reader in turn."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(f"local[{CORES}]").config("spark.jars", reads.jars)
    builder = builder.config("spark.ui.enabled", "false").config("spark.driver.host", "127.0.0.1")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    spark = builder.config("spark.sql.shuffle.partitions", str(CORES)).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    settings = {"hqueue.hbase": "native", "hqueue.zookeeper": reads.zookeeper}
    hqueue = {"queue": reads.queue, **settings}
    kafka = {
        "kafka.bootstrap.servers": reads.broker,
        "subscribe": reads.topic,
        "startingOffsets": "earliest",
    }

    def counted(frame: Callable[[], DataFrame]) -> Callable[[], float]:
        def work() -> int:
            (row,) = frame().select(F.count("*"), F.sum(F.length("value"))).collect()
            assert tuple(row) == (reads.messages, reads.messages * reads.bytes), row
            return reads.messages

        return rate(work)

    try:
        return dict(
            compare(
                {
                    SOURCE: counted(lambda: spark.read.format("hqueue").options(**hqueue).load()),
                    LOCATED: counted(
                        lambda: read(
                            spark,
                            reads.queue,
                            columns=["value"],
                            **settings,
                        )
                    ),
                    KAFKA: counted(lambda: spark.read.format("kafka").options(**kafka).load()),
                },
                reads.rounds,
            )
        )
    finally:
        spark.stop()


if __name__ == "__main__":
    print(json.dumps(main(Reads(**json.loads(sys.argv[1])))))

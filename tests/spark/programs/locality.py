"""Reads a queue for every line that comes in, and says where each task ran and what it read.

Arguments: Spark's master, the queue, its gateways.
"""

from __future__ import annotations

import json
import sys
import urllib.request
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from pyspark_hqueue import read


class Interface:
    """Spark's own interface, which knows where each task ran."""

    def __init__(self, spark: SparkSession) -> None:
        context = spark.sparkContext
        self._url = f"{context.uiWebUrl}/api/v1/applications/{context.applicationId}"
        self._seen = -1

    def tasks_of_the_read(self) -> list[dict[str, Any]]:
        """The tasks of the first stage since the last call: the one that has read."""
        stages = sorted(stage["stageId"] for stage in self._get("stages?status=complete"))
        first = next(stage for stage in stages if stage > self._seen)
        self._seen = stages[-1]
        return self._get(f"stages/{first}/0/taskList?length=10000")

    def _get(self, path: str) -> list[dict[str, Any]]:
        with urllib.request.urlopen(f"{self._url}/{path}", timeout=60) as answer:
            found: list[dict[str, Any]] = json.load(answer)
        return found


def main(master: str, queue: str, gateways: str) -> None:
    spark = (
        SparkSession.builder.master(master)
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.port", "0")
        .config("spark.executor.memory", "512m")
        # The first tasks start Python, which takes seconds where fifteen servers start as well.
        .config("spark.locality.wait", "120s")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.scheduler.minRegisteredResourcesRatio", "1.0")
        .config("spark.scheduler.maxRegisteredResourcesWaitingTime", "120s")
        .getOrCreate()
    )
    interface = Interface(spark)
    print("ready", flush=True)
    for _ in sys.stdin:
        frame = read(spark, queue, minPartitions=12, **{"hqueue.gateways": gateways})
        by_task = frame.select("partition", F.spark_partition_id().alias("task"))
        rows = by_task.groupBy("task", "partition").count().collect()
        tasks = interface.tasks_of_the_read()
        found = [
            {
                "host": task["host"],
                "locality": task["taskLocality"],
                "partitions": {
                    str(r.partition): r["count"] for r in rows if r.task == task["index"]
                },
            }
            for task in tasks
        ]
        print(json.dumps(found), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])

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


def tasks_of_the_last_read(spark: SparkSession) -> list[dict[str, Any]]:
    """The tasks of the stage that has read, as Spark's own interface reports them."""
    url = f"{spark.sparkContext.uiWebUrl}/api/v1/applications/{spark.sparkContext.applicationId}"
    with urllib.request.urlopen(f"{url}/stages?status=complete", timeout=60) as answer:
        stages = json.load(answer)
    newest = max(stage["stageId"] for stage in stages if "mapInArrow" in str(stage))
    with urllib.request.urlopen(
        f"{url}/stages/{newest}/0/taskList?length=10000", timeout=60
    ) as answer:
        tasks: list[dict[str, Any]] = json.load(answer)
    return tasks


def main(master: str, queue: str, gateways: str) -> None:
    spark = (
        SparkSession.builder.master(master)
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.port", "0")
        .config("spark.executor.memory", "512m")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.scheduler.minRegisteredResourcesRatio", "1.0")
        .config("spark.scheduler.maxRegisteredResourcesWaitingTime", "120s")
        .getOrCreate()
    )
    print("ready", flush=True)
    for _ in sys.stdin:
        frame = read(spark, queue, minPartitions=12, **{"hqueue.gateways": gateways})
        by_task = frame.select("partition", F.spark_partition_id().alias("task"))
        rows = by_task.groupBy("task", "partition").count().collect()
        tasks = tasks_of_the_last_read(spark)
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

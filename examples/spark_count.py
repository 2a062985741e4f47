"""Count a queue's messages in Spark, by topic.

python examples/spark_count.py events
"""

from __future__ import annotations

import argparse
import os
import sys

from pyspark.sql import SparkSession


def main() -> None:
    parser = argparse.ArgumentParser(description="Count a queue's messages by topic.")
    parser.add_argument("queue", help="its name; it must be there")
    arguments = parser.parse_args()

    # Spark starts its workers with the first python3 in PATH, which has hqueue only if this
    # environment is activated.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = SparkSession.builder.appName("spark_count").getOrCreate()
    try:
        # Nothing to register: Spark finds the data source where hqueue is installed.
        messages = spark.read.format("hqueue").option("queue", arguments.queue).load()
        for row in messages.groupBy("topic").count().orderBy("topic").collect():
            print(f"{row['topic']}: {row['count']}")
    finally:
        spark.stop()


if __name__ == "__main__":
    main()

"""The Spark session of a job that is a program of its own."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping

from pyspark.sql import SparkSession

__all__ = ["spark_session"]


@contextlib.contextmanager
def spark_session(
    name: str, master: str | None = None, conf: Mapping[str, str] | None = None
) -> Iterator[SparkSession]:
    """A session, which is stopped at the end unless it was there before.

    Args:
        name: the application's.
        master: where to run; what ``spark-submit`` said, or all of this machine, if None.
        conf: Spark's settings.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    there = SparkSession.getActiveSession()
    builder = SparkSession.builder.appName(f"hqueue {name}")
    if master is not None:
        builder = builder.master(master)
    for key, value in {"spark.log.level": "ERROR", **(conf or {})}.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    try:
        yield spark
    finally:
        if there is None:
            spark.stop()

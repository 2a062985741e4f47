"""Spark in the demo: the messages of the queue, counted by windows of time in a Spark job."""

from __future__ import annotations

import dataclasses
import importlib.util
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark_hqueue.jobs.queue_statistics import Statistics

__all__ = ["Counted", "count_in_spark"]


@dataclasses.dataclass(frozen=True)
class Counted:
    """What Spark has counted, and how long the job took, without Spark's start."""

    statistics: Statistics
    seconds: float


def count_in_spark(queue: str, options: Mapping[str, str]) -> Counted | None:
    """Count the messages of a queue in Spark; None where PySpark is not installed.

    Args:
        queue: the queue's name.
        options: the connection's settings, as options of the data source.
    """
    if importlib.util.find_spec("pyspark") is None:
        return None
    from pyspark_hqueue.jobs.queue_statistics import Counting  # noqa: PLC0415  (an extra)
    from pyspark_hqueue.jobs.sessions import spark_session  # noqa: PLC0415

    with spark_session("demo") as spark:
        begun_s = time.monotonic()
        found = Counting(queue, options=options).by_messages(spark)
        return Counted(found, time.monotonic() - begun_s)

"""Spark in ``hqueue demo``: the queue's messages, counted by windows of time in a Spark job."""

from __future__ import annotations

import time
from collections.abc import Mapping

from pyspark_hqueue.jobs.command_statistics import show_statistics
from pyspark_hqueue.jobs.queue_statistics import Counting, Statistics
from pyspark_hqueue.jobs.sessions import spark_session

__all__ = ["Counted", "count"]

TOP = 5


class Counted:
    """What Spark has counted, and how long the job took, without Spark's start."""

    def __init__(self, statistics: Statistics, seconds: float) -> None:
        self._statistics = statistics
        self.seconds = seconds

    @property
    def messages(self) -> int:
        """All that were counted."""
        return self._statistics.messages

    @property
    def window_ms(self) -> int:
        """How long the windows of time are."""
        return self._statistics.window_ms

    def show(self) -> None:
        """Write the counts to stdout."""
        show_statistics(self._statistics, top=TOP, json=False)


def count(queue: str, options: Mapping[str, str]) -> Counted:
    """Count the messages of a queue in Spark.

    Args:
        queue: the queue's name.
        options: the connection's settings, as options of the data source.
    """
    with spark_session("demo", quiet=True) as spark:
        begun_s = time.monotonic()
        found = Counting(queue, options=options).by_messages(spark)
        return Counted(found, time.monotonic() - begun_s)

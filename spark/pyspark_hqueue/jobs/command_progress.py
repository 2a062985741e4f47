"""Showing how far a pipeline is: its messages, and Spark's tasks."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from typing import TYPE_CHECKING

from hqueue.cli.progress import display
from hqueue.runtime.threads import start

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["MessagesDone"]

LOOK_EVERY_S = 0.5


class MessagesDone:
    """A progress bar on stderr, if that is a terminal, and a count of messages.

    Args:
        label: what goes on.
        total: messages, at the beginning; more may come.
        spark: whose tasks are shown.
    """

    def __init__(self, label: str, total: int, spark: SparkSession) -> None:
        self._label = label
        self._total = total
        self._spark = spark
        self._begun_s = time.monotonic()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self.messages = 0
        self.seconds = 0.0

    def __enter__(self) -> MessagesDone:
        if sys.stderr.isatty():
            self._thread = start(self._show, name="hqueue-progress")
        return self

    def __exit__(self, *exc: object) -> None:
        self.seconds = time.monotonic() - self._begun_s
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def advance(self, messages: int) -> None:
        """This many messages more are done."""
        self.messages += messages
        self.seconds = time.monotonic() - self._begun_s

    def _show(self) -> None:
        with display(
            *("{task.description}", "BarColumn", "MofNCompleteColumn"),
            *("{task.fields[tasks]}", "TimeElapsedColumn"),
        ) as bar:
            task = bar.add_task(self._label, total=self._total, tasks="")
            while not self._ended.wait(LOOK_EVERY_S):
                total = max(self._total, self.messages)
                bar.update(task, completed=self.messages, total=total, tasks=self._tasks())

    def _tasks(self) -> str:
        """The tasks of the stages that run, or nothing where Spark does not tell."""
        done = wanted = 0
        with contextlib.suppress(Exception):  # Spark may be ending.
            tracker = self._spark.sparkContext.statusTracker()
            for number in tracker.getActiveStageIds():
                stage = tracker.getStageInfo(number)
                if stage is not None:
                    done, wanted = done + stage.numCompletedTasks, wanted + stage.numTasks
        return f"task {done} of {wanted}" if wanted else ""

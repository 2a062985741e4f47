"""Shows what a pipeline would do, its progress, and what it has done."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from hqueue.cli.exits import say
from hqueue.cli.output import show_table
from hqueue.cli.progress import count_text, display
from hqueue.message_id import MessageID
from hqueue.runtime.threads import start

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pyspark_hqueue.reading.plan import Range

__all__ = ["MessagesDone", "messages_in", "show_ranges", "show_summary"]

LOOK_EVERY_S = 0.5


class MessagesDone:
    """A progress bar on stderr, if that is a terminal, and a count of messages.

    Args:
        label: the name of the work.
        total: the number of messages at the beginning; more may come.
        spark: the session whose tasks are shown.
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
        """Count this many more messages as done."""
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
        """The tasks of the running stages; empty if Spark does not report them."""
        done = wanted = 0
        with contextlib.suppress(Exception):  # Spark may be ending.
            tracker = self._spark.sparkContext.statusTracker()
            for number in tracker.getActiveStageIds():
                stage = tracker.getStageInfo(number)
                if stage is not None:
                    done, wanted = done + stage.numCompletedTasks, wanted + stage.numTasks
        return f"task {done} of {wanted}" if wanted else ""


def messages_in(ranges: Sequence[Range]) -> int:
    """How many messages the ranges have, of all topics."""
    return sum(range_.messages for range_ in ranges)


def show_ranges(ranges: Sequence[Range], what: str) -> None:
    """Write to stdout the ranges that a command would read, and to stderr a summary."""
    show_table(
        ("partition", "from", "to", "messages"),
        [
            (
                range_.partition,
                MessageID.from_int(range_.start),
                MessageID.from_int(range_.stop),
                range_.messages,
            )
            for range_ in ranges
        ],
        numbers=("partition", "messages"),
    )
    count = count_text(messages_in(ranges), "message")
    say(f"{count} of all topics in {count_text(len(ranges), 'partition')} {what}.")


def show_summary(what: str, messages: int, seconds: float, more: str) -> None:
    """Write to stderr what a command has done, in one line.

    Args:
        what: what happened to the messages.
        messages: the number of messages.
        seconds: the time that it took.
        more: a text in brackets after the number of messages; none if empty.
    """
    rate = f", {messages / seconds:,.0f} messages/s" if messages and seconds > 0 else ""
    more = f" ({more})" if more else ""
    say(f"{count_text(messages, 'message')}{more} {what} in {seconds:.2f} s{rate}.")

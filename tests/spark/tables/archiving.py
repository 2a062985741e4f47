"""Archives of queues in tables, and what a reader finds in them."""

from __future__ import annotations

import dataclasses
import itertools
import shutil
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import hqueue
from pyspark_hqueue.jobs.archive import Archive
from pyspark_hqueue.jobs.archive_target import Archived
from pyspark_hqueue.jobs.rounds import Round

from ..test_pipelines import CutOff

__all__ = ["Archiving", "Rows", "fail", "new_table", "next_name", "rows_of"]

_numbers = itertools.count()

Rows = dict[int, list[tuple[str, bytes]]]
"""The topics and values of each partition, in the order of the IDs."""


def next_name(prefix: str) -> str:
    """A name that no other queue or table has."""
    return f"{prefix}{next(_numbers)}"


def new_table(output_format: str) -> str:
    """The name of a table that does not exist."""
    return next_name("lake.db.t" if output_format == "iceberg" else "t")


def rows_of(frame: DataFrame) -> Rows:
    found: Rows = {}
    for row in frame.orderBy("partition", "id").collect():
        found.setdefault(row.partition, []).append((row.topic, bytes(row.value)))
    return found


def fail(*_: object) -> None:
    raise CutOff("after the round")


class Archiving:
    """Runs archives of one queue in one table."""

    def __init__(
        self, spark: SparkSession, queue: hqueue.Queue, output_format: str, folder: Path,
        connection: dict[str, str],
    ) -> None:  # fmt: skip
        self.spark = spark
        self.queue = queue
        self.output_format = output_format
        self.folder = folder
        self.connection = connection
        self.table = new_table(output_format)

    @property
    def checkpoint(self) -> Path:
        """The folder of the checkpoint."""
        return self.folder / f"checkpoint-{self.table}"

    def job(self, **arguments: object) -> Archive:
        given = {
            "output_format": self.output_format,
            "checkpoint": str(self.checkpoint),
            "options": self.connection,
            **arguments,
        }
        return Archive(self.spark, self.queue.name, self.table, **given)  # type: ignore[arg-type]

    def run(self) -> list[Archived]:
        rounds: list[Archived] = []
        self.job().run(lambda _, archived: rounds.append(archived))
        return rounds

    def frame(self) -> DataFrame:
        if "/" in self.table:
            return self.spark.read.format("delta").load(self.table)
        self.spark.catalog.refreshTable(self.table)
        return self.spark.table(self.table)

    def rows(self) -> Rows:
        return rows_of(self.frame())

    def files(self) -> list[str]:
        """The data files that readers read."""
        if self.output_format == "delta":
            found = self.frame().inputFiles()
        else:
            rows = self.spark.table(f"{self.table}.files").select("file_path").collect()
            found = [row.file_path for row in rows]
        return [each.removeprefix("file://").removeprefix("file:") for each in found]

    def commits(self) -> int:
        """How many commits the table has."""
        if self.output_format == "delta":
            return self.spark.sql(f"DESCRIBE HISTORY {self.table}").count()
        self.spark.catalog.refreshTable(self.table)
        return self.spark.table(f"{self.table}.history").count()

    def written_round(self) -> tuple[Archive, Round]:
        """A round that was written, and then cut off before the checkpoint had it."""
        job = self.job()
        rounds: list[Round] = []
        write = job.target.write

        def noted(round_: Round) -> Archived:
            rounds.append(round_)
            return write(round_)

        job.target.write = noted  # type: ignore[method-assign]
        with pytest.raises(hqueue.HQueueError):
            job.run(fail)
        del job.target.write
        return job, rounds[0]

    def planned(self, round_: Round) -> Round:
        """A round after this one with the same messages, which the checkpoint knows."""
        later = dataclasses.replace(round_, number=round_.number + 1)
        offsets = self.checkpoint / "offsets"
        shutil.copy(offsets / str(round_.number), offsets / str(later.number))
        return later

"""Compacting an archive: many small files become fewer, while others write and read it.

How old files are replaced is in `pyspark_hqueue.jobs.compactions`.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from hqueue import InvalidInputError
from pyspark_hqueue.jobs.compactions import compact_by_date, groups_of
from pyspark_hqueue.jobs.failures import JobError, translated
from pyspark_hqueue.jobs.folder import Folder
from pyspark_hqueue.jobs.manifest import (
    COMPACTING,
    CompactionRecord,
    Contents,
    Group,
    archived_queue,
    contents_of,
)
from pyspark_hqueue.jobs.parquet_options import ParquetOptions, sorted_rows
from pyspark_hqueue.reading.schema import WITH_HEADERS

__all__ = ["Compact"]

COLUMNS = StructType([field for field in WITH_HEADERS if field.name != "topic"])
_PATH = "regexp_replace(_metadata.file_path, '^[^:/]+:(//[^/]*)?', '')"


class Compact:
    """Fewer and larger files for an archive. Messages stay what they are, each of them once.

    Files that an earlier version wrote get the columns and times of this one.

    Args:
        spark: the session.
        path: the folder of an archive.
        parquet: how the files are written.
        rewrite_all: also write files again that are large enough.

    Raises:
        InvalidInputError: the folder is not an archive.
    """

    def __init__(
        self,
        spark: SparkSession,
        path: str,
        *,
        parquet: ParquetOptions | None = None,
        rewrite_all: bool = False,
    ) -> None:
        self._parquet = parquet or ParquetOptions()
        self._spark = self._parquet.session(spark)
        # Otherwise Spark looks at each of many small files in a task of its own.
        self._spark.conf.set("spark.sql.sources.parallelPartitionDiscovery.parallelism", 32)
        self._rewrite_all = rewrite_all
        self.folder = Folder(spark, path)
        if archived_queue(self.folder) is None:
            raise InvalidInputError(
                "this folder is not an archive: give an archive's folder", path=self.folder.uri
            )

    def pending(self) -> list[Group]:
        """Which files would be replaced. Nothing is changed by asking."""
        return self._groups(contents_of(self.folder))

    def _groups(self, contents: Contents) -> list[Group]:
        target = self._parquet.target_file_size_bytes
        return groups_of(contents, target, rewrite_all=self._rewrite_all)

    def run(self, on_compaction: Callable[[CompactionRecord], None] | None = None) -> None:
        """Replace what is pending, after what a run that was killed has left.

        Args:
            on_compaction: called after each date.

        Raises:
            JobError: Spark failed, or another run compacts the archive.
        """
        compact_by_date(self.folder, self._groups, self._write, on_compaction)

    def _write(self, contents: Contents, number: int, groups: list[Group]) -> CompactionRecord:
        """Write what replaces the files of these groups, aside."""
        attempt = f"{number:08d}-{uuid.uuid4().hex[:12]}"
        uri = self.folder.inside(f"{COMPACTING}/{attempt}")
        with translated():
            messages, ends = self._write_files(uri, self._read(contents, groups), len(groups))
        return CompactionRecord(number, attempt, tuple(groups), ends, messages)

    def _write_files(
        self, uri: str, frame: DataFrame, groups: int
    ) -> tuple[int, dict[int, dict[int, int]]]:
        messages, ends = _rounds_in(frame)
        seen = Observation()
        by = ("group",)
        together = frame.drop("round").repartition(groups, "group")
        together = together.observe(seen, F.count(F.lit(1)).alias("messages"))
        self._parquet.write(sorted_rows(together, by), uri, by)
        if seen.get["messages"] != messages:
            raise JobError(
                "the compaction wrote a different number of messages than it read, so it left the "
                "archive as it was: run it again",
                written=seen.get["messages"],
                read=messages,
            )
        return messages, ends

    def _read(self, contents: Contents, groups: list[Group]) -> DataFrame:
        """The messages of these groups' files with their ``group``, and with their ``round`` where
        the file has those of one round.
        """
        files = []
        for index, group in enumerate(groups):
            raw = self.folder.raw_path(group.folder)
            for name in group.replaced:
                rounds = contents.rounds_of[f"{group.folder}/{name}"]
                files.append((f"{raw}/{name}", index, rounds[0] if len(rounds) == 1 else None))
        known = self._spark.createDataFrame(files, "path string, group int, round int")
        paths = [self.folder.inside(f"{g.folder}/{name}") for g in groups for name in g.replaced]
        frame = self._spark.read.schema(COLUMNS).parquet(*paths).withColumn("path", F.expr(_PATH))
        unknown = F.raise_error(F.lit("Spark has another path for a file"))
        return (
            frame.join(F.broadcast(known), "path", "left")
            .withColumn("group", F.coalesce("group", unknown.cast("int")))
            .drop("path")
        )


def _rounds_in(frame: DataFrame) -> tuple[int, dict[int, dict[int, int]]]:
    """How many messages there are, and the last ID of each round that is known, by partition."""
    found = frame.groupBy("round", "partition").agg(
        F.max("id").alias("last"), F.count(F.lit(1)).alias("messages")
    )
    ends: dict[int, dict[int, int]] = {}
    messages = 0
    for row in found.collect():
        messages += row["messages"]
        if row["round"] is not None:
            ends.setdefault(row["partition"], {})[row["round"]] = row["last"]
    return messages, ends


if __name__ == "__main__":
    from pyspark_hqueue.jobs.program import main

    main("compact")

"""Archiving a queue: its messages in Parquet files, by date and topic, or in a table, each once.

An archive of files:

    PATH/date=2026-01-31/topic=clicks/00000012-part-….parquet
    PATH/_hqueue/archive.json              which queue, and which topics
    PATH/_hqueue/checkpoint/               which messages each round has: Spark's own
    PATH/_hqueue/rounds/00000012.json      which files round 12 consists of
    PATH/_hqueue/staging/00000012-…/       what a try of round 12 has written
    PATH/_hqueue/compactions/, compacting/ see `pyspark_hqueue.jobs.compactions`

A round writes its files aside, names them in its record, and then moves them into their places. The
record is written once: of two tries that come that far, by a restart or because two run at once,
the later one finds it, and drops its own files. Files are moved by the record alone, so whatever
run comes after a crash finishes that. A reader never sees a message twice, and needs to know
nothing of this: Spark and pyarrow pass over names that begin with ``_``.
"""

from __future__ import annotations

import dataclasses
import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyspark.sql import Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StringType, StructField, StructType

from hqueue import InvalidInputError
from hqueue.settings.attributes import check_queue_name
from hqueue.settings.numbers import whole_number
from pyspark_hqueue.jobs.archive_target import Archived, ArchiveTarget
from pyspark_hqueue.jobs.arguments import PARQUET, check_archive
from pyspark_hqueue.jobs.compactions import finish_compactions
from pyspark_hqueue.jobs.folder import Folder
from pyspark_hqueue.jobs.manifest import (
    HIDDEN,
    RECORD,
    ROUNDS,
    STAGING,
    RoundRecord,
    archived_queue,
)
from pyspark_hqueue.jobs.parquet_options import ParquetOptions, sorted_rows
from pyspark_hqueue.jobs.rounds import Round, Rounds, check_planned, set_back
from pyspark_hqueue.jobs.sizes import message_bytes
from pyspark_hqueue.jobs.tables import table_target
from pyspark_hqueue.reading.plan import Range
from pyspark_hqueue.reading.schema import WITH_HEADERS

__all__ = ["FILES", "ROUND_MESSAGES", "Archive", "ArchiveFolder"]

ROUND_MESSAGES = 10_000_000

FILES = StructType(
    [
        *(field for field in WITH_HEADERS if field.name != "topic"),
        StructField("date", StringType()),
        StructField("topic", StringType()),
    ]
)
"""The columns of an archive. Topic and date stand in the names of folders."""

_DATE = "cast(date_from_unix_date(cast(shiftright(id, 15) div 86400000 as int)) as string)"


class Archive:
    """A queue's messages as files, or in a table. A run goes on where the last one ended.

    Args:
        spark: the session.
        queue: the queue's name.
        path: for Parquet, a folder that is empty, does not exist, or is an archive of this queue;
            otherwise a table: its name, or the path of a Delta table. It need not exist.
        output_format: ``parquet``, ``delta`` or ``iceberg``.
        checkpoint: a folder, one for each table. An archive of files has its own.
        topics: the topics wanted; all if empty. They are fixed by the first run.
        round_messages: of one round: this many are written again at most after a crash.
        options: of the data source's stream: ``failOnDataLoss``, ``hqueue.gateways`` and so on.
        parquet: how the files of a folder are written.

    Raises:
        InvalidInputError: the folder or table has something else in it, or other columns, or Spark
            can't reach it, or an option is wrong.
        QueueNotFoundError: there is no such queue.
    """

    def __init__(
        self,
        spark: SparkSession,
        queue: str,
        path: str,
        *,
        output_format: str = PARQUET,
        checkpoint: str | None = None,
        topics: Sequence[str] = (),
        round_messages: int = ROUND_MESSAGES,
        options: Mapping[str, str] | None = None,
        parquet: ParquetOptions | None = None,
    ) -> None:
        given = dict(options or {})
        if topics:
            given["subscribe"] = ",".join(topics)
        of = {"version": 1, "queue": check_queue_name(queue), "topics": sorted(topics)}
        self.target: ArchiveTarget
        check_archive(path, output_format, checkpoint, parquet)
        if checkpoint is None:
            self.target = ArchiveFolder(spark, path, of, parquet or ParquetOptions())
        else:
            self.target = table_target(spark, path, output_format, checkpoint, of)
        self._rounds = Rounds(
            self.target.spark, queue, self.target.checkpoint, given, round_messages
        )
        self.target.check()

    def pending(self) -> list[Range]:
        """The ranges that a run would archive. Raises as `Rounds.pending`."""
        return self._rounds.pending()

    def run(
        self, on_round: Callable[[int, Archived], None] | None = None, *, follow: bool = False
    ) -> None:
        """Archive the messages that the queue has now, and those that follow if `follow` is set.

        Args:
            on_round: called after each round with the number of its messages, of all topics, and
                with what was archived.
            follow: whether to go on until the program is interrupted.

        Raises:
            As `Rounds.run`.
        """
        self.target.prepare()

        def archive(round_: Round) -> None:
            archived = self.target.write(round_)
            if on_round is not None:
                on_round(round_.messages, archived)

        self._rounds.run(archive, follow=follow)


class ArchiveFolder:
    """A folder of Parquet files, as an `ArchiveTarget`.

    Args:
        spark: the session.
        path: the folder's path or URI.
        of: the record of the archive, as `archived_queue` reads it.
        parquet: how the files are written.

    Raises:
        InvalidInputError: Spark can't use the path.
    """

    def __init__(
        self, spark: SparkSession, path: str, of: Mapping[str, Any], parquet: ParquetOptions
    ) -> None:
        self._parquet = parquet
        self.spark = spark = parquet.session(spark)
        self.folder = Folder(spark, path)
        self.checkpoint = Folder(spark, self.folder.inside(f"{HIDDEN}/checkpoint"))
        self._of = of

    @property
    def name(self) -> str:
        return self.folder.uri

    def check(self) -> None:
        there = archived_queue(self.folder)
        if there is None:
            if others := [name for name in self.folder.names() if name != HIDDEN]:
                raise InvalidInputError(
                    "the folder has files that do not belong to an archive: give another folder",
                    path=self.folder.uri,
                    found=others[0],
                )
        elif there != self._of:
            raise InvalidInputError(
                "the folder belongs to another archive: give another folder",
                path=self.folder.uri,
                queue=there.get("queue"),
                topics=there.get("topics"),
            )
        names = (whole_number(name.removesuffix(".json")) for name in self.folder.names(ROUNDS))
        last = max((number for number in names if number is not None), default=None)
        check_planned(self.checkpoint, last, self.name)

    def prepare(self) -> None:
        self.folder.publish(RECORD, json.dumps(self._of))
        self.check()  # Another run may have been faster.
        finish_compactions(self.folder)

    def write(self, round_: Round) -> RoundRecord:
        name = f"{ROUNDS}/{round_.number:08d}.json"
        text = self.folder.read(name)
        if text is None:
            attempt = f"{round_.number:08d}-{uuid.uuid4().hex[:12]}"
            try:
                mine = self._write(round_, attempt)
                self.folder.publish(name, json.dumps(dataclasses.asdict(mine)))
            except Exception:
                # A faster run has perhaps removed these files already.
                if not self.folder.exists(name):
                    raise
            text = self.folder.read(name)
            assert text is not None
        record = RoundRecord.parse(text)
        if record.stops is not None and not round_.stops.items() <= record.stops.items():
            raise set_back(self.checkpoint, round_.number, self.name)
        self._place(record)
        finish_compactions(self.folder)  # A compaction may have been killed meanwhile.
        return record

    def _write(self, round_: Round, attempt: str) -> RoundRecord:
        folder = f"{STAGING}/{attempt}"
        seen = Observation()
        by = ("date", "topic")
        frame = round_.frame.withColumn("date", F.expr(_DATE)).observe(
            seen, F.count(F.lit(1)).alias("messages"), F.sum(message_bytes()).alias("bytes")
        )
        # Files get the wanted size, whatever the number of tasks and topics.
        balanced = frame.hint("rebalance", *map(F.col, by))
        self._parquet.write(sorted_rows(balanced, by), self.folder.inside(folder), by)
        files = tuple(name for name in self.folder.files(folder) if name.endswith(".parquet"))
        found = seen.get
        return RoundRecord(
            round_.number,
            attempt,
            files,
            found["messages"] or 0,
            found["bytes"] or 0,
            round_.stops,
        )

    def _place(self, record: RoundRecord) -> None:
        """Move the files of a round that are not in their places yet, and tidy up."""
        there = self.folder.files(f"{STAGING}/{record.attempt}")
        for source, target in record.places.items():
            if source.removeprefix(f"{STAGING}/{record.attempt}/") in there:
                self.folder.move(source, target)
        for attempt in self.folder.names(STAGING):
            number = whole_number(attempt.partition("-")[0])  # Other files are left alone.
            if number is not None and number <= record.number:
                self.folder.delete(f"{STAGING}/{attempt}")


if __name__ == "__main__":
    from pyspark_hqueue.jobs.program import main

    main("archive")

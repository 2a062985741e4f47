"""Tables of Delta Lake and Apache Iceberg as the targets of archives.

A round is one commit of the table, and the table itself refuses to make it twice:

    Delta     the commit has the transaction of the stream, whose version is the round's number;
              the table skips a version that it has, and of two commits at once one fails
    Iceberg   the round is staged as a snapshot that readers do not see (a "WAP ID"), and then
              published; the table refuses to publish an ID twice

So a round that was cut off anywhere is written again, or found. The columns of the messages never
change: a table with other columns is refused before anything is written.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any, ClassVar

from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import DateType, IntegerType, StructField, StructType

from hqueue import InvalidInputError
from pyspark_hqueue.jobs.archive_target import ArchiveTarget
from pyspark_hqueue.jobs.folder import Folder
from pyspark_hqueue.jobs.rounds import Round
from pyspark_hqueue.jobs.sessions import separate_session
from pyspark_hqueue.jobs.snapshots import Snapshot, Snapshots, round_tag
from pyspark_hqueue.reading.schema import WITH_HEADERS

__all__ = ["TableRound", "column_differences", "table_frame", "table_target"]

ARCHIVE = "hqueue.archive"
"""The property that says which archive a table is."""

DELTA = "delta"
ICEBERG = "iceberg"

_MISSING = ("TABLE_OR_VIEW_NOT_FOUND", "SCHEMA_NOT_FOUND", "PATH_NOT_FOUND", "DELTA_")


@dataclasses.dataclass(frozen=True)
class TableRound:
    """What a table has of a round: messages, and the files' number and bytes. All are 0 if the
    table's history no longer says it.
    """

    messages: int = 0
    bytes: int = 0
    file_count: int = 0


def table_target(
    spark: SparkSession,
    table: str,
    output_format: str,
    checkpoint: str | None,
    of: Mapping[str, Any],
) -> ArchiveTarget:
    """A table as the target of an archive.

    Args:
        spark: the session.
        table: the table's name as Spark's SQL has it, or the path of a Delta table.
        output_format: ``delta`` or ``iceberg``.
        checkpoint: the folder of the checkpoint.
        of: the queue and the topics that are archived.

    Raises:
        InvalidInputError: an argument is wrong, or the session has no such tables.
    """
    _check_format(output_format)
    if checkpoint is None:
        raise InvalidInputError(
            "an archive in a table needs a checkpoint: a folder, one for each table", table=table
        )
    kind = DeltaTable if output_format == DELTA else IcebergTable
    return kind(spark, table, checkpoint, of)


def table_frame(spark: SparkSession, table: str, table_format: str) -> DataFrame:
    """A table that there is, to read it.

    Args:
        spark: the session.
        table: as for `table_target`.
        table_format: ``delta`` or ``iceberg``.

    Raises:
        InvalidInputError: there is no such table, or the session can't use it.
    """
    _check_format(table_format)
    try:
        return spark.table(_sql_name(spark, table, table_format))
    except (PySparkException, Py4JError) as exc:
        raise _refusal(table, table_format, exc) from exc


def column_differences(there: StructType, wanted: StructType, *, writing: bool = True) -> list[str]:
    """How the columns of a table differ from those of an archive; empty if they do not.

    Args:
        there: the table's columns.
        wanted: the archive's.
        writing: whether nulls are written to the table.
    """
    found = []
    columns = {field.name: field for field in there}
    for field in wanted:
        column = columns.pop(field.name, None)
        kind = field.dataType.simpleString()
        if column is None:
            found.append(f"it has no column {field.name} {kind}")
        elif column.dataType.simpleString() != kind:
            found.append(f"{field.name} is {column.dataType.simpleString()}, not {kind}")
        elif writing and field.nullable and not column.nullable:
            found.append(f"{field.name} does not allow nulls")
    return found + [f"it has a column {name} more" for name in columns]


class _Table:
    """What both kinds of tables have in common."""

    output_format = ""
    columns = WITH_HEADERS
    partitioned_by = ""
    own_properties: ClassVar[Mapping[str, str]] = {}

    def __init__(
        self, spark: SparkSession, table: str, checkpoint: str, of: Mapping[str, Any]
    ) -> None:
        self.spark = spark
        self.name = _sql_name(spark, table, self.output_format)
        self.checkpoint = Folder(spark, checkpoint)
        self._of = dict(of)

    def check(self) -> None:
        columns = self._columns()
        if columns is None:
            return
        kind = self._format()
        if kind != self.output_format:
            raise InvalidInputError("the table has another format", table=self.name, format=kind)
        if differences := column_differences(columns, self.columns):
            raise InvalidInputError(
                "the table has other columns than the archive of a queue: archive to another "
                "table, or alter this one",
                table=self.name,
                differences=differences,
            )
        self._check_archive(self._properties(), self._stream())

    def prepare(self) -> None:
        if self._columns() is None:
            columns = ", ".join(
                f"`{field.name}` {field.dataType.simpleString()}"
                f"{'' if field.nullable else ' NOT NULL'}"
                for field in self.columns
            )
            self._sql(
                f"CREATE TABLE IF NOT EXISTS {self.name} ({columns}) USING {self.output_format} "
                f"PARTITIONED BY ({self.partitioned_by})"
            )
        self.check()

    def _mark(self, stream: str) -> None:
        """Mark the table as the archive that this stream writes, or refuse it."""
        properties = self._properties()
        self._check_archive(properties, stream)
        wanted = {ARCHIVE: json.dumps({**self._of, "stream": stream}), **self.own_properties}
        if any(properties.get(name) != value for name, value in wanted.items()):
            pairs = ", ".join(
                f"{_literal(name)} = {_literal(text)}" for name, text in wanted.items()
            )
            self._sql(f"ALTER TABLE {self.name} SET TBLPROPERTIES ({pairs})")

    def _check_archive(self, properties: Mapping[str, str], stream: str | None) -> None:
        if ARCHIVE not in properties:
            return
        there = json.loads(properties[ARCHIVE])
        if {name: there.get(name) for name in self._of} != self._of:
            raise InvalidInputError(
                "the table belongs to another archive",
                table=self.name,
                queue=there.get("queue"),
                topics=there.get("topics"),
            )
        if there.get("stream") != stream:
            raise InvalidInputError(
                "the table was archived with another checkpoint, and with this one all messages "
                "would be written again: give that checkpoint, or another table",
                table=self.name,
                checkpoint=self.checkpoint.uri,
            )

    def _stream(self) -> str | None:
        """The name of the checkpoint's stream; None if it has not begun."""
        text = self.checkpoint.read("metadata")
        return None if text is None else str(json.loads(text)["id"])

    def _columns(self) -> StructType | None:
        """The columns of the table; None if there is no such table."""
        try:
            return self.spark.table(self.name).schema
        except AnalysisException as exc:
            if (exc.getCondition() or "").startswith(_MISSING):
                return None
            raise _refusal(self.name, self.output_format, exc) from exc

    def _format(self) -> str:
        rows = self._sql(f"DESCRIBE TABLE EXTENDED {self.name}").collect()
        found = [row["data_type"] for row in rows if row["col_name"] == "Provider"]
        return str(found[0]).lower() if found else "unknown"

    def _properties(self) -> dict[str, str]:
        return {
            row["key"]: row["value"]
            for row in self._sql(f"SHOW TBLPROPERTIES {self.name}").collect()
        }

    def _sql(self, text: str) -> DataFrame:
        try:
            return self.spark.sql(text)
        except (PySparkException, Py4JError) as exc:
            raise _refusal(self.name, self.output_format, exc) from exc


class DeltaTable(_Table):
    """A table of Delta Lake: by its name, or by its path."""

    output_format = DELTA
    columns = StructType([*WITH_HEADERS, StructField("date", DateType())])
    partitioned_by = "date, topic"

    def write(self, round_: Round) -> TableRound:
        self._mark(round_.name)
        tag = round_tag(round_.name, round_.number)
        by = ("date", "topic")
        date = F.expr("date_from_unix_date(cast(shiftright(id, 15) div 86400000 as int))")
        frame = round_.frame.withColumn("date", date).hint("rebalance", *map(F.col, by))
        # The table itself passes over a version of an application that it has.
        (
            frame.sortWithinPartitions(*by, "partition", "id")
            .writeTo(self.name)
            .option("txnAppId", f"hqueue-{round_.name}")
            .option("txnVersion", str(round_.number))
            .option("userMetadata", tag)
            .option("mergeSchema", "false")
            .append()
        )
        return self._written(tag)

    def _written(self, tag: str) -> TableRound:
        commits = self._sql(f"DESCRIBE HISTORY {self.name} LIMIT 20")
        for row in commits.where(F.col("userMetadata") == tag).collect():
            metrics = row["operationMetrics"] or {}
            return TableRound(
                int(metrics.get("numOutputRows", 0)),
                int(metrics.get("numOutputBytes", 0)),
                int(metrics.get("numFiles", 0)),
            )
        return TableRound()


class IcebergTable(_Table):
    """A table of Apache Iceberg, by its name in a catalog."""

    output_format = ICEBERG
    columns = StructType(
        [
            StructField(f.name, IntegerType(), f.nullable) if f.name == "sequence" else f
            for f in WITH_HEADERS
        ]
    )
    """Iceberg has no smaller integer."""
    partitioned_by = "days(timestamp), topic"
    own_properties: ClassVar[Mapping[str, str]] = {"write.wap.enabled": "true"}

    def __init__(
        self, spark: SparkSession, table: str, checkpoint: str, of: Mapping[str, Any]
    ) -> None:
        # What is staged is the session's affair, and no other write of the user's session is.
        super().__init__(separate_session(spark), table, checkpoint, of)
        self._users = spark
        first = table.partition(".")[0]
        is_catalog = spark.conf.get(f"spark.sql.catalog.{first}", None) is not None
        self._procedures = f"{first}.system" if is_catalog else "system"

    def write(self, round_: Round) -> TableRound:
        self._mark(round_.name)
        tag = round_tag(round_.name, round_.number)
        snapshots = self._snapshots()
        if not self._is_published(snapshots, round_):
            if snapshots.find(tag) is None:
                self._stage(round_.frame, tag)
                snapshots = self._snapshots()
            snapshots = self._publish(snapshots, tag, round_)
        found = snapshots.find(tag)
        self._users.catalog.refreshTable(self.name)
        if found is None:
            return TableRound()
        return TableRound(found.messages, found.bytes, found.file_count)

    def _is_published(self, snapshots: Snapshots, round_: Round) -> bool:
        published = snapshots.published(round_.name, round_.number)
        if published is not None:
            return published
        # A round is there as a whole or not at all: any of its messages tells it.
        found = round_.frame.groupBy("partition").agg(
            F.min("id").alias("first"), F.max("id").alias("last")
        )
        spans = found.collect()
        if not spans:
            return False
        lines = self.spark.createDataFrame(spans, found.schema)
        span = min(each["first"] for each in spans), max(each["last"] for each in spans)
        there = self.spark.table(self.name).where(F.col("id").between(*span))
        there = there.join(F.broadcast(lines), "partition").where("id between first and last")
        return not there.isEmpty()

    def _stage(self, frame: DataFrame, tag: str) -> None:
        settings = frame.sparkSession.conf
        settings.set("spark.wap.id", tag)
        try:
            (
                frame.writeTo(self.name)
                .option("snapshot-property.hqueue.round", tag)
                .option("merge-schema", "false")
                .append()
            )
        finally:
            settings.unset("spark.wap.id")

    def _publish(self, snapshots: Snapshots, tag: str, round_: Round) -> Snapshots:
        staged = snapshots.find(tag)
        assert staged is not None
        try:
            self.spark.sql(
                f"CALL {self._procedures}.cherrypick_snapshot("
                f"table => {_literal(self.name)}, snapshot_id => {staged.id})"
            ).collect()
        except (PySparkException, Py4JError):
            # Another run with this checkpoint was perhaps faster.
            after = self._snapshots()
            if not after.published(round_.name, round_.number):
                raise
            return after
        return self._snapshots()

    def _snapshots(self) -> Snapshots:
        self.spark.catalog.refreshTable(self.name)
        summary = F.col("summary")
        rows = self.spark.table(f"{self.name}.snapshots").select(
            "snapshot_id",
            "parent_id",
            F.coalesce(summary["hqueue.round"], summary["published-wap-id"]),
            summary["added-records"],
            summary["added-files-size"],
            summary["added-data-files"],
        )
        found = [
            Snapshot(number, parent, tag, *(int(count or 0) for count in counts))
            for number, parent, tag, *counts in rows.collect()
        ]
        main = self.spark.table(f"{self.name}.refs").where("name = 'main'").collect()
        return Snapshots(found, main[0]["snapshot_id"] if main else None)


def _check_format(table_format: str) -> None:
    if table_format not in (DELTA, ICEBERG):
        raise InvalidInputError(
            "an archive's format is parquet, delta or iceberg", format=table_format
        )


def _sql_name(spark: SparkSession, table: str, table_format: str) -> str:
    """A table as Spark's SQL names it."""
    if "/" not in table or "`" in table:
        return table
    if table_format == ICEBERG:
        raise InvalidInputError(
            "an Iceberg table is given by its name in a catalog, not by a path", table=table
        )
    return f"delta.`{Folder(spark, table).uri}`"


def _refusal(table: str, table_format: str, reason: Exception) -> InvalidInputError:
    return InvalidInputError(
        "Spark can't use this table: is its name right, and has the session the jars and the "
        "catalog of its format? See docs/tables.md",
        table=table,
        format=table_format,
        reason=str(reason).strip().splitlines()[0],
    )


def _literal(text: str) -> str:
    """A text as a literal of Spark's SQL."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"

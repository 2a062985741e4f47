"""Tables of both formats as targets of archives: their columns, names and properties."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from hqueue import InvalidInputError
from pyspark_hqueue.jobs.failures import table_conflict
from pyspark_hqueue.jobs.folder import Folder
from pyspark_hqueue.jobs.rounds import check_planned, has_passed, stream_of
from pyspark_hqueue.jobs.snapshots import tagged_round
from pyspark_hqueue.jobs.table_names import (
    case_sensitive,
    check_apart,
    identity_of,
    refusal,
    sql_name,
)
from pyspark_hqueue.reading.schema import WITH_HEADERS

__all__ = ["Table", "TableRound", "column_differences", "literal"]

ARCHIVE = "hqueue.archive"
"""The property that says which archive a table belongs to."""

_MISSING = (
    "TABLE_OR_VIEW_NOT_FOUND",
    "SCHEMA_NOT_FOUND",
    "PATH_NOT_FOUND",
    "DELTA_MISSING_DELTA_TABLE",
    "DELTA_PATH_DOES_NOT_EXIST",
    "DELTA_TABLE_NOT_FOUND",
)


@dataclasses.dataclass(frozen=True)
class TableRound:
    """What a round added to a table: messages, files and bytes. All are 0 if the table's history no
    longer has the round.
    """

    messages: int = 0
    bytes: int = 0
    file_count: int = 0


def column_differences(
    there: StructType, wanted: StructType, *, writing: bool = True, case_sensitive: bool = False
) -> list[str]:
    """How the columns of a table differ from those of an archive; empty if they are the same.

    Args:
        there: the table's columns.
        wanted: the archive's.
        writing: whether nulls are written to the table.
        case_sensitive: whether the session distinguishes names by case. If not, names that differ
            only in that are the same.
    """
    found = []
    columns = {field.name: field for field in there}
    names = {} if case_sensitive else {name.lower(): name for name in columns}
    names.update({name: name for name in columns})
    for field in wanted:
        column = columns.pop(names.get(field.name, field.name), None)
        kind = field.dataType.simpleString()
        if column is None:
            found.append(f"it has no column {field.name} {kind}")
        elif column.dataType.simpleString() != kind:
            found.append(f"{field.name} is {column.dataType.simpleString()}, not {kind}")
        elif writing and field.nullable and not column.nullable:
            found.append(f"{field.name} does not allow nulls")
    return found + [f"it has an extra column {name}" for name in columns]


class Table:
    """A table as an `ArchiveTarget`: the part that does not depend on its format."""

    output_format = ""
    columns = WITH_HEADERS
    partitioned_by = ""
    created_with: ClassVar[Mapping[str, str]] = {}
    """The properties of a table that the archive creates."""
    own_properties: ClassVar[Mapping[str, str]] = {}
    """The properties of every table that the archive writes to."""

    def __init__(
        self, spark: SparkSession, table: str, checkpoint: str, of: Mapping[str, Any]
    ) -> None:
        self.spark = spark
        self.name = sql_name(spark, table, self.output_format)
        self.checkpoint = Folder(spark, checkpoint)
        self._of = dict(of)

    def check(self) -> None:
        columns = self._columns()
        if columns is None:
            if has_passed(self.checkpoint):
                raise InvalidInputError(
                    "the table that was archived with this checkpoint is gone, or is in another "
                    "catalog: give that catalog, or another checkpoint to archive all messages "
                    "again",
                    table=self.name,
                    checkpoint=self.checkpoint.uri,
                )
            self._check_new()
            return
        kind = self._format()
        if kind != self.output_format:
            raise InvalidInputError(
                f"the table has another format: give --format {kind}, or another table",
                table=self.name,
                format=kind,
            )
        self._check_columns(columns)
        table_id, place = self._identity()
        check_apart(self.spark, self.name, place, self.checkpoint)
        stream = stream_of(self.checkpoint)
        self._check_archive(self._properties(), stream, table_id)
        if stream is not None:
            check_planned(self.checkpoint, self._last_round(stream), self.name)

    def _check_new(self) -> None:
        """Refuse a place where the table can't be created."""

    def prepare(self) -> None:
        if self._columns() is None:
            columns = ", ".join(
                f"`{field.name}` {field.dataType.simpleString()}"
                f"{'' if field.nullable else ' NOT NULL'}"
                for field in self.columns
            )
            properties = (
                f" TBLPROPERTIES ({_pairs(self.created_with)})" if self.created_with else ""
            )
            self._sql(
                f"CREATE TABLE IF NOT EXISTS {self.name} ({columns}) USING {self.output_format} "
                f"PARTITIONED BY ({self.partitioned_by}){properties}"
            )
        self.check()

    def _check_columns(self, columns: StructType | None) -> None:
        if columns is None:
            raise InvalidInputError(
                "the table was dropped while the archive was being written: start again with "
                "another checkpoint to archive all messages again",
                table=self.name,
            )
        exact = case_sensitive(self.spark)
        if differences := column_differences(columns, self.columns, case_sensitive=exact):
            raise InvalidInputError(
                "the columns of the table are not those of an archive of a queue: archive to "
                "another table, or alter this one",
                table=self.name,
                differences=differences,
            )

    def _mark(self, stream: str) -> None:
        """Mark the table as the archive that this stream writes, or refuse it.

        This is done before each round: a table can be altered while an archive follows its queue.
        """
        self._check_columns(self._columns())
        properties = self._properties()
        table_id, _ = self._identity()
        self._check_archive(properties, stream, table_id)
        mark = json.dumps({**self._of, "stream": stream, "table": table_id})
        wanted = {ARCHIVE: mark, **self.own_properties}
        if any(properties.get(name) != value for name, value in wanted.items()):
            self._sql(f"ALTER TABLE {self.name} SET TBLPROPERTIES ({_pairs(wanted)})")

    def _check_archive(
        self, properties: Mapping[str, str], stream: str | None, table_id: str
    ) -> None:
        if ARCHIVE not in properties:
            # A table has its mark before the first round is done.
            if has_passed(self.checkpoint):
                raise InvalidInputError(
                    "the checkpoint has archived messages, and none of them to this table, which "
                    "was created since: give another checkpoint to archive all messages again",
                    table=self.name,
                    checkpoint=self.checkpoint.uri,
                )
            return
        there = json.loads(properties[ARCHIVE])
        if {name: there.get(name) for name in self._of} != self._of:
            raise InvalidInputError(
                "the table belongs to another archive: give another table",
                table=self.name,
                queue=there.get("queue"),
                topics=there.get("topics"),
            )
        if there.get("table") not in (None, table_id):
            raise InvalidInputError(
                "the table is a copy of the archive's table, and has its mark: archive to that "
                "table, or to a new one with another checkpoint",
                table=self.name,
                checkpoint=self.checkpoint.uri,
            )
        if there.get("stream") != stream:
            raise InvalidInputError(
                "the table was archived with another checkpoint, and this one would write all "
                "messages again: give that checkpoint, or another table",
                table=self.name,
                checkpoint=self.checkpoint.uri,
            )

    def _last_round(self, stream: str) -> int | None:
        """The last round of a stream that the table's history shows; None if it shows none."""
        found = (tagged_round(stream, tag) for tag in self._tags())
        return max((number for number in found if number is not None), default=None)

    def _tags(self) -> Iterable[str | None]:
        """The tags in the table's history: each names a round, or is another text, or None."""
        return ()

    def _columns(self) -> StructType | None:
        """The columns of the table; None if there is no such table."""
        try:
            self._refresh()
            return self.spark.table(self.name).schema
        except AnalysisException as exc:
            if (exc.getCondition() or "").startswith(_MISSING):
                return None
            raise refusal(self.name, self.output_format, exc) from exc

    def _identity(self) -> tuple[str, str]:
        return identity_of(self.spark, self.name, self.output_format)

    def _refresh(self) -> None:
        """Drop the session's cached state of the table, if it may be stale."""

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
            conflict = table_conflict(str(exc))
            raise conflict or refusal(self.name, self.output_format, exc) from exc


def literal(text: str) -> str:
    """Quote a text as a literal of Spark's SQL."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _pairs(properties: Mapping[str, str]) -> str:
    return ", ".join(f"{literal(name)} = {literal(text)}" for name, text in properties.items())

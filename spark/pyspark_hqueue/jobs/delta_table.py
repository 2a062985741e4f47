"""Tables of Delta Lake as targets of archives."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import DateType, StructField, StructType

from hqueue import InvalidInputError
from pyspark_hqueue.jobs.archive_table import Table, TableRound
from pyspark_hqueue.jobs.arguments import DELTA, path_of
from pyspark_hqueue.jobs.folder import Folder
from pyspark_hqueue.jobs.manifest import HIDDEN
from pyspark_hqueue.jobs.parquet_options import sorted_rows
from pyspark_hqueue.jobs.rounds import Round
from pyspark_hqueue.jobs.sessions import separate_session
from pyspark_hqueue.jobs.snapshots import round_tag
from pyspark_hqueue.jobs.table_names import check_apart
from pyspark_hqueue.reading.schema import WITH_HEADERS

__all__ = ["DeltaTable"]

COMMITS_MAX = 1_000
"""How many commits are searched for the last round: other programs may write to the table, too."""


class DeltaTable(Table):
    """A table of Delta Lake, given by its name or its path."""

    output_format = DELTA
    columns = StructType([*WITH_HEADERS, StructField("date", DateType())])
    partitioned_by = "date, topic"

    def __init__(
        self, spark: SparkSession, table: str, checkpoint: str, of: Mapping[str, Any]
    ) -> None:
        # Times need statistics, so that readers can skip parts of files: Spark's default has none.
        settings = {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS"}
        super().__init__(separate_session(spark, settings), table, checkpoint, of)

    def _check_new(self) -> None:
        if (path := path_of(self.name)) is None:
            return
        check_apart(self.spark, self.name, path, self.checkpoint)
        names = Folder(self.spark, path).names()
        others = [name for name in names if name == HIDDEN or not name.startswith(("_", "."))]
        if others:
            raise InvalidInputError(
                "the folder has files that are not a Delta table: give another folder, or an "
                "empty one",
                path=path,
                found=others[0],
            )

    def write(self, round_: Round) -> TableRound:
        self._mark(round_.name)
        tag = round_tag(round_.name, round_.number)
        by = ("date", "topic")
        date = F.expr("date_from_unix_date(cast(shiftright(id, 15) div 86400000 as int))")
        frame = round_.frame.withColumn("date", date).hint("rebalance", *map(F.col, by))
        # The table itself skips a version of an application that it already has.
        (
            sorted_rows(frame, by)
            .writeTo(self.name)
            .option("txnAppId", f"hqueue-{round_.name}")
            .option("txnVersion", str(round_.number))
            .option("userMetadata", tag)
            .option("mergeSchema", "false")
            .append()
        )
        return self._written(tag)

    def _tags(self) -> Iterable[str | None]:
        rows = self._sql(f"DESCRIBE HISTORY {self.name} LIMIT {COMMITS_MAX}").collect()
        return [row["userMetadata"] for row in rows]

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

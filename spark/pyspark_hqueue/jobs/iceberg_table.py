"""Tables of Apache Iceberg as targets of archives."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import IntegerType, StructField, StructType

from pyspark_hqueue.jobs.archive_table import Table, TableRound, literal
from pyspark_hqueue.jobs.arguments import ICEBERG
from pyspark_hqueue.jobs.failures import table_conflict
from pyspark_hqueue.jobs.rounds import Round
from pyspark_hqueue.jobs.sessions import separate_session
from pyspark_hqueue.jobs.snapshots import Snapshot, Snapshots, round_tag
from pyspark_hqueue.jobs.table_names import iceberg_table, refusal
from pyspark_hqueue.reading.schema import WITH_HEADERS

__all__ = ["IcebergTable"]

ORDER = "hqueue.order"
"""The property, in tables that the archive creates, with the columns by which files are sorted."""


class IcebergTable(Table):
    """A table of Apache Iceberg, given by its name in a catalog."""

    output_format = ICEBERG
    columns = StructType(
        [
            StructField(f.name, IntegerType(), f.nullable) if f.name == "sequence" else f
            for f in WITH_HEADERS
        ]
    )
    """The columns of an archive, with the smallest integer type that Iceberg has."""
    partitioned_by = "days(timestamp), topic"
    created_with: ClassVar[Mapping[str, str]] = {
        ORDER: "id, partition",
        # The default of a sorted table is "range", for which Spark reads a round twice.
        "write.distribution-mode": "hash",
    }
    own_properties: ClassVar[Mapping[str, str]] = {"write.wap.enabled": "true"}

    def __init__(
        self, spark: SparkSession, table: str, checkpoint: str, of: Mapping[str, Any]
    ) -> None:
        # Staging is a setting of the session: other writes of the user's session must not stage.
        super().__init__(separate_session(spark), table, checkpoint, of)
        self._users = spark
        first = table.partition(".")[0]
        is_catalog = spark.conf.get(f"spark.sql.catalog.{first}", None) is not None
        self._procedures = f"{first}.system" if is_catalog else "system"

    def prepare(self) -> None:
        super().prepare()
        properties = self._properties()
        if ORDER in properties and "sort-order" not in properties:
            self._order_by(properties[ORDER].split(", "))

    def _order_by(self, columns: Sequence[str]) -> None:
        """Make writers sort by these columns. (SQL for this needs an extension of the session.)"""
        jvm: Any = self.spark.sparkContext._jvm
        iceberg = jvm.org.apache.iceberg
        try:
            table = iceberg_table(self.spark, self.name)
            order = table.replaceSortOrder()
            for column in columns:
                order.asc(
                    iceberg.expressions.Expressions.ref(column), iceberg.NullOrder.NULLS_FIRST
                )
            order.commit()
        except Py4JError as exc:
            raise table_conflict(str(exc)) or refusal(self.name, ICEBERG, exc) from exc

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
        # A round is written as a whole or not at all: any of its messages shows which.
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
                f"table => {literal(self.name)}, snapshot_id => {staged.id})"
            ).collect()
        except (PySparkException, Py4JError):
            # Another run with this checkpoint may have been faster.
            after = self._snapshots()
            if not after.published(round_.name, round_.number):
                raise
            return after
        return self._snapshots()

    def _tags(self) -> Iterable[str | None]:
        return self._snapshots().tags

    def _refresh(self) -> None:
        self.spark.catalog.refreshTable(self.name)

    def _snapshots(self) -> Snapshots:
        self._refresh()
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

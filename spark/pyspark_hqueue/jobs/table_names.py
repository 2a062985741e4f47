"""How Spark finds a table of Delta Lake or Iceberg, and where the table lies."""

from __future__ import annotations

from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from hqueue import InvalidInputError
from pyspark_hqueue.jobs.arguments import DELTA, check_table, overlapping, path_of
from pyspark_hqueue.jobs.failures import first_line
from pyspark_hqueue.jobs.folder import Folder

__all__ = [
    "case_sensitive",
    "check_apart",
    "iceberg_table",
    "identity_of",
    "refusal",
    "sql_name",
]


def iceberg_table(spark: SparkSession, name: str) -> Any:
    """The Java object of an Iceberg table."""
    jvm: Any = spark.sparkContext._jvm
    return jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, name)


def identity_of(spark: SparkSession, name: str, table_format: str) -> tuple[str, str]:
    """The ID of a table, which a copy of the table does not have, and its location.

    Args:
        spark: the session.
        name: the table's name in Spark's SQL.
        table_format: ``delta`` or ``iceberg``.

    Raises:
        InvalidInputError: Spark can't use the table.
    """
    try:
        if table_format != DELTA:
            table = iceberg_table(spark, name)
            return str(table.uuid().toString()), str(table.location())
        [row] = spark.sql(f"DESCRIBE DETAIL {name}").select("id", "location").collect()
        return row["id"], row["location"]
    except (PySparkException, Py4JError) as exc:
        raise refusal(name, table_format, exc) from exc


def case_sensitive(spark: SparkSession) -> bool:
    """Whether a session distinguishes names of columns by case."""
    return spark.conf.get("spark.sql.caseSensitive", "false") == "true"


def sql_name(spark: SparkSession, table: str, table_format: str) -> str:
    """The name of a table in Spark's SQL."""
    check_table(table, table_format)
    path = path_of(table)
    return table if path is None else f"delta.`{Folder(spark, path).uri}`"


def check_apart(spark: SparkSession, table: str, place: str, checkpoint: Folder) -> None:
    """Refuse a checkpoint in its table's folder, and a table in its checkpoint.

    Args:
        spark: the session.
        table: the table's name.
        place: the table's location.
        checkpoint: the checkpoint.

    Raises:
        InvalidInputError: one lies in the other.
    """
    try:
        folder = Folder(spark, place)
    except InvalidInputError:
        return  # Only the table's format knows its file system: the checkpoint is on another.
    if checkpoint.overlaps(folder):
        raise overlapping(table, checkpoint.uri)


def refusal(table: str, table_format: str, reason: Exception) -> InvalidInputError:
    return InvalidInputError(
        "Spark can't use this table: check its name, and whether the session has the jars and the "
        "catalog of its format (docs/tables.md)",
        table=table,
        format=table_format,
        reason=first_line(str(reason)),
    )

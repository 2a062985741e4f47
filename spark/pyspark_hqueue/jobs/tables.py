"""Tables of Delta Lake and Apache Iceberg as the targets of archives.

A round is one commit of the table, and the table itself refuses to commit it twice:

    Delta     the commit carries a transaction of the stream, whose version is the round's number;
              the table skips a version that it has, and of two concurrent commits one fails
    Iceberg   the round is staged as a snapshot that readers do not see (with a "WAP ID"), and then
              published; the table refuses to publish an ID twice

So the next run finds a round that was interrupted at any point, or writes it again. The columns of
an archive never change: a table with other columns is refused before anything is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from pyspark_hqueue.jobs.archive_target import ArchiveTarget
from pyspark_hqueue.jobs.arguments import DELTA, check_table
from pyspark_hqueue.jobs.delta_table import DeltaTable
from pyspark_hqueue.jobs.iceberg_table import IcebergTable
from pyspark_hqueue.jobs.table_names import refusal, sql_name

__all__ = ["table_frame", "table_target"]


def table_target(
    spark: SparkSession,
    table: str,
    output_format: str,
    checkpoint: str,
    of: Mapping[str, Any],
) -> ArchiveTarget:
    """Make a table the target of an archive.

    Args:
        spark: the session.
        table: the table's name in Spark's SQL, or the path of a Delta table.
        output_format: ``delta`` or ``iceberg``.
        checkpoint: the folder of the checkpoint.
        of: the queue and the topics that are archived.

    Raises:
        InvalidInputError: `check_table` refuses the arguments, or the session can't use tables of
            this format.
    """
    check_table(table, output_format, checkpoint)
    kind = DeltaTable if output_format == DELTA else IcebergTable
    return kind(spark, table, checkpoint, of)


def table_frame(spark: SparkSession, table: str, table_format: str) -> DataFrame:
    """Read an existing table.

    Args:
        spark: the session.
        table: as for `table_target`.
        table_format: ``delta`` or ``iceberg``.

    Raises:
        InvalidInputError: there is no such table, or the session can't use it.
    """
    check_table(table, table_format)
    try:
        return spark.table(sql_name(spark, table, table_format))
    except (PySparkException, Py4JError) as exc:
        raise refusal(table, table_format, exc) from exc

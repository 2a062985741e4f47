"""A session with tables of Delta Lake and Iceberg. Only `make test-tables` needs their jars."""

from __future__ import annotations

from pathlib import Path

from hqueue.local.jars import JarSet, ensure_jars

from ..conftest import OWN_CONFIGURATION

__all__ = ["FORMATS", "JARS", "process_settings", "session_settings"]

FORMATS = ("delta", "iceberg")

JARS = JarSet(
    "Delta Lake and Iceberg",
    Path(__file__).with_name("pom.xml").read_bytes(),
    ("delta-spark_4.1_2.13", "delta-storage", "iceberg-spark-runtime-4.1_2.13"),
    60,
)


def session_settings(folder: Path) -> dict[str, str]:
    """What a session needs for tables of both formats.

    Args:
        folder: where tables are that have a name: those of Iceberg in the catalog `lake`.
    """
    return {
        "spark.jars": ",".join(map(str, sorted(ensure_jars(JARS).glob("*.jar")))),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension,"
        "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
        "spark.sql.catalog.lake.warehouse": str(folder / "lake"),
        "spark.databricks.delta.snapshotPartitions": "2",  # Not 50 tasks to read a small log.
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }


def process_settings(folder: Path) -> dict[str, str]:
    """The same for a process of its own, on two cores."""
    return {**OWN_CONFIGURATION, **session_settings(folder), "spark.master": "local[2]"}

"""The columns of a table never change, and a table with other columns is refused."""

from __future__ import annotations

import pytest

from hqueue import InvalidInputError
from pyspark_hqueue.jobs.delta_table import DeltaTable
from pyspark_hqueue.jobs.iceberg_table import IcebergTable

from ..test_pipelines import fill, values
from .archiving import Archiving

pytestmark = pytest.mark.tables


@pytest.mark.parametrize(
    ("columns", "difference"),
    [
        ("id bigint", "it has no column partition int"),
        ("{own}, extra string", "it has an extra column extra"),
        ("{own_but_key}", "it has no column key binary"),
        ("{own_but_key}, key string", "key is string, not binary"),
    ],
)
def test_a_table_with_other_columns_is_refused_before_anything_is_written(
    archiving: Archiving, columns: str, difference: str
) -> None:
    fill(archiving.queue, 5)
    spark, table = archiving.spark, archiving.table
    target = archiving.job().target
    assert isinstance(target, (DeltaTable, IcebergTable))
    own = [f"{f.name} {f.dataType.simpleString()}" for f in target.columns]
    text = columns.format(
        own=", ".join(own), own_but_key=", ".join(c for c in own if not c.startswith("key "))
    )
    spark.sql(f"CREATE TABLE {table} ({text}) USING {archiving.output_format}")
    schema = spark.table(table).schema
    spark.conf.set("spark.databricks.delta.schema.autoMerge.enabled", "true")
    spark.conf.set("spark.sql.iceberg.merge-schema", "true")
    try:
        with pytest.raises(InvalidInputError, match="not those of an archive") as caught:
            archiving.job()
    finally:
        spark.conf.unset("spark.databricks.delta.schema.autoMerge.enabled")
        spark.conf.unset("spark.sql.iceberg.merge-schema")
    assert difference in str(caught.value)
    assert archiving.frame().schema == schema
    assert archiving.frame().count() == 0
    assert not list(archiving.folder.iterdir())


def test_a_table_of_ones_own_is_used_and_keeps_its_columns(archiving: Archiving) -> None:
    fill(archiving.queue, 5)
    target = archiving.job().target
    assert isinstance(target, (DeltaTable, IcebergTable))
    own = ", ".join(f"{f.name} {f.dataType.simpleString()}" for f in reversed(target.columns))
    archiving.spark.sql(f"CREATE TABLE {archiving.table} ({own}) USING {archiving.output_format}")
    schema = archiving.spark.table(archiving.table).schema
    archiving.run()
    assert archiving.rows() == values(archiving.queue)
    assert archiving.frame().schema == schema
    # A column that is added later is refused, and not filled with nulls.
    archiving.spark.sql(f"ALTER TABLE {archiving.table} ADD COLUMNS (extra string)")
    with pytest.raises(InvalidInputError, match="not those of an archive"):
        archiving.job()


def test_a_table_that_is_altered_while_an_archive_follows_is_refused_by_the_next_round(
    archiving: Archiving,
) -> None:
    fill(archiving.queue, 5)
    wanted = values(archiving.queue)

    def alter(*_: object) -> None:
        archiving.spark.sql(f"ALTER TABLE {archiving.table} ADD COLUMNS (extra string)")
        fill(archiving.queue, 5, first=5)

    with pytest.raises(InvalidInputError, match="not those of an archive") as caught:
        archiving.job().run(alter, follow=True)
    assert "it has an extra column extra" in str(caught.value)
    assert archiving.rows() == wanted


@pytest.mark.parametrize("output_format", ["iceberg"], indirect=True)
def test_a_column_that_has_become_wider_or_is_gone_is_refused(archiving: Archiving) -> None:
    """Iceberg alters columns in place, as Delta does not unless it is set so."""
    fill(archiving.queue, 5)
    archiving.run()
    for change, difference in (
        ("ALTER COLUMN `partition` TYPE bigint", "partition is bigint, not int"),
        ("DROP COLUMN key", "it has no column key binary"),
        ("RENAME COLUMN value TO body", "it has an extra column body"),
    ):
        archiving.spark.sql(f"ALTER TABLE {archiving.table} {change}")
        with pytest.raises(InvalidInputError, match="not those of an archive") as caught:
            archiving.job()
        assert difference in str(caught.value)

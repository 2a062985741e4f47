"""The recipes of `docs/tables.md`."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ..test_pipelines import Make, fill, values
from .archiving import Archiving, new_table, rows_of
from .formats import process_settings
from .killing import Killing, data_files
from .recipes import Recipe, statements

pytestmark = pytest.mark.tables


@pytest.mark.parametrize("name", ["sink", "foreach_batch delta", "foreach_batch iceberg"])
def test_the_recipes_of_the_page_write_each_message_once(
    spark: SparkSession, make_queue: Make, tmp_path: Path, name: str
) -> None:
    queue = make_queue(2)
    table = new_table("iceberg" if "iceberg" in name else "delta")
    recipe = Recipe(name, queue, table, tmp_path)
    if "iceberg" in name:
        spark.sql(f"CREATE TABLE {table} ({recipe.columns}) USING iceberg")
    for first in (0, 10):
        fill(queue, 10, first=first)
        recipe.run(spark)
        spark.catalog.refreshTable(table)
        assert rows_of(spark.table(table)) == values(queue)


def test_the_tables_of_the_page_can_be_created_and_archived_to(archiving: Archiving) -> None:
    fill(archiving.queue, 10)
    made = statements(archiving.output_format, archiving.table, archiving.folder)
    assert made
    for statement in made:
        archiving.spark.sql(statement)
    archiving.run()
    assert archiving.rows() == values(archiving.queue)


@pytest.mark.timeout(1_200)
@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("sink", None),
        ("foreach_batch delta", "pyspark.sql.readwriter:DataFrameWriter.saveAsTable"),
        ("foreach_batch iceberg", "pyspark.sql.readwriter:DataFrameWriterV2.append"),
    ],
)
def test_a_recipe_that_is_killed_at_each_point_writes_each_message_once(
    *,
    spark: SparkSession,
    make_queue: Make,
    tables: Path,
    tmp_path: Path,
    name: str,
    call: str | None,
) -> None:
    queue = make_queue(2)
    is_delta = "iceberg" not in name
    table = new_table("delta" if is_delta else "iceberg")
    recipe = Recipe(name, queue, table, tmp_path)
    if is_delta:
        folder, using = tmp_path / "table", f"delta LOCATION '{tmp_path}/table'"
    else:
        folder, using = tables / "lake" / table.removeprefix("lake.").replace(".", "/"), "iceberg"
    create = f"CREATE TABLE IF NOT EXISTS {table} ({recipe.columns}) USING {using}"
    program = f"spark.sql({create!r})\n{recipe.text}\nspark.streams.active[0].awaitTermination()\n"
    killing = Killing(tmp_path / "log", program, process_settings(tables))

    fill(queue, 600)
    killing.when_more_than(lambda: data_files(folder))
    if call is None:
        killing.when_more_than(lambda: len([*folder.glob("_delta_log/*.json")]))
    else:
        killing.after(call)
    fill(queue, 600, first=600)
    spark.sql(create)
    for _ in range(2):  # Until PySpark 4.2 the batch that failed is one run.
        recipe.run(spark)
    spark.catalog.refreshTable(table)
    assert rows_of(spark.table(table)) == values(queue)

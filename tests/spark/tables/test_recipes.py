"""The recipes of `docs/tables.md`."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ..test_pipelines import Make, fill, values
from .archiving import new_table, rows_of
from .recipes import Recipe

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

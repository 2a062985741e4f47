"""Tables and checkpoints that would lose messages are refused before anything is written."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from hqueue import InvalidInputError
from pyspark_hqueue.jobs.delta_table import DeltaTable
from pyspark_hqueue.jobs.iceberg_table import IcebergTable
from pyspark_hqueue.jobs.table_replay import TableReplay

from ..test_pipelines import Make, fill, values
from .archiving import Archiving

pytestmark = pytest.mark.tables


def create(archiving: Archiving, more: str = "") -> None:
    """Create the table by hand."""
    kind = DeltaTable if archiving.output_format == "delta" else IcebergTable
    own = ", ".join(f"{f.name} {f.dataType.simpleString()}" for f in kind.columns)
    archiving.spark.sql(
        f"CREATE TABLE {archiving.table} ({own}) USING {archiving.output_format} {more}"
    )


def test_a_table_that_was_created_again_is_not_continued_in_the_middle(
    archiving: Archiving,
) -> None:
    spark, table = archiving.spark, archiving.table
    # A round without messages leaves no mark, and nothing can be missing after it.
    archiving.run()
    spark.sql(f"DROP TABLE {table}")
    create(archiving)
    fill(archiving.queue, 5)
    archiving.run()
    assert archiving.rows() == values(archiving.queue)
    [mark] = spark.sql(f"SHOW TBLPROPERTIES {table}").where("key = 'hqueue.archive'").collect()

    spark.sql(f"DROP TABLE {table}")
    create(archiving)
    with pytest.raises(InvalidInputError, match="created since: give another checkpoint"):
        archiving.job()
    assert archiving.frame().count() == 0
    # A statement of SHOW CREATE TABLE has the mark of the table before.
    spark.sql(f"DROP TABLE {table}")
    create(archiving, f"TBLPROPERTIES ('hqueue.archive' = '{mark.value}')")
    with pytest.raises(InvalidInputError, match="copy of the archive's table"):
        archiving.job()
    spark.sql(f"ALTER TABLE {table} UNSET TBLPROPERTIES ('hqueue.archive')")
    archiving.job(checkpoint=str(archiving.folder / "another")).run()
    assert archiving.rows() == values(archiving.queue)


def test_a_table_that_is_created_again_while_an_archive_follows_ends_it(
    archiving: Archiving,
) -> None:
    fill(archiving.queue, 5)

    def again(*_: object) -> None:
        fill(archiving.queue, 5, first=5)

    def twice(*_: object) -> None:
        archiving.spark.sql(f"DROP TABLE {archiving.table}")
        create(archiving)
        again()

    rounds = iter((again, twice))
    with pytest.raises(InvalidInputError, match="created since"):
        archiving.job().run(lambda *_: next(rounds)(), follow=True)
    assert archiving.frame().count() == 0


def test_a_checkpoint_and_its_table_do_not_lie_in_each_other(
    archiving: Archiving, make_queue: Make, tables: Path
) -> None:
    fill(archiving.queue, 5)
    if archiving.output_format == "delta":
        place = archiving.folder / "place"
        create(archiving, f"LOCATION '{place}'")
    else:
        place = tables / "lake" / archiving.table.removeprefix("lake.").replace(".", "/")
        create(archiving)
    before = {*place.rglob("*")}
    link = archiving.folder / "link"
    link.symlink_to(place)
    for checkpoint in (place, place / "_checkpoint", place.parent, link / "checkpoint"):
        with pytest.raises(InvalidInputError, match="lie in each other"):
            archiving.job(checkpoint=str(checkpoint))
        with pytest.raises(InvalidInputError, match="lie in each other"):
            TableReplay(
                archiving.spark, archiving.table, archiving.output_format, make_queue(1).name,
                str(checkpoint), options=archiving.connection,
            )  # fmt: skip
    assert {*place.rglob("*")} == before
    archiving.job(checkpoint=f"{place}-checkpoint").run()
    assert archiving.rows() == values(archiving.queue)


@pytest.mark.parametrize("output_format", ["delta"], indirect=True)
def test_a_folder_with_other_files_is_no_place_for_a_delta_table(archiving: Archiving) -> None:
    fill(archiving.queue, 5)
    place, checkpoint = archiving.folder / "files", archiving.folder / "checkpoint"
    archiving.spark.range(3).write.parquet(str(place))
    before = {*place.iterdir()}
    archiving.table = str(place)
    with pytest.raises(InvalidInputError, match="files that are not a Delta table"):
        archiving.job(checkpoint=str(checkpoint))
    archiving.table = str(archiving.folder / "new")
    with pytest.raises(InvalidInputError, match="lie in each other"):
        archiving.job(checkpoint=f"{archiving.folder}/files/../new/checkpoint")
    assert {*place.iterdir()} == before
    assert {*archiving.folder.iterdir()} == {place}


def test_names_that_differ_by_case_are_those_of_the_columns(
    archiving: Archiving, make_queue: Make, spark: SparkSession
) -> None:
    fill(archiving.queue, 5)
    kind = DeltaTable if archiving.output_format == "delta" else IcebergTable
    own = ", ".join(f"{f.name.upper()} {f.dataType.simpleString()}" for f in kind.columns)
    by = "topic" if archiving.output_format == "iceberg" else "date"
    spark.sql(
        f"CREATE TABLE {archiving.table} ({own}) USING {archiving.output_format} "
        f"PARTITIONED BY ({by.upper()})"
    )
    schema = archiving.frame().schema
    archiving.run()
    fill(archiving.queue, 5, first=5)
    archiving.run()
    assert archiving.frame().schema == schema
    assert archiving.frame().where("VALUE is null").count() == 0
    target = make_queue(2)
    TableReplay(
        spark, archiving.table, archiving.output_format, target.name,
        str(archiving.folder / "replay"), options=archiving.connection,
    ).run()  # fmt: skip
    assert values(target) == values(archiving.queue)
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        with pytest.raises(InvalidInputError, match="it has no column partition int"):
            archiving.job()
    finally:
        spark.conf.unset("spark.sql.caseSensitive")

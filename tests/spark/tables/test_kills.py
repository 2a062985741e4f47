"""Commands that SIGKILL ends at each point write each message once."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pyspark_hqueue.jobs.table_replay import TableReplay

from ..test_pipeline_faults import written_to
from ..test_pipelines import Make, fill, values
from .archiving import Archiving
from .formats import process_settings
from .killing import Killing, command, data_files

# Each test starts a Spark four or five times, and each start has a deadline of its own.
pytestmark = [pytest.mark.tables, pytest.mark.timeout(2_400)]

DELTA_TABLE = "pyspark_hqueue.jobs.delta_table:DeltaTable"
ICEBERG_TABLE = "pyspark_hqueue.jobs.iceberg_table:IcebergTable"
WRITER = "pyspark.sql.readwriter:DataFrameWriterV2"
MESSAGES = 600
"""In each partition, between two kills."""


def common_arguments(output_format: str, tables: Path) -> list[str]:
    """What all commands on tables are given."""
    settings = process_settings(tables)
    conf = [part for item in settings.items() for part in ("--conf", "=".join(item))]
    return ["--format", output_format, *conf]


def test_an_archive_that_is_killed_at_each_point_has_each_message_once(
    archiving: Archiving, tables: Path, tmp_path: Path
) -> None:
    queue, is_delta = archiving.queue, archiving.output_format == "delta"
    if is_delta:
        archiving.table = str(tmp_path / "table")  # Another process has other names.
    table = tables / "lake" / archiving.table.removeprefix("lake.").replace(".", "/")
    checkpoint = str(tmp_path / "checkpoint")
    archive = Killing(
        tmp_path / "log",
        command(
            *("pipeline", "archive", queue.name, archiving.table, "--checkpoint", checkpoint),
            *common_arguments(archiving.output_format, tables),
        ),
    )

    fill(queue, MESSAGES)
    # The table is there, and no checkpoint.
    archive.after(f"{DELTA_TABLE if is_delta else ICEBERG_TABLE}.prepare")
    # The checkpoint has the round, the table is marked, and there are files of the round.
    archive.when_more_than(lambda: data_files(table))
    # The round is committed to the Delta table, or staged in the Iceberg table.
    fill(queue, MESSAGES, first=MESSAGES)
    archive.after(f"{WRITER}.append")
    if not is_delta:
        archive.after(f"{ICEBERG_TABLE}._publish")
    # The table has the round, and the checkpoint does not.
    archive.after("pyspark_hqueue.jobs.command_progress:MessagesDone.advance")

    while archiving.job(checkpoint=checkpoint).pending():
        archiving.job(checkpoint=checkpoint).run()
    assert archiving.rows() == values(queue)


def test_a_replay_of_a_table_that_is_killed_at_each_point_writes_each_message_once(
    spark: SparkSession,
    connection: dict[str, str],
    make_queue: Make,
    tables: Path,
    tmp_path: Path,
) -> None:
    archiving = Archiving(spark, make_queue(2), "iceberg", tmp_path, connection)
    target = make_queue(2)
    fill(archiving.queue, MESSAGES)
    archiving.run()
    checkpoint = str(tmp_path / "replay")
    replay = Killing(
        tmp_path / "log",
        command(
            *("pipeline", "replay", archiving.table, target.name, "--checkpoint", checkpoint),
            *common_arguments("iceberg", tables),
        ),
    )
    # The piece is recorded, and written in part.
    replay.when_more_than(written_to(target))
    # It is written.
    replay.after("pyspark_hqueue.jobs.targets:Target.write")
    # The queue knows that it is done.
    replay.after("hqueue:Queue.claim_epoch")

    table = archiving.table
    options = {"options": archiving.connection}
    TableReplay(spark, table, "iceberg", target.name, checkpoint, **options).run()  # type: ignore[arg-type]
    assert values(target) == values(archiving.queue)

"""Archives in tables of Delta Lake and Iceberg: each message once, wherever a run was cut off."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

import hqueue
from hqueue import InvalidInputError
from pyspark_hqueue.jobs.delta_table import DeltaTable
from pyspark_hqueue.jobs.iceberg_table import IcebergTable

from ..test_pipelines import CutOff, Make, fill, values
from .archiving import Archiving, fail, new_table

pytestmark = pytest.mark.tables

STEPS = {
    DeltaTable: ("prepare", "_mark", "_written"),
    IcebergTable: ("prepare", "_mark", "_snapshots", "_stage", "_publish"),
}
"""What changes something, or is called between two such steps."""


@pytest.fixture
def cut_off(monkeypatch: pytest.MonkeyPatch) -> Callable[[int | None], list[str]]:
    """Lets the n-th step fail for good, before it is done."""
    steps: list[str] = []
    at: list[int | None] = [None]

    def guarded(kind: type, name: str) -> None:
        whole = getattr(kind, name)

        def step(*arguments: object) -> object:
            steps.append(name)
            if at[0] is not None and len(steps) > at[0]:
                raise CutOff(name)
            return whole(*arguments)

        monkeypatch.setattr(kind, name, step)

    for kind, of_kind in STEPS.items():
        for name in of_kind:
            guarded(kind, name)

    def arm(step: int | None) -> list[str]:
        steps.clear()
        at[0] = step
        return steps

    return arm


def test_a_table_has_each_message_once_and_goes_on(archiving: Archiving) -> None:
    fill(archiving.queue, 60)
    assert sum(range_.messages for range_ in archiving.job().pending()) == 120
    assert not archiving.spark.catalog.tableExists(archiving.table)

    [written] = archiving.run()
    assert written.messages == 120
    assert written.file_count > 0
    assert written.bytes > 0
    assert archiving.rows() == values(archiving.queue)
    assert archiving.run() == []
    fill(archiving.queue, 10, first=60)
    assert [archived.messages for archived in archiving.run()] == [20]
    assert archiving.rows() == values(archiving.queue)

    source = archiving.spark.read.format("hqueue").options(**archiving.connection)
    source = source.option("queue", archiving.queue.name).option("includeHeaders", "true")
    columns = source.load().columns
    there = archiving.frame().select(*columns).orderBy("partition", "id").collect()
    assert there == source.load().orderBy("partition", "id").collect()


def test_a_run_that_was_cut_off_anywhere_is_finished_by_the_next_one(
    archiving: Archiving, cut_off: Callable[[int | None], list[str]]
) -> None:
    fill(archiving.queue, 5)
    wanted = values(archiving.queue)
    steps = cut_off(None)
    archiving.run()
    total = len(steps)
    for step in range(total + 1):
        archiving.table = new_table(archiving.output_format)
        cut_off(step)
        with pytest.raises(CutOff if step == 0 else hqueue.HQueueError):
            # The last step is done, and the checkpoint does not say so yet.
            archiving.job().run(fail)
        cut_off(None)
        if step:
            assert archiving.rows() in ({}, wanted), f"after step {step}"
        archiving.run()
        assert archiving.rows() == wanted, f"after step {step}"


def test_a_round_that_was_written_is_found(archiving: Archiving) -> None:
    fill(archiving.queue, 5)
    job, round_ = archiving.written_round()
    commits = archiving.commits()
    assert job.target.write(round_).messages == 10
    assert archiving.commits() == commits
    assert archiving.rows() == values(archiving.queue)


def test_two_runs_that_write_a_round_at_once_write_it_once(archiving: Archiving) -> None:
    fill(archiving.queue, 5)
    _, round_ = archiving.written_round()
    later = archiving.planned(round_)
    failed: list[Exception] = []

    def write() -> None:
        try:
            archiving.job().target.write(later)
        except Exception as exc:
            failed.append(exc)

    threads = [threading.Thread(target=write) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    assert len(failed) < 2
    assert archiving.frame().count() == 20


def test_a_run_that_wakes_after_another_has_written_its_round_adds_nothing(
    archiving: Archiving, monkeypatch: pytest.MonkeyPatch
) -> None:
    if archiving.output_format == "delta":
        kind, name = DeltaTable, "_mark"
    else:
        kind, name = IcebergTable, "_publish"
    fill(archiving.queue, 5)
    _, round_ = archiving.written_round()
    later = archiving.planned(round_)
    whole = getattr(kind, name)

    def overtaken(*arguments: object) -> object:
        monkeypatch.setattr(kind, name, whole)
        archiving.job().target.write(later)
        return whole(*arguments)

    monkeypatch.setattr(kind, name, overtaken)
    assert archiving.job().target.write(later).messages == 10
    assert archiving.frame().count() == 20


def test_a_checkpoint_that_was_set_back_is_refused(archiving: Archiving, tmp_path: Path) -> None:
    for name in ("first", "second"):
        fill(archiving.queue, 5)
        archiving.run()
        shutil.copytree(archiving.checkpoint, tmp_path / name)
    fill(archiving.queue, 5)
    shutil.rmtree(archiving.checkpoint)
    shutil.copytree(tmp_path / "first", archiving.checkpoint)
    with pytest.raises(InvalidInputError, match="was removed or set back"):
        archiving.run()
    shutil.rmtree(archiving.checkpoint)
    shutil.copytree(tmp_path / "second", archiving.checkpoint)
    archiving.run()
    assert archiving.rows() == values(archiving.queue)


def test_files_are_sorted_by_time_and_readers_can_skip_by_it(archiving: Archiving) -> None:
    fill(archiving.queue, 300)
    archiving.run()
    files = archiving.files()
    assert files
    for file in files:
        opened = pq.ParquetFile(file)
        ids = opened.read(columns=["id"])["id"].to_pylist()
        assert ids == sorted(ids)
        names = opened.schema_arrow.names
        for group in range(opened.num_row_groups):
            for name in ("timestamp", "id"):
                column = opened.metadata.row_group(group).column(names.index(name))
                assert column.statistics.has_min_max
    # The table itself knows how far it is.
    found = archiving.frame().agg(F.count("*"), F.min("id"), F.max("id"))
    assert "LocalTableScan" in found._jdf.queryExecution().executedPlan().toString()
    ids = [int(message.id) for message in archiving.queue.scan()]
    assert found.collect()[0] == (600, min(ids), max(ids))


def test_a_table_that_is_gone_is_not_begun_again_in_the_middle(archiving: Archiving) -> None:
    fill(archiving.queue, 5)
    archiving.run()
    archiving.spark.sql(f"DROP TABLE {archiving.table}")
    with pytest.raises(InvalidInputError, match="with this checkpoint is gone") as caught:
        archiving.job()
    assert "another checkpoint" in str(caught.value).splitlines()[0]
    assert not archiving.spark.catalog.tableExists(archiving.table)


def test_a_table_of_another_archive_is_refused(
    archiving: Archiving, make_queue: Make, tmp_path: Path
) -> None:
    fill(archiving.queue, 5)
    archiving.run()
    queue = archiving.queue
    with pytest.raises(InvalidInputError, match="another checkpoint"):
        archiving.job(checkpoint=str(tmp_path / "another"))
    with pytest.raises(InvalidInputError, match="another archive"):
        archiving.job(topics=["a"])
    archiving.queue = make_queue(1)
    with pytest.raises(InvalidInputError, match="another archive"):
        archiving.job()
    archiving.queue = queue
    other = "iceberg" if archiving.output_format == "delta" else "delta"
    with pytest.raises(InvalidInputError):
        archiving.job(output_format=other)
    assert not (tmp_path / "another").exists()
    assert archiving.rows() == values(queue)


def test_what_a_session_has_no_catalog_for_is_refused(archiving: Archiving, tmp_path: Path) -> None:
    archiving.table = "nowhere.db.table"
    with pytest.raises(InvalidInputError, match="check its name"):
        archiving.job().run()
    with pytest.raises(InvalidInputError, match="needs a checkpoint"):
        archiving.job(checkpoint=None)
    with pytest.raises(InvalidInputError, match="parquet, delta or iceberg"):
        archiving.job(output_format="hudi")
    archiving.table = str(tmp_path / "files")
    with pytest.raises(InvalidInputError, match="keeps its own checkpoint"):
        archiving.job(output_format="parquet")


def test_a_delta_table_is_given_by_its_path_too(
    spark: SparkSession, connection: dict[str, str], make_queue: Make, tmp_path: Path
) -> None:
    archiving = Archiving(spark, make_queue(1), "delta", tmp_path, connection)
    fill(archiving.queue, 5)
    archiving.table = str(tmp_path / "a table")
    checkpoint = str(tmp_path / "checkpoint")
    for _ in range(2):
        archiving.job(checkpoint=checkpoint).run()
    assert spark.read.format("delta").load(archiving.table).count() == 5
    archiving.output_format = "iceberg"
    with pytest.raises(InvalidInputError, match="not by a path"):
        archiving.job(checkpoint=checkpoint)
    archiving.output_format = "parquet"
    with pytest.raises(InvalidInputError, match="do not belong to an archive"):
        archiving.job(checkpoint=None)


def test_a_round_is_found_by_its_messages_after_its_snapshot_has_expired(
    spark: SparkSession, connection: dict[str, str], make_queue: Make, tmp_path: Path
) -> None:
    archiving = Archiving(spark, make_queue(2), "iceberg", tmp_path, connection)
    fill(archiving.queue, 5)
    job, round_ = archiving.written_round()
    spark.sql(f"DELETE FROM {archiving.table} WHERE topic = 'a'")
    spark.sql(
        f"CALL lake.system.expire_snapshots(table => '{archiving.table.removeprefix('lake.')}', "
        "older_than => TIMESTAMP '2100-01-01 00:00:00', retain_last => 1)"
    )
    spark.catalog.refreshTable(archiving.table)
    assert spark.table(f"{archiving.table}.snapshots").count() == 1
    before = archiving.rows()
    job.target.write(round_)
    assert archiving.rows() == before
    archiving.run()
    assert archiving.rows() == before

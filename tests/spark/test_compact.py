"""An archive's files: what others read of them, skip in them, and see while Spark compacts them."""

from __future__ import annotations

import datetime as dt
import itertools
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

import hqueue
from hqueue import InvalidInputError, Message
from pyspark_hqueue.jobs.archive import Archive
from pyspark_hqueue.jobs.compact import Compact
from pyspark_hqueue.jobs.folder import Folder
from pyspark_hqueue.jobs.manifest import CompactionRecord
from pyspark_hqueue.jobs.parquet_options import ParquetOptions
from pyspark_hqueue.jobs.replay import Replay
from pyspark_hqueue.jobs.targets import Target
from tests.support.archives import DATE, DiskArchive

Make = Callable[..., hqueue.Queue]

LEAST = ParquetOptions(1 << 30, 64 * 1024)
TOPICS = ("a", "b%2Fc")
MESSAGES = 20_000


@pytest.fixture(scope="module")
def compacted(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DiskArchive:
    """An archive with one compacted file, whose rows are in several row groups."""
    archive = DiskArchive(tmp_path_factory.mktemp("compacted") / "archive")
    for number in range(4):
        archive.add_round("a", messages=MESSAGES // 8, int96=number % 2 == 0)
    rows = archive.listed()
    records: list[CompactionRecord] = []
    Compact(spark, str(archive.path), parquet=LEAST).run(records.append)
    assert [record.messages for record in records] == [MESSAGES]
    assert archive.listed() == rows
    return archive


def the_file(path: Path) -> Path:
    [file] = path.glob("date=*/topic=*/*.parquet")
    return file


def times_of(path: Path) -> list[tuple[dt.datetime, dt.datetime]]:
    """The least and the greatest time of each row group of a file; checks that rows lie by time."""
    file = pq.ParquetFile(path)
    assert file.schema_arrow.field("timestamp").type == pa.timestamp("us", tz="UTC")
    assert {"key", "headers"} <= {*file.schema_arrow.names}
    ranges = []
    for index in range(file.num_row_groups):
        group = file.metadata.row_group(index)
        for column in map(group.column, range(group.num_columns)):
            if column.path_in_schema == "timestamp":
                assert column.physical_type == "INT64"
                ranges.append((column.statistics.min, column.statistics.max))
    assert ranges == sorted(ranges)
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(ranges))
    assert ranges[0][0].utcoffset() == dt.timedelta(0)
    rows = file.read(["id", "partition"]).to_pylist()
    assert rows == sorted(rows, key=lambda row: (row["id"], row["partition"]))
    return ranges


def test_times_say_that_they_are_utc_and_rows_lie_by_time(compacted: DiskArchive) -> None:
    assert len(times_of(the_file(compacted.path))) > 3


Span = tuple[dt.datetime, dt.datetime]
Read = Callable[[Path, Span | None], list[int]]


def by_arrow(path: Path, span: Span | None) -> list[int]:
    found = ds.dataset(path, format="parquet", partitioning="hive")
    when = None
    if span is not None:
        when = (ds.field("timestamp") >= span[0]) & (ds.field("timestamp") <= span[1])
    return sorted(found.to_table(filter=when)["id"].to_pylist())


def by_pandas(path: Path, span: Span | None) -> list[int]:
    filters = None
    if span is not None:
        filters = [("timestamp", ">=", span[0]), ("timestamp", "<=", span[1])]
    frame = pd.read_parquet(path, filters=filters)
    assert str(frame["timestamp"].dt.tz) == "UTC"
    return sorted(frame["id"].tolist())


def by_duckdb(path: Path, span: Span | None) -> list[int]:
    with duckdb.connect() as database:
        files = f"{path}/date=*/topic=*/*.parquet"
        where = "" if span is None else "where timestamp >= ? and timestamp <= ?"
        database.execute(f"select * from read_parquet(?) {where}", [files, *(span or ())])
        names = [column[0] for column in database.description or ()]
        return sorted(row[names.index("id")] for row in database.fetchall())


@pytest.fixture
def by_spark(spark: SparkSession) -> Read:
    def read(path: Path, span: Span | None) -> list[int]:
        frame = spark.read.parquet(str(path))
        if span is not None:
            frame = frame.where(F.col("timestamp").between(*map(F.lit, span)))
        return sorted(row["id"] for row in frame.select("id", "value").collect())

    return read


def test_readers_that_filter_by_time_skip_the_other_row_groups(
    compacted: DiskArchive, tmp_path: Path, by_spark: Read
) -> None:
    """The other row groups are damaged: a reader that reads them fails."""
    file = pq.ParquetFile(the_file(compacted.path))
    path = tmp_path / "archive"
    shutil.copytree(compacted.path, path, ignore=shutil.ignore_patterns("*.crc"))
    wanted = file.num_row_groups // 2
    span: Span | None = None
    expected: list[int] = []
    with the_file(path).open("r+b") as damaged:
        for index in range(file.num_row_groups):
            group = file.metadata.row_group(index)
            columns = [group.column(n) for n in range(group.num_columns)]
            if index == wanted:
                times = file.read_row_group(index, ["timestamp"])["timestamp"].to_pylist()
                # The first and the last time may lie in the row groups beside it, too.
                inner = sorted({*times} - {min(times), max(times)})
                span = (inner[0], inner[-1])
            else:
                for column in columns:
                    begin = column.dictionary_page_offset or column.data_page_offset
                    damaged.seek(begin)
                    damaged.write(b"\xff" * column.total_compressed_size)
    assert span is not None
    expected = by_arrow(compacted.path, span)
    assert 100 < len(expected) < MESSAGES // 3
    for read in (by_arrow, by_pandas, by_duckdb, by_spark):
        assert read(compacted.path, span) == expected
        assert read(path, span) == expected
        with pytest.raises((OSError, duckdb.Error, Py4JError, PySparkException)):
            read(path, None)


def test_files_of_before_are_rewritten_with_the_columns_and_times_of_now(
    compacted: DiskArchive,
) -> None:
    table = pq.ParquetFile(the_file(compacted.path)).read()
    assert table["key"].null_count == table["headers"].null_count == MESSAGES
    for row in table.slice(0, 10).to_pylist():
        assert row["timestamp"] == dt.datetime.fromtimestamp(
            (row["id"] >> 15) / 1000, dt.timezone.utc
        )
        assert (row["sequence"], row["value"]) == (row["id"] & 0x7FFF, b"%d" % row["id"])


def test_an_archive_has_files_of_the_wanted_size_and_compaction_has(
    spark: SparkSession, connection: dict[str, str], make_queue: Make, tmp_path: Path
) -> None:
    queue = make_queue(1)
    chance = random.Random(1)
    for _ in range(10):
        queue.put([Message("a", chance.randbytes(2_000)) for _ in range(50)])
    path = tmp_path / "archive"
    options = {**connection, "maxRecordsPerPartition": "25"}
    small = ParquetOptions(128 * 1024, 64 * 1024)
    Archive(spark, queue.name, str(path), options=options, parquet=small).run()
    files = sorted(path.glob("date=*/topic=*/*.parquet"))
    sizes = [file.stat().st_size for file in files]
    assert 5 < len(sizes) < 15
    assert max(sizes) < 256 * 1024
    for file in files:
        times_of(file)
    wanted = [int(message.id) for message in queue.scan()]
    Compact(spark, str(path), parquet=ParquetOptions(512 * 1024, 64 * 1024)).run()
    files = sorted(path.glob("date=*/topic=*/*.parquet"))
    assert len(files) in (2, 3)
    assert by_arrow(path, None) == wanted
    assert max(file.stat().st_size for file in files) < 600 * 1024
    assert pq.ParquetFile(files[0]).num_row_groups > 1


def test_a_replay_goes_on_in_compacted_files(
    spark: SparkSession,
    connection: dict[str, str],
    make_queue: Make,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It has replayed two rounds when four are compacted, and a fifth while it is written."""
    target = make_queue(2)
    archive = DiskArchive(tmp_path / "archive")
    path = str(archive.path)

    def replay() -> int:
        return Replay(spark, path, target.name, options=connection).run()

    archive.add_round(*TOPICS, messages=20)
    archive.add_round(*TOPICS, messages=20)
    assert replay() == 160
    archive.add_round("a", messages=20)
    archive.add_round(*TOPICS, messages=20)
    Compact(spark, path).run()
    assert replay() == 120
    archive.add_round(*TOPICS, messages=20)
    write = Target.write
    compactions: list[CompactionRecord] = []

    def compacted_before(*arguments: Any, **named: Any) -> int:
        if not compactions:
            Compact(spark, path).run(compactions.append)
        return write(*arguments, **named)

    monkeypatch.setattr(Target, "write", compacted_before)
    assert replay() == 80
    assert len(compactions) == 1
    assert replay() == 0
    rows = archive.listed()
    assert len(rows) == 360
    for partition in range(2):
        found = [int(message.value) for message in target.scan(partition=partition)]
        assert found == [id_ for of, id_ in rows if of == partition]


class CutOff(Exception):  # noqa: N818
    """As if the process had ended here."""


@pytest.mark.parametrize(
    "allowed",
    [5, *(pytest.param(n, marks=pytest.mark.thorough("as with 5")) for n in (0, 2, 3, 4, 8))],
)
def test_what_was_cut_off_is_finished_by_the_next_run(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, allowed: int
) -> None:
    """`tests/unit/spark/jobs` has all steps, on a disk without Spark."""
    archive = DiskArchive(tmp_path / "archive")
    for _ in range(3):
        archive.add_round("a b%2Fc")
    rows = archive.listed()
    left = itertools.count(allowed, -1)

    def counted(whole: Callable[..., Any]) -> Callable[..., Any]:
        def step(*arguments: Any) -> Any:
            if next(left) <= 0:
                raise CutOff
            return whole(*arguments)

        return step

    with monkeypatch.context() as patched:
        for name in ("move", "delete"):
            patched.setattr(Folder, name, counted(getattr(Folder, name)))
        with pytest.raises(CutOff):
            Compact(spark, str(archive.path)).run()
    assert archive.listed() == rows
    markers = list(archive.path.rglob("*-wait.parquet"))
    assert len(markers) <= 1
    if markers:
        with pytest.raises(
            (Py4JError, PySparkException), match=r"not a Parquet file|FAILED_READ_FILE"
        ):
            spark.read.parquet(str(archive.path)).select("id", "value").collect()
    Compact(spark, str(archive.path)).run()
    assert archive.listed() == rows
    frame = spark.read.parquet(str(archive.path))
    assert sorted(map(tuple, frame.select("partition", "id").collect())) == rows
    assert len(list(archive.path.glob("date=*/topic=*/*.parquet"))) == 1


def test_a_folder_that_is_no_archive_is_not_compacted(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / f"date={DATE}").mkdir()
    with pytest.raises(InvalidInputError, match="not an archive"):
        Compact(spark, str(tmp_path))

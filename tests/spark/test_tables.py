"""Archives in tables of Delta Lake and Iceberg: each message once, wherever a run was cut off.

They run on the version of Spark that both have jars for: `make test-tables`. The queues are in
memory, behind gateways: what HBase has to do with archives is shown in `test_pipelines.py`.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import hqueue
from hqueue import InvalidInputError
from pyspark_hqueue.jobs.archive import Archive
from pyspark_hqueue.jobs.archive_target import Archived
from pyspark_hqueue.jobs.replay import Replay
from pyspark_hqueue.jobs.rounds import Round
from pyspark_hqueue.jobs.table_replay import TableReplay
from pyspark_hqueue.jobs.tables import DeltaTable, IcebergTable
from tests.support.memory.cluster import MemoryCluster
from tests.support.memory.gateway import GatewayPair
from tests.support.memory.zookeeper import MemoryZooKeeper

from .conftest import OWN_CONFIGURATION
from .table_formats import FORMATS, session_settings
from .test_pipelines import CutOff, Make, fill, values

pytestmark = pytest.mark.tables

names = itertools.count()

Rows = dict[int, list[tuple[str, bytes]]]
STEPS = {
    DeltaTable: ("prepare", "_mark", "_written"),
    IcebergTable: ("prepare", "_mark", "_snapshots", "_stage", "_publish"),
}
"""What changes something, or is called between two such steps."""


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where tables are that have a name."""
    return tmp_path_factory.mktemp("tables")


@pytest.fixture(scope="module")
def connection(tables: Path) -> Iterator[dict[str, str]]:
    """The options with which Spark reaches the queues. Commands find them in the environment."""
    with (
        contextlib.closing(GatewayPair(MemoryCluster())) as pair,
        MemoryZooKeeper() as zookeeper,
        pytest.MonkeyPatch.context() as patched,
    ):
        found = {
            "hqueue.gateways": ",".join(map(str, pair.gateways)),
            "hqueue.zookeeper": f"127.0.0.1:{zookeeper.port}",
        }
        for name, value in found.items():
            patched.setenv(name.replace(".", "_").upper(), value)
        patched.setenv("HQUEUE_CONFIG", os.devnull)
        patched.setenv("PYSPARK_PYTHON", sys.executable)
        patched.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        patched.setenv("SPARK_LOCAL_DIRS", str(tables / "spark"))
        yield found


@pytest.fixture(scope="module")
def client(connection: dict[str, str]) -> Iterator[hqueue.Client]:
    with hqueue.connect() as connected:
        yield connected


@pytest.fixture
def make_queue(client: hqueue.Client) -> Make:
    """Creates queues."""
    return lambda partitions: client.create_queue(f"q{next(names)}", partitions=partitions)


@pytest.fixture(scope="module")
def spark(connection: dict[str, str], tables: Path) -> Iterator[SparkSession]:
    """A session with the jars and the catalogs of both formats."""
    builder = SparkSession.builder.master("local[2,4]").appName("hqueue-tables")
    settings = {**OWN_CONFIGURATION, **session_settings(tables)}
    session = builder.config(map=settings).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(params=FORMATS)
def output_format(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def new_table(output_format: str) -> str:
    """The name of a table that does not exist."""
    return f"lake.db.t{next(names)}" if output_format == "iceberg" else f"t{next(names)}"


class Archiving:
    """Runs archives of one queue in one table."""

    def __init__(
        self, spark: SparkSession, queue: hqueue.Queue, output_format: str, folder: Path,
        connection: dict[str, str],
    ) -> None:  # fmt: skip
        self.spark = spark
        self.queue = queue
        self.output_format = output_format
        self.folder = folder
        self.connection = connection
        self.table = new_table(output_format)

    def job(self, **arguments: object) -> Archive:
        given = {
            "output_format": self.output_format,
            "checkpoint": str(self.folder / f"checkpoint-{self.table}"),
            "options": self.connection,
            **arguments,
        }
        return Archive(self.spark, self.queue.name, self.table, **given)  # type: ignore[arg-type]

    def run(self) -> list[Archived]:
        rounds: list[Archived] = []
        self.job().run(lambda _, archived: rounds.append(archived))
        return rounds

    def frame(self) -> DataFrame:
        self.spark.catalog.refreshTable(self.table)
        return self.spark.table(self.table)

    def rows(self) -> Rows:
        found: Rows = {}
        for row in self.frame().orderBy("partition", "id").collect():
            found.setdefault(row.partition, []).append((row.topic, bytes(row.value)))
        return found

    def commits(self) -> int:
        """How many commits the table has."""
        if self.output_format == "delta":
            return self.spark.sql(f"DESCRIBE HISTORY {self.table}").count()
        self.spark.catalog.refreshTable(self.table)
        return self.spark.table(f"{self.table}.history").count()


@pytest.fixture
def archiving(
    spark: SparkSession,
    connection: dict[str, str],
    make_queue: Make,
    output_format: str,
    tmp_path: Path,
) -> Archiving:
    return Archiving(spark, make_queue(2), output_format, tmp_path, connection)


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


def fail(*_: object) -> None:
    raise CutOff("after the round")


def the_round(archiving: Archiving) -> tuple[Archive, Round]:
    """A round that was written, and then cut off before the checkpoint had it."""
    job = archiving.job()
    rounds: list[Round] = []
    write = job.target.write

    def noted(round_: Round) -> Archived:
        rounds.append(round_)
        return write(round_)

    job.target.write = noted  # type: ignore[method-assign]
    with pytest.raises(hqueue.HQueueError):
        job.run(fail)
    del job.target.write
    return job, rounds[0]


def test_a_round_that_was_written_is_found(archiving: Archiving) -> None:
    fill(archiving.queue, 5)
    job, round_ = the_round(archiving)
    commits = archiving.commits()
    assert job.target.write(round_).messages == 10
    assert archiving.commits() == commits
    assert archiving.rows() == values(archiving.queue)


def test_two_runs_that_write_a_round_at_once_write_it_once(archiving: Archiving) -> None:
    fill(archiving.queue, 5)
    _, round_ = the_round(archiving)
    later = Round(round_.name, round_.number + 1, round_.messages, round_.frame)
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
    _, round_ = the_round(archiving)
    later = Round(round_.name, round_.number + 1, round_.messages, round_.frame)
    whole = getattr(kind, name)

    def overtaken(*arguments: object) -> object:
        monkeypatch.setattr(kind, name, whole)
        archiving.job().target.write(later)
        return whole(*arguments)

    monkeypatch.setattr(kind, name, overtaken)
    assert archiving.job().target.write(later).messages == 10
    assert archiving.frame().count() == 20


@pytest.mark.parametrize(
    ("columns", "difference"),
    [
        ("id bigint", "it has no column partition int"),
        ("{own}, extra string", "it has a column extra more"),
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
        with pytest.raises(InvalidInputError, match="other columns") as caught:
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
    with pytest.raises(InvalidInputError, match="other columns"):
        archiving.job()


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
    with pytest.raises(InvalidInputError, match="is its name right"):
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
    job, round_ = the_round(archiving)
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


def replayed(queue: hqueue.Queue) -> list[tuple[str, bytes]]:
    return sorted(message for messages in values(queue).values() for message in messages)


def test_a_table_is_replayed_in_order_and_goes_on(
    archiving: Archiving, make_queue: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    target = make_queue(2)

    def job(**arguments: object) -> TableReplay:
        given = {"options": archiving.connection, **arguments}
        return TableReplay(
            archiving.spark, archiving.table, archiving.output_format, target.name,
            str(tmp_path / "replay"), **given,  # type: ignore[arg-type]
        )  # fmt: skip

    fill(archiving.queue, 20)
    archiving.run()
    assert sum(piece.messages for piece in job().pending()) == 40
    assert not (tmp_path / "replay").exists()

    # The piece is written, and then nobody hears of it: the table gets more meanwhile.
    claim = hqueue.Queue.claim_epoch
    monkeypatch.setattr(hqueue.Queue, "claim_epoch", fail)
    with pytest.raises(CutOff):
        job().run()
    monkeypatch.setattr(hqueue.Queue, "claim_epoch", claim)
    wanted = values(archiving.queue)
    assert values(target) == wanted
    fill(archiving.queue, 5, first=20)
    archiving.run()
    assert [piece.messages for piece in job().pending()] == [40, 10]
    if archiving.output_format == "delta":
        archiving.spark.sql(f"OPTIMIZE {archiving.table}")
    else:
        archiving.spark.sql(
            "CALL lake.system.rewrite_data_files("
            f"table => '{archiving.table}', options => map('rewrite-all', 'true'))"
        )
    assert job().run() == 50
    assert values(target) == values(archiving.queue)
    assert job().run() == 0
    assert values(target) == values(archiving.queue)
    with pytest.raises(InvalidInputError, match="another replay"):
        job(topics=["a"])


def test_what_of_a_table_is_replayed_can_be_chosen(
    archiving: Archiving, make_queue: Make, tmp_path: Path
) -> None:
    target = make_queue(1)
    fill(archiving.queue, 20)
    archiving.run()
    ids = sorted(message.id for message in archiving.queue.scan())
    TableReplay(
        archiving.spark, archiving.table, archiving.output_format, target.name,
        str(tmp_path / "replay"), topics=["a"], topic="z", start=ids[5], stop=ids[30],
        options=archiving.connection,
    ).run()  # fmt: skip
    wanted = [
        ("z", message.value)
        for message in archiving.queue.scan()
        if message.topic == "a" and ids[5] <= message.id < ids[30]
    ]
    assert replayed(target) == sorted(wanted)


def test_what_is_no_archive_is_not_replayed(
    spark: SparkSession, connection: dict[str, str], make_queue: Make, output_format: str,
    tmp_path: Path,
) -> None:  # fmt: skip
    queue, table = make_queue(1), new_table(output_format)

    def job(name: str) -> TableReplay:
        return TableReplay(
            spark, name, output_format, queue.name, str(tmp_path / "r"), options=connection
        )

    with pytest.raises(InvalidInputError, match="is its name right"):
        job(table)
    spark.sql(f"CREATE TABLE {table} (id bigint, value string) USING {output_format}")
    with pytest.raises(InvalidInputError, match="not an archive") as caught:
        job(table)
    assert "value is string, not binary" in str(caught.value)
    if output_format == "delta":
        path = str(tmp_path / "path")
        spark.range(3).selectExpr("'a' topic", "string(id) value").write.format("delta").save(path)
        with pytest.raises(InvalidInputError, match="--format delta"):
            Replay(spark, path, queue.name, options=connection)


PAGE = Path(__file__).parents[2] / "docs" / "tables.md"


def recipe(name: str) -> str:
    """A program of the page, by its first line."""
    for block in PAGE.read_text().split("```python\n")[1:]:
        program = block.partition("```")[0]
        if program.startswith(f"# {name}\n"):
            return program
    raise LookupError(name)


@pytest.mark.parametrize("name", ["sink", "foreach_batch delta", "foreach_batch iceberg"])
def test_the_recipes_of_the_page_write_each_message_once(
    *,
    spark: SparkSession,
    connection: dict[str, str],
    make_queue: Make,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
) -> None:
    queue = make_queue(2)
    table = new_table("iceberg" if "iceberg" in name else "delta")
    for setting, value in connection.items():
        monkeypatch.setenv(setting.replace("hqueue.", "HQUEUE_").upper(), value)
    program = recipe(name)
    for written, here in (
        ('"events"', f'"{queue.name}"' if "sink" not in name else '"events"'),
        ("lake.db.events", table),
        ("/checkpoints/", f"{tmp_path}/"),
    ):
        program = program.replace(written, here)
    if name == "sink":
        program = program.replace('("queue", "events")', f'("queue", "{queue.name}")')
        program = program.replace('toTable("events")', f'toTable("{table}")')
    program = program.replace(f'saveAsTable("{queue.name}")', f'saveAsTable("{table}")')
    if table.startswith("lake"):
        columns = spark.read.format("hqueue").options(queue=queue.name, **connection).load().schema
        spark.createDataFrame([], columns).writeTo(table).create()

    def run() -> None:
        exec(compile(program, name, "exec"), {"spark": spark})
        for query in spark.streams.active:
            assert query.awaitTermination(120)

    fill(queue, 10)
    run()
    fill(queue, 10, first=10)
    run()
    # As if the last batch had not been recorded.
    [checkpoint] = tmp_path.iterdir()
    last = max((checkpoint / "commits").glob("[0-9]*"), key=lambda file: int(file.name))
    last.unlink()
    last.with_name(f".{last.name}.crc").unlink(missing_ok=True)
    run()
    spark.catalog.refreshTable(table)
    rows = spark.table(table).select("partition", "topic", "value", "id").orderBy("partition", "id")
    found: Rows = {}
    for row in rows.collect():
        found.setdefault(row.partition, []).append((row.topic, bytes(row.value)))
    assert found == values(queue)

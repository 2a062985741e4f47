"""The pipelines: each message once, in its order, wherever a run was cut off."""

from __future__ import annotations

import collections
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import hqueue
from hqueue import DeadLetter, InvalidInputError, Message
from pyspark_hqueue.jobs.archive import Archive
from pyspark_hqueue.jobs.folder import Folder
from pyspark_hqueue.jobs.queue_copy import Copy
from pyspark_hqueue.jobs.queue_statistics import Counting
from pyspark_hqueue.jobs.replay import NULL_TOPIC, Replay
from pyspark_hqueue.jobs.targets import Target

TOPICS = ("a", "b/c", "007")

Make = Callable[..., hqueue.Queue]


def fill(queue: hqueue.Queue, messages: int = 300, first: int = 0) -> None:
    """Messages of several topics in every partition, which say where they lie."""
    for partition in range(queue.partitions):
        queue.put(
            [
                Message(TOPICS[n % len(TOPICS)], b"%d:%d" % (partition, n))
                for n in range(first, first + messages)
            ],
            partition=partition,
        )


def values(queue: hqueue.Queue) -> dict[int, list[tuple[str, bytes]]]:
    """All messages of each partition, in their order."""
    found: dict[int, list[tuple[str, bytes]]] = collections.defaultdict(list)
    for message in queue.scan():
        found[message.partition].append((message.topic, message.value))
    return dict(found)


def archived(path: Path) -> dict[int, list[tuple[str, bytes]]]:
    """What any reader finds in an archive, in the order of the IDs."""
    files = [
        file for file in path.rglob("*.parquet") if "_hqueue" not in file.relative_to(path).parts
    ]
    rows = []
    for file in files:
        topic = next(part for part in file.parts if part.startswith("topic="))[len("topic=") :]
        for row in pq.ParquetFile(file).read().to_pylist():
            rows.append((row["partition"], row["id"], topic.replace("%2F", "/"), row["value"]))
    found: dict[int, list[tuple[str, bytes]]] = collections.defaultdict(list)
    for partition, _, topic, value in sorted(rows):
        found[partition].append((topic, value))
    return dict(found)


class CutOff(Exception):  # noqa: N818
    """As if the process had ended here."""


@pytest.fixture
def cut_off(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int | None], list[str]]]:
    """Lets the n-th step that changes something fail for good, before it is done."""
    steps: list[str] = []
    at: list[int | None] = [None]

    def guarded(kind: type, name: str) -> None:
        whole = getattr(kind, name)

        def step(*arguments: object, **named: object) -> object:
            steps.append(name)
            if at[0] is not None and len(steps) > at[0]:
                raise CutOff(name)
            return whole(*arguments, **named)

        monkeypatch.setattr(kind, name, step)

    for kind, names in ((Folder, ("publish", "move", "delete")), (Target, ("write",))):
        for name in names:
            guarded(kind, name)

    def arm(step: int | None) -> list[str]:
        steps.clear()
        at[0] = step
        return steps

    yield arm
    at[0] = None


def archive(spark: SparkSession, queue: hqueue.Queue, path: Path, options: dict[str, str]) -> int:
    """Archive what is there; how many messages came into files."""
    written = []
    job = Archive(spark, queue.name, str(path), round_messages=400, options=options)
    job.run(lambda _, record: written.append(record.messages))
    return sum(written)


@pytest.mark.thorough("archives are replayed beside it, too")
def test_an_archive_has_each_message_once_and_goes_on(
    spark: SparkSession, connection: dict[str, str], make_queue: Make, tmp_path: Path
) -> None:
    queue = make_queue(2)
    fill(queue)
    path = tmp_path / "archive"
    job = Archive(spark, queue.name, str(path), options=connection)
    assert sum(range_.messages for range_ in job.pending()) == 600
    assert not path.exists()

    assert archive(spark, queue, path, connection) == 600
    assert archived(path) == values(queue)
    assert archive(spark, queue, path, connection) == 0
    fill(queue, 10, first=300)
    assert sum(range_.messages for range_ in job.pending()) == 20
    assert archive(spark, queue, path, connection) == 20
    assert archived(path) == values(queue)
    assert spark.read.parquet(str(path)).count() == 620
    assert not list((path / "_hqueue" / "staging").iterdir())


@pytest.mark.thorough("an archive is cut off at each of its steps, 45 s")
def test_an_archive_that_was_cut_off_anywhere_is_finished_by_the_next_run(
    spark: SparkSession,
    connection: dict[str, str],
    make_queue: Make,
    tmp_path: Path,
    cut_off: Callable[[int | None], list[str]],
) -> None:
    queue = make_queue(1)
    fill(queue, 30)
    steps = cut_off(None)
    archive(spark, queue, tmp_path / "whole", connection)
    total = len(steps)
    assert {"publish", "move", "delete"} == {*steps}
    wanted = values(queue)
    for step in range(1, total):
        path = tmp_path / str(step)
        cut_off(step)
        with pytest.raises((CutOff, hqueue.HQueueError)):
            archive(spark, queue, path, connection)
        seen = archived(path).get(0, [])
        assert len(seen) == len({*seen}), f"after step {step}"
        cut_off(None)
        archive(spark, queue, path, connection)
        assert archived(path) == wanted, f"after step {step}"


@pytest.mark.thorough("a job that is cut off; `make test` has the whole one")
def test_of_two_tries_of_a_round_the_first_that_names_its_files_counts(
    spark: SparkSession,
    connection: dict[str, str],
    make_queue: Make,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    queue = make_queue(1)
    fill(queue, 30)
    path = tmp_path / "archive"
    publish = Folder.publish
    attempts = []

    def overtaken(folder: Folder, name: str, text: str) -> bool:
        if "/rounds/" in name and not attempts:
            mine = json.loads(text)["attempt"]
            staging = path / "_hqueue" / "staging"
            shutil.copytree(staging / mine, staging / f"{mine}0")
            attempts.append(f"{mine}0")
            assert publish(folder, name, text.replace(mine, f"{mine}0"))
        return publish(folder, name, text)

    monkeypatch.setattr(Folder, "publish", overtaken)
    archive(spark, queue, path, connection)
    assert archived(path) == values(queue)
    (record,) = map(json.loads, map(Path.read_text, (path / "_hqueue" / "rounds").iterdir()))
    assert [record["attempt"]] == attempts


def test_an_archive_whose_checkpoint_was_set_back_is_refused_and_loses_nothing(
    spark: SparkSession, connection: dict[str, str], make_queue: Make, tmp_path: Path
) -> None:
    queue = make_queue(1)
    path = tmp_path / "archive"
    checkpoint = path / "_hqueue" / "checkpoint"
    for name in ("first", "second"):
        fill(queue, 10)
        archive(spark, queue, path, connection)
        shutil.copytree(checkpoint, tmp_path / name)
    fill(queue, 10)
    for name in ("first", None):
        shutil.rmtree(checkpoint)
        if name is not None:
            shutil.copytree(tmp_path / name, checkpoint)
        with pytest.raises(InvalidInputError, match="was removed or set back"):
            archive(spark, queue, path, connection)
        assert checkpoint.exists() == (name is not None)
    shutil.copytree(tmp_path / "second", checkpoint, dirs_exist_ok=True)

    # A round of that number and with other messages, as by a copy of the checkpoint.
    job = Archive(spark, queue.name, str(path), round_messages=400, options=connection)
    record = path / "_hqueue" / "rounds" / "00000002.json"
    text = json.loads((path / "_hqueue" / "rounds" / "00000001.json").read_text())
    record.write_text(json.dumps({**text, "number": 2, "attempt": "00000002-other"}))
    with pytest.raises(InvalidInputError, match="was removed or set back"):
        job.run()
    record.unlink()
    assert archive(spark, queue, path, connection) == 10
    assert archived(path) == values(queue)


def test_a_topic_that_means_null_to_spark_is_replayed(
    spark: SparkSession, connection: dict[str, str], make_queue: Make, tmp_path: Path
) -> None:
    queue, target = make_queue(1), make_queue(1)
    queue.put([Message(NULL_TOPIC, b"1"), Message("t", b"2")], partition=0)
    archive(spark, queue, tmp_path / "archive", connection)
    Replay(spark, str(tmp_path / "archive"), target.name, options=connection).run()
    assert values(target) == values(queue)


@pytest.mark.parametrize(
    "partitions", [2, pytest.param(5, marks=pytest.mark.thorough("as with 2"))]
)
def test_an_archive_is_replayed_once_and_in_order(
    spark: SparkSession,
    connection: dict[str, str],
    make_queue: Make,
    tmp_path: Path,
    partitions: int,
) -> None:
    queue, target = make_queue(3), make_queue(partitions)
    fill(queue)
    path = tmp_path / "archive"
    archive(spark, queue, path, connection)
    job = Replay(spark, str(path), target.name, options=connection)
    assert sum(piece.messages for piece in job.pending()) == 900
    assert values(target) == {}
    assert job.run() == 900
    assert in_order(values(queue), values(target), lambda partition: partition % partitions)
    assert Replay(spark, str(path), target.name, options=connection).run() == 0
    fill(queue, 10, first=300)
    archive(spark, queue, path, connection)
    assert Replay(spark, str(path), target.name, options=connection).run() == 30
    assert in_order(values(queue), values(target), lambda partition: partition % partitions)


def in_order(
    source: dict[int, list[tuple[str, bytes]]],
    target: dict[int, list[tuple[str, bytes]]],
    place: Callable[[int], int],
) -> bool:
    """Whether each source partition lies in its place, whole and in its order."""
    assert sum(map(len, target.values())) == sum(map(len, source.values()))
    for partition, wanted in source.items():
        mine = b"%d:" % partition
        assert [m for m in target[place(partition)] if m[1].startswith(mine)] == wanted
    return True


@pytest.mark.thorough("a job that is cut off; `make test` has the whole one")
def test_a_replay_that_was_cut_off_finds_what_it_has_written(
    spark: SparkSession,
    connection: dict[str, str],
    make_queue: Make,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    queue, target = make_queue(2), make_queue(2)
    fill(queue)
    path = tmp_path / "archive"
    archive(spark, queue, path, connection)
    write = Target.write

    def written_and_dead(*arguments: object, **named: object) -> int:
        write(*arguments, **named)  # type: ignore[arg-type]
        raise CutOff

    with monkeypatch.context() as patched:
        patched.setattr(Target, "write", written_and_dead)
        with pytest.raises(CutOff):
            Replay(spark, str(path), target.name, options=connection).run()
    assert Replay(spark, str(path), target.name, options=connection).run() == 600
    assert values(target) == values(queue)


def test_parquet_of_others_is_replayed_by_key_and_in_the_order_of_its_rows(
    spark: SparkSession, connection: dict[str, str], make_queue: Make, tmp_path: Path
) -> None:
    target = make_queue(3)
    rows = [{"key": f"k{n % 7}", "topic": "t", "value": b"%d" % n} for n in range(200)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet")
    job = Replay(spark, str(tmp_path), target.name, options=connection)
    assert job.run() == 200
    assert Replay(spark, str(tmp_path), target.name, options=connection).run() == 0
    wanted: dict[int, list[tuple[str, bytes]]] = collections.defaultdict(list)
    for row in rows:
        place = target.choose_partition(None, str(row["key"]))
        assert place is not None
        wanted[place].append(("t", row["value"]))  # type: ignore[arg-type]
    assert values(target) == wanted


OTHER_RULE = pytest.mark.thorough("as with another rule")


@pytest.mark.parametrize(
    "rule",
    [
        ("partition", None),
        pytest.param(("topic", lambda topic, value: topic.encode()), marks=OTHER_RULE),
        pytest.param(
            ("substr(cast(value as string), 3)", lambda topic, value: value[2:]), marks=OTHER_RULE
        ),
    ],
)
def test_a_copy_has_each_message_once_where_the_rule_says(
    spark: SparkSession,
    connection: dict[str, str],
    make_queue: Make,
    tmp_path: Path,
    rule: tuple[str, Callable[[str, bytes], bytes] | None],
) -> None:
    by, place = rule
    queue, target = make_queue(3), make_queue(2)
    fill(queue, 100)

    def copy() -> int:
        job = Copy(
            spark, queue.name, target.name, str(tmp_path / "checkpoint"),
            by=by, round_messages=200, options=connection,
        )  # fmt: skip
        written: list[int] = []
        job.run(lambda _, number: written.append(number))
        return sum(written)

    assert copy() == 300
    assert copy() == 0
    fill(queue, 10, first=100)
    assert copy() == 30
    found = values(target)
    if place is None:
        assert in_order(values(queue), found, lambda partition: partition % 2)
        return
    assert sum(map(len, found.values())) == 330
    for partition, messages in found.items():
        for topic, value in messages:
            assert target.choose_partition(None, place(topic, value)) == partition
        for source in range(3):
            mine = [int(v.split(b":")[1]) for _, v in messages if v.startswith(b"%d:" % source)]
            assert mine == sorted(mine)


def test_a_copy_has_none_of_the_systems_own_topics_and_headers(
    spark: SparkSession,
    connection: dict[str, str],
    make_queue: Make,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    queue, target = make_queue(1), make_queue(1)
    queue.put(Message("t", b"a", headers=[("n", b"v")]))
    numbered = Message("t", b"b", headers=[("hqueue.number", b"1"), ("m", b"w")])
    queue._log.appender.put_system([numbered], 0)
    [read, _] = queue.scan()
    queue.dead_letters.put([DeadLetter(read, "s", "why", 1)])
    job = Copy(spark, queue.name, target.name, str(tmp_path / "checkpoint"), options=connection)
    written: list[int] = []
    job.run(lambda _, number: written.append(number))
    assert sum(written) == 2
    assert [(each.topic, each.value, each.headers) for each in target.scan()] == [
        ("t", b"a", (("n", b"v"),)),
        ("t", b"b", (("m", b"w"),)),
    ]
    assert "left out 1 messages" in caplog.text


@pytest.mark.thorough("as of an archive")
def test_a_copy_whose_checkpoint_was_set_back_is_refused(
    spark: SparkSession, connection: dict[str, str], make_queue: Make, tmp_path: Path
) -> None:
    queue, target = make_queue(1), make_queue(1)
    arguments = (spark, queue.name, target.name, str(tmp_path / "checkpoint"))
    for name in ("first", "second"):
        fill(queue, 10)
        Copy(*arguments, options=connection).run()
        shutil.copytree(tmp_path / "checkpoint", tmp_path / name)
    fill(queue, 10)
    shutil.rmtree(tmp_path / "checkpoint")
    shutil.copytree(tmp_path / "first", tmp_path / "checkpoint")
    with pytest.raises(InvalidInputError, match="an earlier run wrote other messages"):
        Copy(*arguments, options=connection).run()
    assert len(values(target)[0]) == 20
    shutil.rmtree(tmp_path / "checkpoint")
    shutil.copytree(tmp_path / "second", tmp_path / "checkpoint")
    Copy(*arguments, options=connection).run()
    assert values(target) == values(queue)


@pytest.mark.thorough("a job that is cut off; `make test` has the whole one")
def test_a_copy_that_died_before_it_noted_a_round_does_not_double_it(
    spark: SparkSession,
    connection: dict[str, str],
    make_queue: Make,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    queue, target = make_queue(2), make_queue(3)
    fill(queue, 100)
    arguments = (spark, queue.name, target.name, str(tmp_path / "checkpoint"))
    write = Target.write

    def written_and_dead(*given: object, **named: object) -> int:
        write(*given, **named)  # type: ignore[arg-type]
        raise hqueue.errors.StoreError("the driver is gone")

    with monkeypatch.context() as patched:
        patched.setattr(Target, "write", written_and_dead)
        with pytest.raises(hqueue.errors.StoreError, match="the driver is gone"):
            Copy(*arguments, options=connection).run()
    assert in_order(values(queue), values(target), lambda partition: partition)
    assert sum(range_.messages for range_ in Copy(*arguments, options=connection).pending()) == 200
    Copy(*arguments, options=connection).run()
    assert in_order(values(queue), values(target), lambda partition: partition)


def test_headers_and_messages_tell_the_same(
    spark: SparkSession, connection: dict[str, str], make_queue: Make
) -> None:
    queue = make_queue(2)
    fill(queue, 100)
    queue.put(Message("single", b"12345"), partition=1)
    counting = Counting(queue.name, window_ms=1_000, options=connection)
    by_headers, by_messages = counting.by_headers(), counting.by_messages(spark)
    assert by_headers == by_messages
    sizes = [len(value) for messages in values(queue).values() for _, value in messages]
    assert (by_headers.messages, by_headers.bytes) == (201, sum(sizes))
    assert {count.group: count.messages for count in by_headers.groups()} == {
        "a": 68, "b/c": 66, "007": 66, "single": 1,
    }  # fmt: skip
    chosen = Counting(
        queue.name, where="topic = 'a'", by="length(value) > 4", options=connection
    ).by_messages(spark)
    assert {count.group: count.messages for count in chosen.groups()} == lengths(queue)


def lengths(queue: hqueue.Queue) -> dict[str, int]:
    return dict(
        collections.Counter(
            str(len(value) > 4).lower()
            for messages in values(queue).values()
            for topic, value in messages
            if topic == "a"
        )
    )


def test_wrong_input_is_refused_before_anything_is_done(
    spark: SparkSession, connection: dict[str, str], make_queue: Make, tmp_path: Path
) -> None:
    queue, target = make_queue(1), make_queue(1)
    fill(queue, 3)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").write_text("mine")
    pq.write_table(pa.table({"x": [1]}), tmp_path / "other.parquet")
    checkpoint = str(tmp_path / "checkpoint")
    refused: Sequence[tuple[str, Callable[[], object]]] = [
        ("do not belong to an archive", lambda: Archive(
            spark, queue.name, str(tmp_path / "full"), options=connection)),
        ("can.t use this path", lambda: Archive(
            spark, queue.name, "nowhere://x/y", options=connection)),
        ("there are no files at this path", lambda: Replay(
            spark, str(tmp_path / "none"), target.name, options=connection)),
        ("column value", lambda: Replay(
            spark, str(tmp_path / "other.parquet"), target.name, options=connection)),
        ("into itself", lambda: Copy(
            spark, queue.name, queue.name, checkpoint, options=connection)),
        ("an expression", lambda: Copy(
            spark, queue.name, target.name, checkpoint, by="nothing(", options=connection)),
        ("must be deterministic", lambda: Copy(
            spark, queue.name, target.name, checkpoint, by="rand()", options=connection)),
        ("Spark SQL", lambda: Counting(
            queue.name, where="nothing", options=connection).by_messages(spark)),
        ("1 ms", lambda: Counting(queue.name, window_ms=0, options=connection)),
    ]  # fmt: skip
    for text, job in refused:
        with pytest.raises(InvalidInputError, match=text):
            job()
    assert values(target) == {}
    assert not Path(checkpoint).exists()

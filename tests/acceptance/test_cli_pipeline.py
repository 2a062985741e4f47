"""``hqueue pipeline``, and the same jobs as programs of Spark's own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow.dataset as ds
import pytest

import hqueue
import pyspark_hqueue.jobs.archive
from hqueue import Message
from tests.acceptance.commands import DEADLINE_S, Run
from tests.support.waiting import wait_for

pytestmark = [
    pytest.mark.usefixtures("server"),
    pytest.mark.thorough("each command starts a Spark of its own, two minutes"),
]

LOCAL = ("--master", "local[1]", "--conf", "spark.ui.enabled=false")
MESSAGES = 900


@pytest.fixture(scope="module")
def filled(client: hqueue.Client, shared: str) -> str:
    """A queue with three partitions, and 300 messages in each."""
    queue = client.queue(shared)
    for partition in range(3):
        queue.put([Message(f"t{n % 2}", b"%d" % n) for n in range(300)], partition=partition)
    return shared


def archived(path: Path) -> list[tuple[int, int]]:
    """What every reader finds in an archive: partitions and IDs."""
    table = ds.dataset(path, format="parquet", exclude_invalid_files=True).to_table()
    return sorted(zip(table["partition"].to_pylist(), table["id"].to_pylist(), strict=True))


def test_statistics_come_from_headers_and_are_drawn(
    run_process: Run, filled: str, tmp_path: Path
) -> None:
    picture = tmp_path / "picture.png"
    ended = run_process("pipeline", "statistics", filled, "--json", "--plot", str(picture))
    assert ended.code == 0
    counts = [json.loads(line) for line in ended.lines]
    assert sum(count["messages"] for count in counts) == MESSAGES
    assert {count["topic"] for count in counts} == {"t0", "t1"}
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert "900 messages" in ended.err


def test_a_dry_run_says_what_would_be_done_and_does_nothing(
    run_process: Run, filled: str, opened: hqueue.Queue, tmp_path: Path
) -> None:
    path = tmp_path / "archive"
    would = run_process("pipeline", "archive", filled, str(path), "--dry-run", *LOCAL)
    assert would.code == 0
    assert [line.split("\t")[::3] for line in would.lines] == [[str(p), "300"] for p in range(3)]
    assert "900 messages" in would.err
    checkpoint = tmp_path / "checkpoint"
    would = run_process(
        "pipeline", "copy", filled, opened.name, "-c", str(checkpoint), "--dry-run", *LOCAL
    )  # fmt: skip
    assert would.code == 0
    assert not path.exists()
    assert not checkpoint.exists()
    assert not list(opened.scan())


@pytest.mark.parametrize(
    "arguments",
    [
        ("archive", "{queue}", "nowhere://x/y", *LOCAL),
        ("replay", "/no/such/folder", "{queue}", *LOCAL),
        ("copy", "{queue}", "{queue}", "--checkpoint", "{folder}", *LOCAL),
        ("archive", "{queue}", "{folder}", "--conf", "nonsense"),
        ("statistics", "{queue}", "--window", "soon"),
        ("statistics", "{queue}", "--plot", "picture.doc"),
    ],
)
def test_wrong_input_is_told(
    run_process: Run, filled: str, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    given = [text.format(queue=filled, folder=tmp_path / "folder") for text in arguments]
    ended = run_process("pipeline", *given)
    assert ended.code == 2
    assert "hqueue: error: " in ended.err
    assert not (tmp_path / "folder").exists()


def test_a_queue_that_is_not_there_is_told(run_process: Run, tmp_path: Path) -> None:
    assert run_process("pipeline", "statistics", "no-such-queue").code == 1
    assert (
        run_process("pipeline", "archive", "no-such-queue", str(tmp_path / "a"), *LOCAL).code == 1
    )


@pytest.fixture
def killed(environment: dict[str, str], filled: str, tmp_path: Path) -> Path:
    """An archive whose driver was killed while a task was writing files."""
    path = tmp_path / "archive"
    program = Path(pyspark_hqueue.jobs.archive.__file__)
    process = subprocess.Popen(
        [sys.executable, str(program), filled, str(path), "--round-messages", "100", *LOCAL],
        env=environment,
        start_new_session=True,
    )
    try:
        rounds = path / "_hqueue" / "rounds"
        wait_for(lambda: len(list(rounds.glob("*.json"))) >= 2, "two rounds", timeout_s=DEADLINE_S)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(DEADLINE_S)
    return path


def test_a_killed_archive_goes_on_and_is_compacted_and_replayed(
    run_process: Run,
    killed: Path,
    client: hqueue.Client,
    filled: str,
    opened: hqueue.Queue,
) -> None:
    path = killed
    assert len(archived(path)) < MESSAGES
    ended = run_process("pipeline", "archive", filled, str(path), *LOCAL)
    assert ended.code == 0, ended.err
    assert "[Stage" not in ended.err, "Spark's progress bar"
    wanted = sorted((m.partition, int(m.id)) for m in client.queue(filled).scan())
    assert archived(path) == wanted
    ended = run_process("pipeline", "compact", str(path), *LOCAL)
    assert ended.code == 0, ended.err
    assert "became 2 files" in ended.err
    assert archived(path) == wanted
    ended = run_process("pipeline", "replay", str(path), opened.name, *LOCAL)
    assert ended.code == 0, ended.err
    for partition in range(3):
        source = [m.value for m in client.queue(filled).scan(partition=partition)]
        assert [m.value for m in opened.scan(partition=partition)] == source

"""What the commands refuse before Spark is started."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from hqueue.errors import InvalidInputError
from pyspark_hqueue.jobs import command
from tests.support.command_line import run_here


@pytest.fixture(autouse=True)
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextlib.contextmanager
    def started(*_: Any) -> Iterator[None]:
        raise InvalidInputError("Spark was started")
        yield

    monkeypatch.setattr(command, "command_session", started)


def said(*arguments: str) -> str:
    code, _, stderr = run_here(["pipeline", *arguments], b"", {"HQUEUE_CONFIG": "/dev/null"})
    assert code == 2, stderr
    return stderr


@pytest.mark.parametrize("bound", ["--start", "--stop"])
@pytest.mark.parametrize("moment", ["now", "-1d", "1h30m ago"])
def test_a_replay_that_would_have_another_name_each_time_is_refused(
    bound: str, moment: str
) -> None:
    replay = ("replay", "/archive", "events", f"{bound}={moment}")
    assert "--write-id" in said(*replay)
    assert "Spark was started" in said(*replay, "--write-id", "mine")


@pytest.mark.parametrize("moment", ["1700000000000-0", "2024-05-01T12:00Z", "1700000000000"])
def test_a_replay_from_a_fixed_moment_needs_no_write_id(moment: str) -> None:
    assert "Spark was started" in said("replay", "/archive", "events", "--start", moment)


@pytest.mark.parametrize("size", ["--target-file-size-bytes", "--row-group-size-bytes"])
def test_sizes_of_files_that_are_too_small_are_refused(size: str) -> None:
    shown = said("compact", "/archive", size, "1000")
    assert "the size must be at least 65536 bytes" in shown
    assert "Spark was started" in said("compact", "/archive", size, "65536")


TABLE = ("archive", "events", "/lake/events", "--format", "delta")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (TABLE, "needs a checkpoint"),
        ((*TABLE, "-c", "/lake/events/"), "the checkpoint and the table lie in each other"),
        ((*TABLE, "-c", "/lake/x/../events/_ck"), "the checkpoint and the table lie in each other"),
        ((*TABLE, "-c", "file:///lake"), "the checkpoint and the table lie in each other"),
        ((*TABLE, "-c", "/c", "--target-file-size-bytes", "70000"), "set the table's properties"),
        (("archive", "events", "/files", "-c", "/c"), "keeps its own checkpoint"),
        (("archive", "events", "/x", "--format", "iceberg", "-c", "/c"), "not by a path"),
        (("archive", "no/queue", "/files"), "queue"),
        (("replay", "/t", "q", "--format", "delta", "-c", "/t/c"), "lie in each other"),
        (("replay", "/t", "q", "--format", "iceberg", "-c", "/c"), "not by a path"),
        (("copy", "events", "events", "-c", "/c"), "can't be copied into itself"),
    ],
)
def test_arguments_that_do_not_go_together_are_refused(
    arguments: tuple[str, ...], text: str
) -> None:
    shown = said(*arguments)
    assert text in shown
    assert "Spark was started" not in shown


@pytest.mark.parametrize("checkpoint", ["/lake/events-checkpoint", "/lake/event", "hdfs://h/lake"])
def test_a_checkpoint_beside_its_table_is_good(checkpoint: str) -> None:
    assert "Spark was started" in said(*TABLE, "-c", checkpoint)

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

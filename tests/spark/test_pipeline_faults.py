"""Pipelines that are killed, with all that they started, as soon as they get on a little."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import hqueue
from hqueue import Message
from tests.support.archives import DiskArchive
from tests.support.waiting import wait_for

from .drivers import Driver
from .test_pipelines import Make, archived, in_order, values

pytestmark = [pytest.mark.drivers, pytest.mark.usefixtures("spark_environment")]

MESSAGES = 20_000
"""In each partition."""
KILLS = 3
ROUND = ("--round-messages", "10000")


class Pipeline:
    """Runs `hqueue pipeline` again and again."""

    def __init__(self, log: Path, *command: str) -> None:
        self._log = log
        self._command = command

    def _start(self) -> Driver:
        return Driver(self._log, "-m", "hqueue.cli", "pipeline", *self._command)

    def finish(self) -> None:
        with self._start() as driver:
            assert driver.result(), driver.said()

    def kill_when_more_than(self, done: Callable[[], int]) -> None:
        """Start it, and kill it when it has done more than was done before."""
        before = done()
        with self._start() as driver:
            wait_for(lambda: done() > before or driver.ended, "it gets on", timeout_s=120)
            assert not driver.ended, driver.said()


@pytest.fixture
def source(make_queue: Make) -> hqueue.Queue:
    queue = make_queue(3)
    for partition in range(3):
        for first in range(0, MESSAGES, 500):
            batch = [
                Message("ab"[n % 2], b"%d:%d" % (partition, n)) for n in range(first, first + 500)
            ]
            queue.put(batch, partition=partition)
    return queue


def written_to(queue: hqueue.Queue) -> Callable[[], int]:
    return lambda: sum(each.end_ordinal for each in queue.offsets())


def test_an_archive_that_is_killed_again_and_again_has_each_message_once(
    source: hqueue.Queue, tmp_path: Path
) -> None:
    path = tmp_path / "archive"
    pipeline = Pipeline(tmp_path / "log", "archive", source.name, str(path), *ROUND)
    for _ in range(KILLS):
        pipeline.kill_when_more_than(lambda: len(list(path.rglob("*.parquet"))))
    pipeline.finish()
    assert archived(path) == values(source)


def test_a_compaction_that_is_killed_again_and_again_has_each_message_once(tmp_path: Path) -> None:
    archive = DiskArchive(tmp_path / "archive")
    topics = [f"topic{n}" for n in range(10)]
    for _ in range(10):
        archive.add_round(*topics)
    wanted = archived(archive.path)
    pipeline = Pipeline(tmp_path / "log", "compact", str(archive.path))

    def count(names: str) -> Callable[[], int]:
        return lambda: len(list(archive.path.glob(names)))

    def check() -> None:
        """By the records all is there. Without them, too, or a reader finds a marker, and fails."""
        assert len(archive.listed()) == 10 * 10 * 6
        if not count("date=*/topic=*/*-wait.parquet")():
            assert archived(archive.path) == wanted

    pipeline.kill_when_more_than(count("_hqueue/compacting/*"))
    check()
    pipeline.kill_when_more_than(count("_hqueue/compactions/*.json"))
    check()
    pipeline.finish()
    check()
    assert count("date=*/topic=*/*")() == 10


def test_a_replay_that_is_killed_again_and_again_has_each_message_once(
    source: hqueue.Queue, make_queue: Make, tmp_path: Path
) -> None:
    path, target = tmp_path / "archive", make_queue(2)
    Pipeline(tmp_path / "log", "archive", source.name, str(path), *ROUND).finish()
    pipeline = Pipeline(tmp_path / "log", "replay", str(path), target.name)
    for _ in range(KILLS):
        pipeline.kill_when_more_than(written_to(target))
    pipeline.finish()
    assert in_order(values(source), values(target), lambda partition: partition % 2)


def test_a_copy_that_is_killed_again_and_again_has_each_message_once(
    source: hqueue.Queue, make_queue: Make, tmp_path: Path
) -> None:
    target = make_queue(5)
    checkpoint = ("--checkpoint", str(tmp_path / "checkpoint"))
    pipeline = Pipeline(tmp_path / "log", "copy", source.name, target.name, *checkpoint, *ROUND)
    for _ in range(KILLS):
        pipeline.kill_when_more_than(written_to(target))
    pipeline.finish()
    assert in_order(values(source), values(target), lambda partition: partition)

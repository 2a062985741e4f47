"""Tasks, drivers and commits fail at every point: each row is in the queue once."""

from __future__ import annotations

import collections
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import hqueue
from hqueue import Message
from tests.support.waiting import wait_for

from .drivers import Driver
from .standalone import SparkCluster

pytestmark = pytest.mark.drivers

MakeQueue = Callable[..., hqueue.Queue]

ROWS = 300
POINTS = ("plan", "rows", "chunk", "put", "commit", "committed")
IN_TASKS = ("rows", "chunk", "put")


class Copying:
    """Copies a queue into another by drivers that follow each other."""

    def __init__(
        self, source: hqueue.Queue, target: hqueue.Queue, connection: dict[str, str], folder: Path
    ) -> None:
        self.source, self.target = source, target
        self.mark = folder / "mark"
        self.log = folder / "log"
        self._options: dict[str, Any] = {
            "source": source.name,
            "target": target.name,
            "connection": connection,
            "mark": str(self.mark),
        }
        self._checkpoint = str(folder / "checkpoint")

    def stream(self, **options: object) -> Driver:
        return self.batch(checkpoint=self._checkpoint, **options)

    def batch(self, **options: object) -> Driver:
        return Driver.of_program("write", self.log, **self._options, **options)

    def finish(self, driver: Driver) -> None:
        assert driver.result(), driver.said()

    def await_mark(self, driver: Driver, suffix: str = "") -> None:
        mark = self.mark.with_suffix(suffix) if suffix else self.mark
        wait_for(
            lambda: mark.exists() or (not suffix and driver.ended),
            f"{mark.name} is there",
            timeout_s=120,
        )
        assert mark.exists(), driver.said()

    def let_go(self) -> None:
        self.mark.with_suffix(".go").touch()

    def check(self) -> None:
        """Every row is in the target once, and whole."""
        counts = collections.Counter((m.topic, m.value) for m in self.target.scan())
        expected = collections.Counter((m.topic, m.value) for m in self.source.scan())
        assert [row for row, count in counts.items() if count > 1] == [], "doubled"
        assert counts == expected
        *_, result = self.target.verify([0])
        assert not result.findings


@pytest.fixture
def copying(make_queue: MakeQueue, connection: dict[str, str], tmp_path: Path) -> Copying:
    source, target = make_queue(2), make_queue(3)
    for first in range(0, ROWS, 20):
        batch = [Message("ab"[n % 2], b"%d" % n) for n in range(first, first + 20)]
        source.put(batch, partition=(first // 20) % 2)
    return Copying(source, target, connection, tmp_path)


@pytest.mark.parametrize("keys", [False, True], ids=["any partition", "by key"])
@pytest.mark.parametrize("what", ["kill", "fail"])
@pytest.mark.parametrize("point", IN_TASKS)
def test_a_task_that_fails_is_repeated_and_each_row_is_there_once(
    copying: Copying, point: str, what: str, keys: bool
) -> None:
    with copying.stream(point=point, what=what, epoch=1, keys=keys) as driver:
        copying.finish(driver)
    assert copying.mark.exists()
    copying.check()


@pytest.mark.parametrize("when", ["beside its successor", "after its successor"])
@pytest.mark.parametrize("point", POINTS)
def test_a_driver_that_is_killed_goes_on_from_its_checkpoint_and_its_task_later(
    copying: Copying, point: str, when: str
) -> None:
    with copying.stream(point=point, what="wait", epoch=1) as driver:
        copying.await_mark(driver)
        driver.kill()
    with copying.stream() as successor:
        if when == "beside its successor":
            copying.let_go()
        copying.finish(successor)
        copying.check()
        copying.let_go()
        if point in IN_TASKS:
            copying.await_mark(successor, ".end")
    copying.check()


@pytest.mark.parametrize("point", ["rows", "chunk"])
def test_two_that_do_the_same_task_at_once_write_it_once(copying: Copying, point: str) -> None:
    copying.let_go()
    with copying.stream(point=point, what="twin", epoch=1, keys=True) as driver:
        copying.finish(driver)
        copying.await_mark(driver, ".end")
    copying.check()


@pytest.mark.parametrize("point", IN_TASKS)
def test_a_task_that_stands_still_is_done_by_its_speculative_twin_and_written_once(
    copying: Copying, point: str, tmp_path: Path
) -> None:
    with (
        SparkCluster(tmp_path, ("127.0.0.1", "127.0.0.2")) as cluster,
        copying.stream(point=point, what="stall", epoch=1, master=cluster.url) as driver,
    ):
        copying.finish(driver)  # Which the task that stands still does not let it do.
        assert copying.mark.exists()
        copying.let_go()
        copying.check()
    copying.check()


@pytest.mark.parametrize("point", ["plan", "commit", "committed"])
def test_an_epoch_whose_commit_failed_is_written_again_once(copying: Copying, point: str) -> None:
    with copying.stream(point=point, what="fail") as driver:
        assert not driver.result()
    with copying.stream() as successor:
        copying.finish(successor)
    copying.check()


@pytest.mark.parametrize("write_id", ["load", None], ids=["with a write id", "without"])
@pytest.mark.parametrize("what", ["kill", "twin"])
def test_a_batch_write_whose_task_fails_writes_each_row_once(
    copying: Copying, what: str, write_id: str | None
) -> None:
    copying.let_go()
    with copying.batch(point="chunk", what=what, writeId=write_id) as driver:
        copying.finish(driver)
        if what == "twin":
            copying.await_mark(driver, ".end")
    copying.check()


@pytest.mark.parametrize("point", ["chunk", "put", "commit"])
def test_a_batch_write_with_an_id_is_finished_by_another_driver(
    copying: Copying, point: str
) -> None:
    with copying.batch(point=point, what="wait", writeId="load") as driver:
        copying.await_mark(driver)
        driver.kill()
    with copying.batch(writeId="load") as successor:
        copying.finish(successor)
        copying.let_go()
        if point != "commit":
            copying.await_mark(successor, ".end")
    copying.check()

"""Archives beside other writers: each message once, and an error that says what came between."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

from pyspark_hqueue.jobs.archive import Archive
from pyspark_hqueue.jobs.failures import JobError, translated
from pyspark_hqueue.jobs.rounds import Round
from tests.support.waiting import wait_for

from ..test_pipelines import fill, values
from .archiving import Archiving

pytestmark = pytest.mark.tables


HELD_S = 400


class Held:
    """Holds a round when it has read something, so that others come between.

    Args:
        folder: an empty one.
    """

    def __init__(self, folder: Path) -> None:
        self._reading, self._released = folder / "reading", folder / "released"
        folder.mkdir()

    def hold(self, job: Archive) -> None:
        """Let the rounds of this archive wait."""
        write = job.target.write
        job.target.write = lambda round_: write(self.holding(round_))  # type: ignore[method-assign]

    def holding(self, round_: Round) -> Round:
        """A round that waits when it is read."""
        reading, released = self._reading, self._released

        def wait(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            reading.touch()
            ends = time.monotonic() + HELD_S
            while not released.exists():
                if time.monotonic() > ends:
                    raise TimeoutError("the round was not released")
                time.sleep(0.02)
            yield from batches

        frame = round_.frame.mapInArrow(wait, round_.frame.schema)
        return dataclasses.replace(round_, frame=frame)

    def await_reading(self) -> None:
        wait_for(self._reading.exists, "the round is read", timeout_s=HELD_S)

    def release(self) -> None:
        self._released.touch()


@contextlib.contextmanager
def beside(run: Callable[[], object], failed: list[Exception]) -> Iterator[None]:
    """Call a function beside the block, which lets it end."""

    def call() -> None:
        try:
            run()
        except Exception as exc:
            failed.append(exc)

    thread = threading.Thread(target=call)
    thread.start()
    try:
        yield
    finally:
        thread.join(timeout=HELD_S)
    assert not thread.is_alive()


def test_of_two_programs_that_write_a_round_by_copies_of_a_checkpoint_one_does(
    archiving: Archiving, tmp_path: Path
) -> None:
    """Spark ends one of two runs in one program, or by one checkpoint, and knows of no others."""
    fill(archiving.queue, 5)
    _, round_ = archiving.written_round()
    later = archiving.planned(round_)
    held, failed = Held(tmp_path / "held"), list[Exception]()
    target, other = archiving.job().target, archiving.job().target

    def write() -> None:
        with translated():
            target.write(held.holding(later))

    with beside(write, failed):
        held.await_reading()
        assert other.write(later).messages == 10
        held.release()
    if archiving.output_format == "delta":
        [error] = failed
        assert isinstance(error, JobError)
        said = str(error).splitlines()[0]
        assert said.startswith("another run with the same checkpoint has written to the Delta")
        assert "let one run continue" in said
    else:
        assert failed == []  # The table refused the second one, which then found the first.
    assert archiving.frame().count() == 20
    assert target.write(later).messages == 10
    assert archiving.frame().count() == 20


@pytest.mark.parametrize("output_format", ["delta"], indirect=True)
def test_a_change_of_a_delta_table_under_a_round_is_named_and_the_next_run_writes_it(
    archiving: Archiving, tmp_path: Path
) -> None:
    fill(archiving.queue, 5)
    archiving.run()
    fill(archiving.queue, 5, first=5)
    held, failed = Held(tmp_path / "held"), list[Exception]()
    job = archiving.job()
    held.hold(job)
    with beside(job.run, failed):
        held.await_reading()
        archiving.spark.sql(f"ALTER TABLE {archiving.table} SET TBLPROPERTIES ('by' = 'another')")
        held.release()
    [error] = failed
    assert isinstance(error, JobError)
    said = str(error).splitlines()[0]
    assert said.startswith("another program changed the Delta table at the same moment")
    assert "start again" in said
    archiving.run()
    assert archiving.rows() == values(archiving.queue)


@pytest.mark.parametrize("output_format", ["iceberg"], indirect=True)
def test_a_conflict_of_commits_of_an_iceberg_table_is_named_and_the_next_run_goes_on(
    archiving: Archiving,
) -> None:
    fill(archiving.queue, 5)
    archiving.run()
    spark, table = archiving.spark, archiving.table
    # Iceberg tries a commit five times by default, which other programs seldom prevent.
    spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('commit.retry.num-retries' = '0')")
    ended = threading.Event()

    def change() -> None:
        number = 0
        while not ended.is_set():
            number += 1
            with contextlib.suppress(PySparkException):
                spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('number' = '{number}')")

    def runs() -> str:
        fill(archiving.queue, 1)
        try:
            archiving.run()
        except JobError as exc:
            return str(exc)
        return ""

    changing = threading.Thread(target=change)
    changing.start()
    try:
        said = wait_for(runs, "a commit conflicts", timeout_s=120).splitlines()[0]
    finally:
        ended.set()
        changing.join(timeout=60)
    assert said.startswith("another program changed the Iceberg table at the same moment")
    assert "start again" in said
    while archiving.job().pending():
        archiving.run()
    assert archiving.rows() == values(archiving.queue)

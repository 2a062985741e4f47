"""The Spark session of a job that runs as a program of its own."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator, Mapping

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pyspark_hqueue.jobs.failures import JobError, first_line, spark_ended
from pyspark_hqueue.reading.py4j_logs import no_py4j_errors
from pyspark_hqueue.reading.pythons import check_data_source, check_tasks

__all__ = ["separate_session", "spark_session"]

ENDS_WITHIN_S = 0.5


def separate_session(
    spark: SparkSession, settings: Mapping[str, str] | None = None
) -> SparkSession:
    """Clone a session, with some settings changed. The given session stays as it is."""
    clone = spark._jsparkSession.cloneSession()
    return type(spark)(spark.sparkContext, clone, {**(settings or {})})


@contextlib.contextmanager
def spark_session(
    name: str,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    *,
    quiet: bool = False,
) -> Iterator[SparkSession]:
    """A session for the block. It is stopped at the end unless it existed before.

    Args:
        name: the name of the application.
        master: Spark's master; if None, that of ``spark-submit``, or else all cores of this
            machine.
        conf: Spark's settings.
        quiet: whether to show what Spark's process writes to stderr only if the job fails.

    Raises:
        JobError: Spark does not start, or its Java process has ended before the block.
    """
    python = os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        # Not started by spark-submit: this variable may name a shell or notebook, not a Python.
        os.environ["PYSPARK_DRIVER_PYTHON"] = python
    there = SparkSession.getActiveSession()
    builder = SparkSession.builder.appName(f"hqueue {name}")
    if master is not None:
        builder = builder.master(master)
    # Spark's own progress bar would be drawn into that of the command.
    own = {"spark.log.level": "ERROR", "spark.ui.showConsoleProgress": "false"}
    for key, value in {**own, **(conf or {})}.items():
        builder = builder.config(key, value)
    keeping = _errors_kept() if quiet else contextlib.nullcontext(contextlib.nullcontext())
    with no_py4j_errors(), keeping as starting:
        try:
            with starting:
                spark = builder.getOrCreate()
        except (PySparkException, Py4JError) as exc:
            raise JobError(
                "Spark did not start; its output above says why. It needs Java 17, a master that "
                "it can reach, and access to the jars that spark.jars.packages names",
                reason=first_line(str(exc)),
            ) from exc
        except BaseException as exc:
            _end_processes_of(exc)
            raise
        try:
            check_tasks(spark)
            check_data_source(spark)
            yield spark
        except (JobError, PySparkException, Py4JError, ConnectionError) as exc:
            if _has_ended(spark):
                raise spark_ended() from exc
            raise
        finally:
            if there is None:
                with contextlib.suppress(Py4JError, ConnectionError):
                    spark.stop()


def _has_ended(spark: SparkSession) -> bool:
    """Whether the Java process that this program has started for Spark is gone."""
    process = getattr(spark.sparkContext._gateway, "proc", None)
    if process is None:
        return False
    with contextlib.suppress(subprocess.TimeoutExpired):  # Its connections end a moment before it.
        process.wait(ENDS_WITHIN_S)
    return process.poll() is not None


def _end_processes_of(exc: BaseException) -> None:
    """End the processes that were being started when the exception broke in.

    Spark's own process ends with the program that started it, but not if the program is
    interrupted while it starts: the process then fails to write down its port, and waits for ever.
    PySpark keeps it in a variable of the call alone.
    """
    for frame, _ in traceback.walk_tb(exc.__traceback__):
        for value in frame.f_locals.values():
            if isinstance(value, subprocess.Popen) and value.poll() is None:
                value.kill()
                value.wait()


@contextlib.contextmanager
def _errors_kept() -> Iterator[contextlib.AbstractContextManager[None]]:
    """A context in which to start processes. What they write to stderr, as long as they live, is
    shown at the end, and only if there was an error.
    """
    with tempfile.TemporaryFile() as kept:
        try:
            yield _stderr_into(kept.fileno())
        except Exception:
            kept.seek(0)
            sys.stderr.write(kept.read().decode(errors="replace"))
            raise


@contextlib.contextmanager
def _stderr_into(descriptor: int) -> Iterator[None]:
    sys.stderr.flush()
    before = os.dup(2)
    os.dup2(descriptor, 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(before, 2)
        os.close(before)

"""The Spark session of a job that is a program of its own."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pyspark_hqueue.jobs.failures import JobError, first_line
from pyspark_hqueue.reading.pythons import check_data_source, check_tasks

__all__ = ["separate_session", "spark_session"]


def separate_session(
    spark: SparkSession, settings: Mapping[str, str] | None = None
) -> SparkSession:
    """A session like this one but for some settings. The given one stays as it is."""
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
    """A session, which is stopped at the end unless it was there before.

    Args:
        name: the application's.
        master: where to run; what ``spark-submit`` said, or all of this machine, if None.
        conf: Spark's settings.
        quiet: whether what Spark's process writes to stderr is shown only if the job fails.

    Raises:
        JobError: Spark does not start.
    """
    python = os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        # No spark-submit began this: the shell or notebook that this names, if any, is no worker.
        os.environ["PYSPARK_DRIVER_PYTHON"] = python
    there = SparkSession.getActiveSession()
    builder = SparkSession.builder.appName(f"hqueue {name}")
    if master is not None:
        builder = builder.master(master)
    own = {"spark.log.level": "ERROR", "spark.ui.showConsoleProgress": str(not quiet).lower()}
    for key, value in {**own, **(conf or {})}.items():
        builder = builder.config(key, value)
    with _errors_kept() if quiet else contextlib.nullcontext(contextlib.nullcontext()) as starting:
        try:
            with starting:
                spark = builder.getOrCreate()
        except (PySparkException, Py4JError) as exc:
            raise JobError(
                "Spark did not start, and says above why: it needs Java 17, a master that it "
                "reaches, and jars that it can fetch if spark.jars.packages names some",
                reason=first_line(str(exc)),
            ) from exc
        try:
            check_tasks(spark)
            check_data_source(spark)
            yield spark
        finally:
            if there is None:
                spark.stop()


@contextlib.contextmanager
def _errors_kept() -> Iterator[contextlib.AbstractContextManager[None]]:
    """A context for the start of processes: what they write to stderr, for as long as they live, is
    shown at the end, and only where that is an error.
    """
    with tempfile.TemporaryFile() as kept:
        try:
            yield _stderr_into(kept.fileno())
        except BaseException:
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

"""Which Pythons Spark runs, and whether they can read a queue.

Spark has two. ``PYSPARK_PYTHON`` of the driver's process runs the tasks of `read` and
`foreach_batch`, and has to be of the driver's minor version. The JVM runs data sources, on the
driver and in tasks, by its own ``PYSPARK_DRIVER_PYTHON``, else by its ``PYSPARK_PYTHON``; so a
shell or a notebook that ``PYSPARK_DRIVER_PYTHON`` names is tried as one, too.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping

from pyspark.sql import SparkSession

from hqueue import SettingsError
from hqueue.runtime.extras import installing

__all__ = ["check_data_source", "check_tasks", "data_source_python", "unfit"]

DEFAULT = "python3"
PROBE_S = 30
_PROBE = (
    "import sys, importlib.util as u; "
    "print('%d.%d' % sys.version_info[:2], u.find_spec('pyspark_hqueue') is not None)"
)
_OWN = f"{sys.version_info[0]}.{sys.version_info[1]}"


def check_tasks(spark: SparkSession) -> None:
    """Refuse a Python that can't run the tasks of this process's functions. Looks only where tasks
    run on this machine, and no file of the application may bring what is missing.

    Raises:
        SettingsError: it is of another minor version, has no HQueue, or does not run.
    """
    if _is_here(spark):
        named = spark.sparkContext.pythonExec
        _check(named, unfit(_probed(named), version=_OWN))


def check_data_source(spark: SparkSession) -> None:
    """Like `check_tasks`, for the Python of the data source, which may have any version."""
    if _is_here(spark):
        jvm = spark.sparkContext._jvm
        assert jvm is not None
        named = data_source_python(jvm.java.lang.System.getenv())
        _check(named, unfit(_probed(named)))


def data_source_python(environ: Mapping[str, str]) -> str:
    """What the JVM runs data sources with, if this is its environment."""
    return environ.get("PYSPARK_DRIVER_PYTHON") or environ.get("PYSPARK_PYTHON") or DEFAULT


def unfit(probed: str | None, version: str | None = None) -> str | None:
    """Why a Python can't read a queue; None if it can.

    Args:
        probed: what the probe wrote; None if it did not run.
        version: the minor version that is needed; any if None.
    """
    found, _, has_hqueue = (probed or "").partition(" ")
    if has_hqueue not in ("True", "False"):
        return "does not run as a Python"
    if version is not None and found != version:
        return f"is a Python {found}, and the driver's is {version}"
    return None if has_hqueue == "True" else f"has no HQueue ({installing('spark')})"


def _check(named: str, wrong: str | None) -> None:
    if wrong is not None:
        raise SettingsError(
            f"the Python that Spark would run {wrong}: set PYSPARK_PYTHON and "
            "PYSPARK_DRIVER_PYTHON to this one before the session begins",
            runs=shutil.which(named) or named,
            this=sys.executable,
        )


def _is_here(spark: SparkSession) -> bool:
    if not hasattr(spark, "_jsparkSession"):  # A client of Spark Connect.
        return False
    context = spark.sparkContext
    return (context.master or "").startswith("local") and not context._python_includes


@functools.lru_cache(maxsize=16)
def _probed(named: str) -> str | None:
    """What a Python says of itself. This one is not asked."""
    path = shutil.which(named)
    if path is None:
        return None
    if os.path.abspath(path) == os.path.abspath(sys.executable):
        return f"{_OWN} True"
    try:
        done = subprocess.run(
            [path, "-c", _PROBE],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PROBE_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None

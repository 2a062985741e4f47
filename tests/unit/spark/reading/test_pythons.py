"""Which Pythons Spark runs, and which of them can read a queue."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle

from hqueue import SettingsError
from pyspark_hqueue.reading import pythons
from pyspark_hqueue.reading.located import _decoder
from pyspark_hqueue.reading.pythons import (
    check_data_source,
    check_tasks,
    data_source_python,
    unfit,
)
from pyspark_hqueue.reading.schema import COLUMNS
from tests.support.spark_reading import options_of


@pytest.fixture
def bare_python(tmp_path: Path) -> str:
    """This Python, but of no environment: it has no packages."""
    path = tmp_path / "python"
    path.symlink_to(Path(sys.executable).resolve())
    return str(path)


def session(master: str, tasks: str, includes: list[str] | None = None, **environ: str) -> Any:
    """A session as far as it is asked."""
    system = SimpleNamespace(getenv=lambda: environ)
    jvm = SimpleNamespace(java=SimpleNamespace(lang=SimpleNamespace(System=system)))
    context = SimpleNamespace(
        master=master, pythonExec=tasks, _python_includes=includes or [], _jvm=jvm
    )
    return SimpleNamespace(sparkContext=context, _jsparkSession=None)


@pytest.mark.parametrize(
    ("probed", "version", "reason"),
    [
        ("3.11 True", "3.11", None),
        ("3.12 True", None, None),
        ("3.12 True", "3.11", "is a Python 3.12, and the driver's is 3.11"),
        ("3.11 False", "3.11", "has no HQueue"),
        ("3.12 False", None, "has no HQueue"),
        ("jupyter: no such option", None, "does not run"),
        ("", None, "does not run"),
        (None, None, "does not run"),
    ],
)
def test_a_python_is_fit_or_there_is_a_reason(
    probed: str | None, version: str | None, reason: str | None
) -> None:
    found = unfit(probed, version)
    assert (found is None) == (reason is None)
    assert reason is None or reason in str(found)


@pytest.mark.parametrize(
    ("environ", "named"),
    [
        ({}, "python3"),
        ({"PYSPARK_PYTHON": "a"}, "a"),
        ({"PYSPARK_PYTHON": "a", "PYSPARK_DRIVER_PYTHON": "b"}, "b"),
        ({"PYSPARK_PYTHON": "a", "PYSPARK_DRIVER_PYTHON": ""}, "a"),
    ],
)
def test_the_drivers_python_runs_data_sources(environ: dict[str, str], named: str) -> None:
    assert data_source_python(environ) == named


@pytest.mark.parametrize("missing", ["no-such-python", "/no/such/python"])
def test_a_python_of_this_machine_that_can_not_read_is_refused(
    bare_python: str, missing: str
) -> None:
    for named, reason in ((bare_python, "has no HQueue"), (missing, "does not run")):
        with pytest.raises(SettingsError, match=f"{reason}.*set PYSPARK_PYTHON") as caught:
            check_tasks(session("local[2]", named))
        assert (caught.value.runs, caught.value.this) == (named, sys.executable)
        with pytest.raises(SettingsError, match=reason):
            check_data_source(session("local[2]", "-", PYSPARK_DRIVER_PYTHON=named))


def test_this_python_is_not_asked_and_elsewhere_none_is(
    bare_python: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pythons.subprocess, "run", None)
    check_tasks(session("local[2]", sys.executable))
    check_data_source(session("local", "-", PYSPARK_PYTHON=sys.executable))
    check_tasks(session("spark://host:7077", bare_python))
    check_tasks(session("local[2]", bare_python, ["packages.zip"]))
    check_tasks(SimpleNamespace())  # type: ignore[arg-type]  (a client of Spark Connect)


def test_a_task_in_a_python_without_hqueue_says_which_it_is(bare_python: str) -> None:
    packages = sysconfig.get_path("purelib")  # They have PySpark, and only a pointer to HQueue.
    program = (
        "import pickle, sys; run = pickle.loads(sys.stdin.buffer.read())\n"
        "try: run([])\n"
        "except RuntimeError as exc: print(exc)\n"
    )
    ran = subprocess.run(
        [bare_python, "-c", program],
        input=cloudpickle.dumps(_decoder(options_of(), COLUMNS, "read")),
        env={"PYTHONPATH": packages},
        capture_output=True,
        check=True,
    )
    said = ran.stdout.decode()
    assert bare_python in said
    assert "No module named 'pyspark_hqueue'" in said
    assert "set PYSPARK_PYTHON" in said


def test_a_task_in_this_python_reads() -> None:
    tasks = pa.RecordBatch.from_pydict({"ranges": pa.array([], pa.binary())})
    run = cloudpickle.loads(cloudpickle.dumps(_decoder(options_of(), COLUMNS, "read")))
    assert list(run([tasks])) == []

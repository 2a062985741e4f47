"""A program that `spark-submit` runs, with the packages as files: its Pythons have none of them."""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import subprocess
import sysconfig
import venv
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import pyspark

from tests.support.waiting import wait_for

__all__ = ["EventLog", "Submitted", "bare_python", "make_package"]

SPARK_HOME = Path(pyspark.__file__).parent
PROGRAM = Path(__file__).parent / "programs" / "submitted.py"

IN_THE_PACKAGE = ("hqueue", "ijson", "kazoo", "platformdirs", "ply", "pyspark_hqueue")
"""What docs/spark-cluster.md says that a zip can have."""
INSTALLED = (
    "dateutil", "google", "isal", "numpy", "pandas", "pyarrow", "pytz", "six", "thriftpy2",
    "zstandard",
)  # fmt: skip
"""What each host has: the compiled packages that the page names, and what pandas needs."""


def make_package(path: Path) -> Path:
    """The packages as one file."""
    with zipfile.ZipFile(path, "w") as package:
        for name in IN_THE_PACKAGE:
            for folder in _folders(name):
                for file in _files(folder):
                    package.write(file, file.relative_to(folder.parent))
    return path


def _files(folder: Path) -> Iterator[Path]:
    for where, folders, names in os.walk(folder, followlinks=True):
        if "__pycache__" in folders:
            folders.remove("__pycache__")
        yield from (Path(where, name) for name in names)


def _folders(package: str) -> list[Path]:
    """Where a package lies: a namespace in several folders."""
    spec = importlib.util.find_spec(package)
    assert spec is not None, package
    return [Path(folder) for folder in spec.submodule_search_locations or ()]


def bare_python(folder: Path) -> Path:
    """A Python that has the compiled packages only."""
    venv.create(folder, symlinks=True)
    installed = Path(sysconfig.get_path("purelib"))
    (own,) = folder.glob("lib/python*/site-packages")
    for name in INSTALLED:
        for each in (name, f"{name}.libs", f"{name}.py"):
            if (installed / each).exists():
                (own / each).symlink_to(installed / each)
    return folder / "bin" / "python"


class EventLog:
    """What Spark writes of an application's jobs, while it runs."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def events(self, kind: str) -> list[dict[str, Any]]:
        """The events of a kind, as ``TaskEnd``, up to now."""
        (file,) = self._folder.iterdir()
        lines = file.read_text().split("\n")[:-1]  # The last one may not be whole.
        return [event for event in map(json.loads, lines) if event["Event"].endswith(kind)]

    def tasks_of(self, job: str, kind: str = "TaskEnd") -> list[dict[str, Any]]:
        """How the tasks of the first stages ended, or began (``TaskStart``), of the jobs with this
        name in what they say. What ends after its stage may be missing until there is another.
        """
        stages = {
            min(event["Stage IDs"])
            for event in self.events("JobStart")
            if job in (event["Properties"] or {}).get("spark.job.description", "")
        }
        return [event for event in self.events(kind) if event["Stage ID"] in stages]


class Submitted:
    """The program of this folder, in a driver that is killed at the end of its block.

    Args:
        master: Spark's.
        folder: where its event log and its output go.
        python: by what it and its tasks are run.
        package: the packages.
        conf: Spark's settings.
    """

    def __init__(
        self, master: str, folder: Path, python: Path, package: Path, conf: Mapping[str, str]
    ) -> None:
        self._log = folder / "driver.log"
        events = folder / "events"
        events.mkdir()
        self.event_log = EventLog(events)
        self._server = socket.create_server(("127.0.0.1", 0))
        own = {
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.ui.enabled": "false",
            "spark.eventLog.enabled": "true",
            "spark.eventLog.compress": "false",
            "spark.eventLog.rolling.enabled": "false",
            "spark.eventLog.dir": events.as_uri(),
        }
        command = [str(SPARK_HOME / "bin" / "spark-submit"), "--master", master]
        command += ["--py-files", str(package)]
        for name, value in {**own, **conf}.items():
            command += ["--conf", f"{name}={value}"]
        environ = {
            **os.environ,
            "PYTHONPATH": str(package),
            "SPARK_HOME": str(SPARK_HOME),
            "PYSPARK_PYTHON": str(python),
            "PYSPARK_DRIVER_PYTHON": str(python),
        }
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*command, str(PROGRAM), str(self._server.getsockname()[1])],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=environ,
            )

    def __enter__(self) -> Submitted:
        try:
            self._server.settimeout(1)
            self._socket = wait_for(self._accepted, "the driver is up", timeout_s=240)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        self._socket.settimeout(500)
        self._lines = self._socket.makefile("rw")
        return self

    def _accepted(self) -> socket.socket | None:
        assert self._process.poll() is None, self._said()
        try:
            return self._server.accept()[0]
        except TimeoutError:
            return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.close()
        if error is None:
            self._lines.close()
            self._socket.close()
        try:
            self._process.wait(30 if error is None else 0)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, 9)
            self._process.wait()

    def begin(self, job: str, **options: object) -> None:
        """Have it do something."""
        self._lines.write(json.dumps({"job": job, **options}) + "\n")
        self._lines.flush()

    def result(self) -> Any:
        """What came of what was begun."""
        found = json.loads(self._lines.readline() or '{"error": "the driver is gone"}')
        assert "error" not in found, f"{found['error']}\n{self._said()}"
        return found["result"]

    def run(self, job: str, **options: object) -> Any:
        """Have it do something, and wait for what comes of it."""
        self.begin(job, **options)
        return self.result()

    def _said(self) -> str:
        return self._log.read_text(errors="replace")[-5_000:]

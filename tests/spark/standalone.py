"""Spark's own cluster manager: a master, and a worker on each of some hosts of this machine."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil
import pyspark

from tests.support.waiting import wait_for

__all__ = ["SparkCluster"]

SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"


class SparkCluster:
    """Starts with the block, and is gone with it.

    Args:
        folder: where logs and the workers' files go.
        hosts: a worker with one core is started on each.
        environ: what they have in their environment besides this process's.
    """

    def __init__(
        self, folder: Path, hosts: Sequence[str], environ: Mapping[str, str] | None = None
    ) -> None:
        self._folder = folder
        self._hosts = hosts
        self._environ = environ or {}
        self._processes: list[subprocess.Popen[bytes]] = []
        self.url = ""

    def __enter__(self) -> SparkCluster:
        try:
            self._start("master", "Master", "--host", "127.0.0.1", "--port", "0")
            self.url = self._await_in_log("master", r"Starting Spark master at (spark://\S+)")
            for number, host in enumerate(self._hosts):
                name = f"worker-{number}"
                options = ("--host", host, "--cores", "1", "--memory", "700m")
                options += ("--work-dir", str(self._folder / name))
                self._start(name, "Worker", *options, self.url)
            for number in range(len(self._hosts)):
                self._await_in_log(f"worker-{number}", r"(Successfully registered with master)")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def started(self) -> list[tuple[psutil.Process, list[str]]]:
        """All that its processes have started and that still runs, with the command lines."""
        found = []
        for process in self._processes:
            for child in psutil.Process(process.pid).children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess):
                    found.append((child, child.cmdline()))
        return found

    def logs(self) -> str:
        """The last lines of each process."""
        return "\n".join(
            f"{path.name}: {line}"
            for path in sorted(self._folder.glob("*.log"))
            for line in path.read_text(errors="replace").splitlines()[-15:]
        )

    def _start(self, name: str, what: str, *options: str) -> None:
        kind = f"org.apache.spark.deploy.{what.lower()}.{what}"
        with (self._folder / f"{name}.log").open("wb") as log:
            self._processes.append(
                subprocess.Popen(
                    [str(SPARK_CLASS), kind, "--webui-port", "0", *options],
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env={**os.environ, "PYSPARK_PYTHON": sys.executable, **self._environ},
                )
            )

    def _await_in_log(self, name: str, pattern: str) -> str:
        log = self._folder / f"{name}.log"

        def found() -> re.Match[str] | None:
            return re.search(pattern, log.read_text(errors="replace"))

        try:
            match = wait_for(found, f"{name} is up", timeout_s=180)
        except AssertionError as exc:
            raise AssertionError(f"{exc}\n{self.logs()}") from exc
        assert match is not None
        return match[1]

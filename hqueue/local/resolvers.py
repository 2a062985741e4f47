"""Fetching the jars that pom.xml names: with Maven, or with the Ivy that PySpark brings along."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

from hqueue.errors import LocalServerError
from hqueue.local.java import find_java
from hqueue.runtime.logs import Log

__all__ = ["Resolver", "default_resolver", "resolve_with_ivy", "resolve_with_maven"]

logger = Log(__name__)

RESOLVE_TIMEOUT_S = 1_800.0

_FAILED = (
    "fetching the server's jars failed; check the network, and HQUEUE_LOCAL_HBASE if it is set"
)

Resolver = Callable[[Path, Path], None]
"""Called with pom.xml and an empty folder, it fills the folder with jars or raises."""


def default_resolver(environ: Mapping[str, str] = os.environ) -> Resolver:
    """Choose Maven where it is installed, else the Ivy inside an importable PySpark.

    Raises:
        LocalServerError: there is neither.
    """
    if shutil.which("mvn", path=environ.get("PATH", os.defpath)):
        return resolve_with_maven
    if _ivy_jar() is not None:
        return resolve_with_ivy
    raise LocalServerError(
        "the server's jars are not in the cache and there is nothing to fetch them with: "
        "install Maven, or PySpark into this Python (pip install pyspark)"
    )


def resolve_with_maven(pom: Path, folder: Path) -> None:
    """Fetch with ``mvn dependency:copy-dependencies``."""
    _run(
        [
            "mvn",
            "--batch-mode",
            "--quiet",
            f"--file={pom}",
            "dependency:copy-dependencies",
            f"-DoutputDirectory={folder}",
            "-DincludeScope=runtime",
        ],
        folder,
    )


def resolve_with_ivy(pom: Path, folder: Path) -> None:
    """Fetch with Ivy's command line, which reads the same pom.xml."""
    ivy = _ivy_jar()
    if ivy is None:
        raise LocalServerError("Ivy is not installed: install PySpark (pip install pyspark)")
    _run(
        [
            str(find_java().executable),
            "-jar",
            str(ivy),
            *("-ivy", str(pom)),
            *("-confs", "default"),
            *("-types", "jar", "bundle"),
            *("-retrieve", f"{folder}/[artifact]-[revision](-[classifier]).[ext]"),
        ],
        folder,
    )


def _ivy_jar() -> Path | None:
    spec = importlib.util.find_spec("pyspark")
    for location in (spec.submodule_search_locations or ()) if spec else ():
        for jar in sorted((Path(location) / "jars").glob("ivy-*.jar")):
            return jar
    return None


def _run(command: list[str], folder: Path) -> None:
    logger.info("fetching jars with %s", command[0])
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=RESOLVE_TIMEOUT_S,
            cwd=folder.parent,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as exc:
        raise LocalServerError(_FAILED, command=command[0]) from exc
    if done.returncode != 0:
        raise LocalServerError(
            _FAILED,
            command=command[0],
            log=done.stdout[-4_000:],
        )

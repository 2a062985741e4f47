"""The Java runtime: where it is, and the options that HBase needs of it."""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from hqueue.errors import LocalServerError

__all__ = ["JAVA_VERSION_MIN", "Java", "find_java"]

JAVA_VERSION_MIN = 17
VERSION_TIMEOUT_S = 30.0

_OPENED_PACKAGES = (
    "java.lang",
    "java.lang.reflect",
    "java.io",
    "java.nio",
    "sun.nio.ch",
    "java.util",
    "java.util.concurrent",
)

MODULE_OPTIONS = (
    *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED_PACKAGES),
    "--add-exports=java.base/jdk.internal.misc=ALL-UNNAMED",
    "--add-exports=java.security.jgss/sun.security.krb5=ALL-UNNAMED",
    "-Dorg.apache.hbase.thirdparty.io.netty.tryReflectionSetAccessible=true",
    "-Djava.net.preferIPv4Stack=true",
    "-Djava.awt.headless=true",
)
"""What HBase and Hadoop need of Java 17's modules."""

_INSTALL = f"install Java {JAVA_VERSION_MIN} or newer, or set JAVA_HOME to one"


@dataclasses.dataclass(frozen=True)
class Java:
    """A Java runtime that is new enough."""

    executable: Path
    version: int


def find_java(environ: Mapping[str, str] = os.environ) -> Java:
    """Find Java by ``JAVA_HOME``, then on ``PATH``, and ask it for its version.

    Raises:
        LocalServerError: there is no Java, it does not run, or it is older than
            `JAVA_VERSION_MIN`.
    """
    home = environ.get("JAVA_HOME")
    if home:
        executable = Path(home) / "bin" / "java"
        if not os.access(executable, os.X_OK):
            raise LocalServerError(f"JAVA_HOME has no bin/java; {_INSTALL}", java_home=home)
    else:
        found = shutil.which("java", path=environ.get("PATH", os.defpath))
        if found is None:
            raise LocalServerError(f"no Java was found; {_INSTALL}")
        executable = Path(found)
    version = _version(executable)
    if version < JAVA_VERSION_MIN:
        raise LocalServerError(
            f"this Java is too old; {_INSTALL}", java=str(executable), version=version
        )
    return Java(executable, version)


def _version(executable: Path) -> int:
    try:
        done = subprocess.run(
            [str(executable), "-version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=VERSION_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as exc:
        raise LocalServerError(f"this Java does not run; {_INSTALL}", java=str(executable)) from exc
    said = done.stderr + done.stdout
    match = re.search(r'version "(?:1\.)?(\d+)', said)
    if done.returncode != 0 or match is None:
        raise LocalServerError(
            f"the version of this Java can't be determined; {_INSTALL}",
            java=str(executable),
            log=said[-2000:],
        )
    return int(match.group(1))

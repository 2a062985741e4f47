"""Finding Java, and saying clearly what is wrong with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from hqueue.errors import LocalServerError
from hqueue.local.java import find_java


def fake_java(folder: Path, says: str, code: int = 0) -> Path:
    """A program called java that only says its version."""
    executable = folder / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(f"#!/bin/sh\necho '{says}' >&2\nexit {code}\n", encoding="utf-8")
    executable.chmod(0o755)
    return executable


def test_java_home_comes_before_the_path(tmp_path: Path) -> None:
    first = fake_java(tmp_path / "home", 'openjdk version "21.0.1" 2023-10-17')
    second = fake_java(tmp_path / "other", 'openjdk version "17.0.1" 2021-10-19')
    environ = {"JAVA_HOME": str(tmp_path / "home"), "PATH": f"{second.parent}:/bin:/usr/bin"}
    assert find_java(environ).executable == first
    assert find_java(environ).version == 21
    del environ["JAVA_HOME"]
    assert find_java(environ).executable == second


def test_no_java_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(LocalServerError, match="install Java 17"):
        find_java({"PATH": str(tmp_path)})


def test_a_java_home_without_java_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(LocalServerError, match="JAVA_HOME has no bin/java"):
        find_java({"JAVA_HOME": str(tmp_path), "PATH": "/bin:/usr/bin"})


@pytest.mark.parametrize("says", ['java version "1.8.0_401"', 'openjdk version "11.0.2" 2019'])
def test_an_old_java_is_refused_with_its_version(tmp_path: Path, says: str) -> None:
    fake_java(tmp_path, says)
    with pytest.raises(LocalServerError, match="too old") as caught:
        find_java({"JAVA_HOME": str(tmp_path)})
    assert caught.value.version in (8, 11)


def test_a_java_that_fails_is_a_clear_error_with_what_it_said(tmp_path: Path) -> None:
    fake_java(tmp_path, "no space left", code=1)
    with pytest.raises(
        LocalServerError, match="the version of this Java can't be determined"
    ) as caught:
        find_java({"JAVA_HOME": str(tmp_path)})
    assert "no space left" in str(caught.value.log)

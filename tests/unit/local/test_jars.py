"""The jar cache: complete or absent, whatever happens to a download."""

from __future__ import annotations

import sys
import threading
import zipfile
from pathlib import Path

import pytest

from hqueue.errors import LocalServerError
from hqueue.local import jars, resolvers


def resolve(pom: Path, folder: Path) -> None:
    """Bring small jars of the right names."""
    assert pom.read_bytes().startswith(b"<?xml")
    for key in jars.HBASE.keys:
        with zipfile.ZipFile(folder / f"{key}-1.jar", "w") as archive:
            archive.writestr("a", b"x" * 1_000)


def interrupted(pom: Path, folder: Path) -> None:
    resolve(pom, folder)
    raise KeyboardInterrupt


def refuse(pom: Path, folder: Path) -> None:
    raise AssertionError("nothing must be fetched")


def cut_last_jar(pom: Path, folder: Path) -> None:
    resolve(pom, folder)
    jar = sorted(folder.glob("*.jar"))[-1]
    jar.write_bytes(jar.read_bytes()[:-30])


def forget_a_jar(pom: Path, folder: Path) -> None:
    resolve(pom, folder)
    next(folder.glob("hbase-server-*.jar")).unlink()


def test_jars_are_fetched_once(tmp_path: Path) -> None:
    fetched = jars.ensure_jars(cache=tmp_path, resolver=resolve)
    assert len(list(fetched.glob("*.jar"))) == len(jars.HBASE.keys)
    assert jars.ensure_jars(cache=tmp_path, resolver=refuse) == fetched


def test_another_server_has_jars_of_its_own(tmp_path: Path) -> None:
    other = jars.JarSet("Other", b"<?xml other", ("other-jar",), 1)

    def resolve_other(pom: Path, folder: Path) -> None:
        assert pom.read_bytes() == other.pom
        with zipfile.ZipFile(folder / "other-jar-1.jar", "w") as archive:
            archive.writestr("a", b"x")

    fetched = jars.ensure_jars(other, cache=tmp_path, resolver=resolve_other)
    assert [jar.name for jar in fetched.glob("*.jar")] == ["other-jar-1.jar"]
    assert jars.ensure_jars(cache=tmp_path, resolver=resolve) != fetched


def test_an_interrupted_download_is_not_taken_for_a_whole_one(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        jars.ensure_jars(cache=tmp_path, resolver=interrupted)
    assert not [path for path in (tmp_path / "jars").iterdir() if path.is_dir()]
    assert jars.ensure_jars(cache=tmp_path, resolver=resolve).is_dir()


def test_what_a_killed_download_left_is_neither_used_nor_kept(tmp_path: Path) -> None:
    whole = jars.ensure_jars(cache=tmp_path, resolver=resolve)
    part = whole.with_name(f"{whole.name}.part-killed")
    whole.rename(part)
    assert jars.ensure_jars(cache=tmp_path, resolver=resolve) == whole
    assert not part.exists()


@pytest.mark.parametrize("resolver", [cut_last_jar, forget_a_jar])
def test_a_download_that_is_not_whole_is_refused(
    tmp_path: Path, resolver: resolvers.Resolver
) -> None:
    with pytest.raises(LocalServerError):
        jars.ensure_jars(cache=tmp_path, resolver=resolver)
    assert not [path for path in (tmp_path / "jars").iterdir() if path.is_dir()]


def test_a_cache_that_lost_a_jar_is_fetched_anew(tmp_path: Path) -> None:
    whole = jars.ensure_jars(cache=tmp_path, resolver=resolve)
    next(whole.glob("*.jar")).unlink()
    assert jars.ensure_jars(cache=tmp_path, resolver=resolve) == whole
    assert len(list(whole.glob("*.jar"))) == len(jars.HBASE.keys)


def test_of_several_callers_at_once_one_fetches(tmp_path: Path) -> None:
    calls: list[Path] = []
    everybody = threading.Barrier(4)

    def counted(pom: Path, folder: Path) -> None:
        calls.append(folder)
        resolve(pom, folder)

    def call() -> None:
        everybody.wait(timeout=10)
        jars.ensure_jars(cache=tmp_path, resolver=counted)

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert len(calls) == 1


def test_without_anything_to_fetch_with_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(LocalServerError, match=r"pip install pyspark"):
        jars.ensure_jars(cache=tmp_path)

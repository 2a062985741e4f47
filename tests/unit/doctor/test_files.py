"""Files that can't be read, or that others can."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import hqueue
from hqueue.doctor import Level, Subject
from hqueue.doctor.files import check_files


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A folder that everybody may enter, as pytest's is not."""
    with tempfile.TemporaryDirectory(prefix="hqueue-files-") as folder:
        path = Path(folder)
        path.chmod(0o755)
        yield path


@pytest.fixture(autouse=True)
def no_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "hqueue.toml"
    path.touch(0o600)
    monkeypatch.setenv("HQUEUE_CONFIG", str(path))
    return path


def file_of(folder: Path, name: str, mode: int) -> str:
    path = folder / name
    path.write_text("something")
    path.chmod(mode)
    return str(path)


def levels(**given: object) -> list[tuple[Level, str]]:
    settings = hqueue.Settings(**given)  # type: ignore[arg-type]
    return [(each.level, each.advice) for each in check_files(Subject(settings))]


def test_files_that_only_their_owner_reads_are_well(tmp_path: Path) -> None:
    found = levels(
        hbase_authentication="kerberos",
        kerberos_keytab=file_of(tmp_path, "keytab", 0o600),
        hbase_tls=True,
        tls_ca=file_of(tmp_path, "ca.pem", 0o644),
        tls_certificate=file_of(tmp_path, "own.pem", 0o644),
        tls_key=file_of(tmp_path, "own.key", 0o640),
    )
    assert found == [(Level.OK, "")] * 4


@pytest.mark.parametrize("mode", [0o644, 0o620, 0o602])
@pytest.mark.parametrize("secret", ["kerberos_keytab", "tls_certificate", "tls_key"])
def test_secrets_that_others_read_or_change_are_wrong(
    tmp_path: Path, secret: str, mode: int
) -> None:
    path = file_of(tmp_path, "secret", mode)
    given: dict[str, object] = {"hbase_tls": True, "hbase_authentication": "kerberos"}
    if secret == "tls_key":
        given["tls_certificate"] = file_of(tmp_path, "own.pem", 0o644)
    found = levels(**given, **{secret: path})
    assert [each for each in found if each[0] is not Level.OK] == [
        (Level.WRONG, f"chmod 600 {path}; if others could read it, replace the secret")
    ]


def test_what_lies_in_a_folder_that_others_can_t_enter_is_no_concern(tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir(0o700)
    keytab = file_of(inner, "keytab", 0o644)
    assert levels(hbase_authentication="kerberos", kerberos_keytab=keytab) == [(Level.OK, "")]


def test_an_authority_that_everybody_may_change_is_wrong(tmp_path: Path) -> None:
    path = file_of(tmp_path, "ca.pem", 0o666)
    assert levels(hbase_tls=True, tls_ca=path) == [(Level.WRONG, f"chmod o-w {path}")]


def test_a_file_that_is_missing_is_wrong(tmp_path: Path) -> None:
    [(level, advice)] = levels(hbase_tls=True, tls_ca=str(tmp_path / "none"))
    assert level is Level.WRONG
    assert advice.startswith("correct the path")


def test_a_settings_file_with_a_credential_in_it_is_a_secret(no_settings: Path) -> None:
    no_settings.write_text('zookeeper_auth = "digest:app:password"')
    no_settings.chmod(0o644)
    settings = hqueue.Settings.load()
    [found] = check_files(Subject(settings))
    assert found.level is Level.WRONG
    assert found.advice.startswith(f"chmod 600 {no_settings}")
    assert "password" not in str(found)

"""What a client of hubs finds without being given it: how it proves who it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from hqueue.errors import SettingsError
from hqueue.topics.settings import hub_settings

FILES = {"tls_ca": "/etc/ca.pem", "tls_certificate": "/etc/own.pem"}


@pytest.fixture(autouse=True)
def settings_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "hqueue.toml"
    path.write_text(
        'tls = true\ntls_ca = "/etc/ca.pem"\ntls_certificate = "/etc/own.pem"\n'
        'delivery_principals = "hub"\nzookeeper = "host1"\nconnect_timeout_ms = 7\n'
    )
    monkeypatch.setenv("HQUEUE_CONFIG", str(path))
    monkeypatch.setenv("HQUEUE_LOCAL_HOME", str(tmp_path))
    return path


def test_tls_is_found_where_a_connection_finds_it_and_nothing_else() -> None:
    found = hub_settings("host:1", {})
    assert (found.tls, found.tls_ca, found.delivery_principals) == (True, "/etc/ca.pem", "hub")
    assert found.connect_timeout_ms != 7
    other = hub_settings("host:1", {"tls_certificate": "/etc/other.pem"})
    assert (other.tls, other.tls_certificate) == (True, "/etc/other.pem")


@pytest.mark.parametrize("tls", [False, True])
def test_where_it_is_given_nothing_is_looked_for(settings_file: Path, tls: bool) -> None:
    settings_file.write_text("not = TOML = at all")
    given = {"tls": True, **FILES} if tls else {"tls": False}
    found = hub_settings("host:1", given)  # type: ignore[arg-type]
    assert (found.tls, found.delivery_principals) == (tls, None)


def test_what_is_wrong_there_is_said_with_its_place(settings_file: Path) -> None:
    settings_file.write_text('tls_ca = "/etc/ca.pem"')
    with pytest.raises(SettingsError, match="tls_ca needs") as caught:
        hub_settings("host:1", {})
    assert caught.value.facts["line"] == 1

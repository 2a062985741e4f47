"""What a client of hubs finds without being given it: how it proves who it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from hqueue.errors import SettingsError
from hqueue.settings.connection import Settings
from hqueue.topics.settings import HubOptions, hub_settings


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


def test_without_tls_nothing_is_looked_for(settings_file: Path) -> None:
    settings_file.write_text("not = TOML = at all")
    found = hub_settings("host:1", {"tls": False})
    assert (found.tls, found.delivery_principals) == (False, None)


@pytest.mark.parametrize("kind", [hub_settings, None])
def test_the_files_are_found_though_tls_is_given_as_for_a_connection(
    settings_file: Path, kind: object
) -> None:
    settings_file.write_text(settings_file.read_text().replace("tls = true\n", ""))
    given: HubOptions = {"tls": True, "tls_certificate": "/etc/other.pem"}
    found = hub_settings("host:1", given) if kind else Settings.load(dict(given))
    assert (found.tls, found.tls_ca, found.tls_certificate, found.delivery_principals) == (
        (True, "/etc/ca.pem", "/etc/other.pem", "hub")
    )


def test_what_is_wrong_there_is_said_with_its_place(settings_file: Path) -> None:
    settings_file.write_text('tls_ca = "/etc/ca.pem"')
    with pytest.raises(SettingsError, match="tls_ca needs") as caught:
        hub_settings("host:1", {})
    assert caught.value.facts["line"] == 1

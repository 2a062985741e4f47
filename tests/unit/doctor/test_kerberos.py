"""Keytabs and tickets: what is missing is named."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import hqueue
from hqueue.doctor import Finding, Level, Subject
from hqueue.doctor import kerberos as checked
from hqueue.doctor.findings import ok
from hqueue.doctor.kerberos import check_kerberos
from hqueue.net.kerberos import Identity, Login
from tests.support.keytabs import keytab


@pytest.fixture
def kdc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """A KDC that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        config = tmp_path / "krb5.conf"
        config.write_text(
            "[libdefaults]\n default_realm = TEST\n udp_preference_limit = 1\n"
            " dns_lookup_kdc = false\n[realms]\n TEST = {\n"
            f"  kdc = 127.0.0.1:{listener.getsockname()[1]}\n }}\n"
        )
        monkeypatch.setenv("KRB5_CONFIG", str(config))
        monkeypatch.setenv("KRB5CCNAME", f"FILE:{tmp_path}/none")
        yield listener


@pytest.fixture
def keys(tmp_path: Path) -> str:
    path = tmp_path / "keytab"
    path.write_bytes(keytab("app@TEST"))
    return str(path)


def examined(**given: Any) -> list[Finding]:
    settings = hqueue.Settings(hbase_authentication="kerberos", operation_timeout_ms=500, **given)
    return [*check_kerberos(Subject(settings))]


def test_without_kerberos_nothing_is_said() -> None:
    assert [*check_kerberos(Subject(hqueue.Settings()))] == []


@pytest.mark.usefixtures("kdc")
def test_a_missing_ticket_is_named() -> None:
    [found] = examined()
    assert found.level is Level.WRONG
    assert "there is no ticket" in found.found
    assert found.advice.startswith("run kinit")


@pytest.mark.usefixtures("kdc")
def test_a_keytab_without_the_principal_s_key_is_named(keys: str) -> None:
    first, second = examined(kerberos_keytab=keys, kerberos_principal="other@TEST")
    assert (first.level, second.level) == (Level.WRONG, Level.WRONG)
    assert first.found == f"the keytab {keys} has keys of app@TEST, but none of other@TEST"


@pytest.mark.usefixtures("kdc")
def test_without_a_principal_any_key_of_the_keytab_is_well(keys: str) -> None:
    first, _ = examined(kerberos_keytab=keys)
    assert first == ok("kerberos", "the keytab has keys of app@TEST")


@pytest.mark.usefixtures("kdc")
def test_a_file_that_is_no_keytab_is_named(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_text("not a keytab")
    first, _ = examined(kerberos_keytab=str(path))
    assert "can't be used: this is not a keytab" in first.found


def test_a_missing_configuration_is_named(
    keys: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = str(tmp_path / "none.conf")
    monkeypatch.delenv("KRB5_CONFIG", raising=False)
    found = examined(kerberos_keytab=keys, kerberos_config=missing)[-1]
    assert found.found == (
        "kerberos_config can't be read: check that the file exists, and that this user may read it"
        f" [{missing}]"
    )
    assert found.advice.startswith("correct kerberos_config")


def test_a_realm_without_a_kdc_is_not_blamed_on_the_keytab(
    kdc: socket.socket, keys: str, tmp_path: Path
) -> None:
    config = tmp_path / "krb5.conf"
    config.write_text("[libdefaults]\n default_realm = TEST\n dns_lookup_kdc = false\n")
    found = examined(kerberos_keytab=keys)[-1]
    assert "the realm's KDC is not found" in found.found
    assert found.advice.startswith("correct kerberos_config")


@pytest.mark.usefixtures("kdc")
def test_a_silent_kdc_is_named_within_the_bound(keys: str) -> None:
    first, second = examined(kerberos_keytab=keys, kerberos_principal="app")
    assert first.level is Level.OK
    assert second.found.startswith("the KDC can't be reached [realm=TEST, kdc=127.0.0.1:")
    assert "did not answer in time" in second.found


@pytest.mark.parametrize(
    ("keytab", "left_s", "level"),
    [(None, 9_000, Level.OK), (None, 599, Level.WARNING), ("keys", 599, Level.OK)],
)
def test_a_ticket_that_nobody_renews_is_warned_of(
    keys: str, monkeypatch: pytest.MonkeyPatch, keytab: str | None, left_s: int, level: Level
) -> None:
    class Known(Login):
        def identity(self, ends_s: float) -> Identity:
            return Identity("app@TEST", left_s)

    monkeypatch.setattr(checked, "Login", Known)
    found = examined(kerberos_keytab=keys if keytab else None)[-1]
    assert found.level is level
    assert found.found.startswith("the ticket of app@TEST is valid for ")

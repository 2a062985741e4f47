"""Contexts of TLS, and the files that they are made of."""

from __future__ import annotations

import logging
import shutil
import ssl
from pathlib import Path

import pytest

import hqueue
from hqueue import SettingsError
from hqueue.net.contexts import TlsContexts, TlsFiles
from hqueue.net.refusals import RefusedError
from hqueue.net.security import security_of
from tests.support.certificates import Certificates, without_key

PASSWORD = "never-to-be-shown"


def test_a_changed_certificate_counts_from_the_next_connection_on(
    certificates: Certificates,
) -> None:
    made = certificates.make("changes")
    contexts = TlsContexts(TlsFiles(str(certificates.folder / "ca.pem"), str(made)), serves=True)
    first = contexts.current()
    assert contexts.current() is first
    certificates.make("changes")
    second = contexts.current()
    assert second is not first
    assert contexts.current() is second


def test_changed_files_that_fit_nothing_leave_the_earlier_ones_in_use_and_are_logged_once(
    certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    made = certificates.make("breaks")
    contexts = TlsContexts(TlsFiles(str(certificates.folder / "ca.pem"), str(made)), serves=True)
    first = contexts.current()
    kept = made.read_text()
    with caplog.at_level(logging.WARNING):
        made.write_text(kept[:200])
        assert contexts.current() is first
        assert contexts.current() is first
        made.unlink()
        assert contexts.current() is first
    assert [record.getMessage()[:38] for record in caplog.records] == [
        "changed TLS files can't be used; still"
    ] * 2
    first_line, second_line = (record.getMessage() for record in caplog.records)
    assert f"path={made}, reason={made} does not contain a certificate in PEM" in first_line
    assert f"reason={made} can't be read: No such file" in second_line
    made.write_text(kept)
    assert contexts.current() is not first


def test_a_server_demands_a_certificate_and_takes_up_no_earlier_session(
    certificates: Certificates,
) -> None:
    files = TlsFiles(str(certificates.folder / "ca.pem"), str(certificates.make("server")))
    server, client = TlsContexts(files, serves=True).current(), TlsContexts(files).current()
    assert server.verify_mode is client.verify_mode is ssl.CERT_REQUIRED
    assert server.minimum_version is client.minimum_version is ssl.TLSVersion.TLSv1_2
    assert client.check_hostname
    assert not TlsContexts(files, verify_hostname=False).current().check_hostname
    assert server.num_tickets == 0
    assert server.options & ssl.OP_NO_TICKET


@pytest.mark.parametrize("missing", ["tls_ca", "tls_certificate"])
def test_tls_without_an_authority_or_a_certificate_is_refused(
    certificates: Certificates, missing: str
) -> None:
    given = {**certificates.of("whole"), missing: None}
    for kind in (
        lambda: hqueue.Settings(**given),
        lambda: hqueue.HubClientSettings((hqueue.Address("h", 1),), **given),
    ):
        with pytest.raises(SettingsError, match=missing):
            kind()


def test_files_that_cant_be_used_are_named_where_the_client_is_made(
    certificates: Certificates, tmp_path: Path
) -> None:
    good = certificates.of("good")
    assert security_of(hqueue.Settings(**good)) is not None
    assert security_of(hqueue.Settings()) is None
    no_key = tmp_path / "no-key.pem"
    no_key.write_text(without_key(certificates.folder / "good.pem"))
    no_certificate = tmp_path / "junk.pem"
    no_certificate.write_text("junk")
    for wrong in (
        {"tls_ca": str(no_certificate)},
        {"tls_ca": str(tmp_path / "absent.pem")},
        {"tls_certificate": str(no_key)},
        {"tls_certificate": str(no_certificate)},
        {"tls_key": str(certificates.make("another"))},
    ):
        with pytest.raises(SettingsError, match="can't be used") as caught:
            hqueue.connect_hubs("h:1", **{**good, **wrong})
        named = {"tls_ca", "tls_certificate"} & {str(caught.value.facts["setting"])}
        assert named
    with pytest.raises(SettingsError, match="must be RULE"):
        hqueue.connect_hubs("h:1", **good, tls_principal_rules="CN")


def test_a_key_with_a_password_is_refused_and_nothing_shows_what_is_secret(
    certificates: Certificates, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    locked = certificates.encrypted("locked", PASSWORD)
    settings = hqueue.Settings(**{**certificates.of("locked"), "tls_certificate": str(locked)})
    with pytest.raises(SettingsError, match="can't be used") as caught:
        security_of(settings)
    shown = repr(settings) + str(caught.value) + repr(caught.value.facts) + str(capfd.readouterr())
    lines = locked.read_text().splitlines()
    secrets = [line for line in lines if len(line) == 64] + [PASSWORD]
    assert not [secret for secret in secrets if secret in shown]
    shutil.copy(locked, tmp_path / "copy.pem")
    with pytest.raises(RefusedError):
        TlsContexts(TlsFiles(None, str(tmp_path / "copy.pem"))).current()

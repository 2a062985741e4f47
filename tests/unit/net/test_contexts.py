"""Contexts of TLS, and the files that they are made of."""

from __future__ import annotations

import datetime
import logging
import os
import shutil
import ssl
from pathlib import Path
from typing import Any

import pytest

import hqueue
from hqueue import SettingsError
from hqueue.net.contexts import TlsContexts
from hqueue.net.refusals import RefusedError
from hqueue.net.security import PortSecurity, security_of
from hqueue.net.tls_files import TlsFiles
from hqueue.runtime.clock import SYSTEM_CLOCK
from tests.support.certificates import Certificates, without_key
from tests.support.doubles import SteppedClock

PASSWORD = "never-to-be-shown"
TOMORROW = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(days=1)


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


@pytest.mark.parametrize("serves", [False, True])
@pytest.mark.parametrize(
    ("made", "reason"),
    [
        ({"days": -1}, "it has expired"),
        ({"begins": TOMORROW}, "it is not valid yet"),
        ({"authority": "others"}, "unable to get local issuer certificate"),
        ({"usage": "codeSigning"}, "purpose"),
        ({"usage": "the other side's"}, "purpose"),
    ],
)
def test_a_certificate_that_others_would_not_accept_replaces_none_and_is_logged_once(
    certificates: Certificates,
    caplog: pytest.LogCaptureFixture,
    made: dict[str, Any],
    reason: str,
    serves: bool,
) -> None:
    if made.get("usage") == "the other side's":
        made = {"usage": "clientAuth" if serves else "serverAuth"}
    certificates.authority("others")
    shown = certificates.make("replaced")
    files = TlsFiles(str(certificates.folder / "ca.pem"), str(shown))
    contexts = TlsContexts(files, serves=serves)
    first, expires_s = contexts.current(), contexts.expires_s
    with caplog.at_level(logging.WARNING):
        certificates.make("replaced", **made)
        for _ in range(3):
            assert contexts.current() is first
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert "still using the earlier ones: " in record.getMessage()
    assert reason in record.getMessage()
    assert contexts.expires_s == expires_s
    certificates.make("replaced", days=20)
    assert contexts.current() is not first
    assert contexts.expires_s is not None
    assert expires_s is not None
    assert contexts.expires_s > expires_s + 10 * 86_400


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        ({"usage": "serverAuth"}, "as a client: "),
        ({"usage": "clientAuth"}, "as a server: "),
        ({"subject": "/O=Tests/CN=*"}, "a principal can't have"),
        ({"subject": "/O=Tests"}, "no rule makes a principal"),
    ],
)
def test_at_hqueues_own_ports_it_must_be_fit_for_both_sides_and_make_a_principal(
    certificates: Certificates,
    caplog: pytest.LogCaptureFixture,
    made: dict[str, Any],
    reason: str,
) -> None:
    shown = certificates.make("both")
    security = PortSecurity(hqueue.Settings(**certificates.of("both")))
    calls, expires_s = security.client.current(), security.expires_s
    with caplog.at_level(logging.ERROR):
        certificates.make("both", days=20, **made)
        assert security.client.current() is calls
        assert security.expires_s == expires_s
    assert len(caplog.records) == 2, "the ports, and the calls"
    for record in caplog.records:
        assert f"path={shown}, reason=" in record.getMessage()
        assert reason in record.getMessage()
    certificates.make("both", days=20)
    assert security.client.current() is not calls
    assert security.expires_s > expires_s


def test_a_fault_that_the_earlier_certificate_has_as_well_does_not_keep_another_from_following(
    certificates: Certificates,
) -> None:
    certificates.make("client-only", usage="clientAuth")
    client = PortSecurity(hqueue.Settings(**certificates.of("client-only"))).client
    first = client.current()
    certificates.make("client-only", usage="clientAuth")
    second = client.current()
    assert second is not first
    certificates.make("client-only", usage="serverAuth")
    assert client.current() is second


def test_one_that_is_not_valid_yet_replaces_the_earlier_one_once_it_is(
    certificates: Certificates,
) -> None:
    shown, clock = certificates.make("early"), SteppedClock(SYSTEM_CLOCK.wall_ms())
    files = TlsFiles(str(certificates.folder / "ca.pem"), str(shown))
    contexts = TlsContexts(files, serves=True, clock=clock)
    first = contexts.current()
    certificates.make("early", begins=TOMORROW)
    assert contexts.current() is first
    clock.now_ms += 86_400_000 + 3_600_000
    second = contexts.current()
    assert second is not first
    assert contexts.current() is second


def test_another_authorities_certificate_may_follow_one_like_it(
    certificates: Certificates,
) -> None:
    """What a process trusts, and who trusts it, need not be the same authority."""
    certificates.authority("others")
    shown = certificates.make("foreign", authority="others")
    contexts = TlsContexts(TlsFiles(str(certificates.folder / "ca.pem"), str(shown)))
    first = contexts.current()
    certificates.make("foreign", authority="others")
    assert contexts.current() is not first


def test_an_authority_may_change_under_a_certificate_and_both_together(
    certificates: Certificates,
) -> None:
    trusted = certificates.folder / "trusted.pem"
    trusted.write_text((certificates.folder / "ca.pem").read_text())
    shown = certificates.make("moves")
    contexts = TlsContexts(TlsFiles(str(trusted), str(shown)), serves=True)
    first = contexts.current()
    trusted.write_text(certificates.authority("successor").read_text())
    second = contexts.current()
    assert second is not first
    certificates.make("moves", authority="successor")
    assert contexts.current() is not second


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


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        ({"days": -1}, "it has expired"),
        ({"begins": TOMORROW}, "it is not valid yet"),
        ({"authority": "others"}, "unable to get local issuer certificate"),
        ({"usage": "clientAuth"}, "as a server: "),
        ({"names": "email:a@example.com"}, "it names no host"),
        ({"names": "DNS:other.example.com"}, "it does not name this host, hub1.example.com"),
    ],
)
def test_a_certificate_that_nobody_can_accept_is_refused_where_it_would_be_shown(
    certificates: Certificates, made: dict[str, Any], reason: str
) -> None:
    certificates.authority("others")
    security = PortSecurity(hqueue.Settings(**certificates.of("shown", **made)))
    with pytest.raises(SettingsError, match="others would not accept") as caught:
        security.check_shown("hub1.example.com" if "this host" in reason else "")
    assert reason in str(caught.value.facts["reason"])
    assert caught.value.facts["setting"] == "tls_certificate"


@pytest.mark.parametrize(
    ("names", "host"),
    [
        ("DNS:hub1.example.com", "HUB1.example.com"),
        ("DNS:*.example.com", "hub1.example.com"),
        ("IP:10.0.0.1", "10.0.0.1"),
        ("IP:0:0:0:0:0:0:0:1", "::1"),
        ("DNS:any", ""),
    ],
)
def test_one_that_names_the_host_is_shown(
    certificates: Certificates, names: str, host: str
) -> None:
    security = PortSecurity(hqueue.Settings(**certificates.of("named", names=names)))
    security.check_shown(host)


def test_names_do_not_matter_where_they_are_not_verified(certificates: Certificates) -> None:
    given = certificates.of("unnamed", names="email:a@example.com")
    PortSecurity(hqueue.Settings(**given, tls_verify_hostname=False)).check_shown("hub1")


def test_one_without_the_hosts_name_replaces_none(
    certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    security = PortSecurity(hqueue.Settings(**certificates.of("moved", names="DNS:hub1")))
    security.check_shown("hub1")
    expires_s = security.expires_s
    with caplog.at_level(logging.ERROR):
        certificates.make("moved", names="DNS:hub2", days=20)
        assert security.expires_s == expires_s
        assert security.expires_s == expires_s
    (record,) = caplog.records
    assert "it does not name this host, hub1" in record.getMessage()
    certificates.make("moved", names="DNS:hub1", days=20)
    assert security.expires_s > expires_s


def test_that_the_certificate_in_use_expires_is_logged_once(
    certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    shown, clock = certificates.make("ends"), SteppedClock(SYSTEM_CLOCK.wall_ms())
    files = TlsFiles(str(certificates.folder / "ca.pem"), str(shown))
    contexts = TlsContexts(files, serves=True, clock=clock)
    with caplog.at_level(logging.ERROR):
        first = contexts.current()
        assert caplog.records == []
        clock.now_ms += 3 * 86_400_000
        assert contexts.current() is contexts.current() is first
    (record,) = caplog.records
    assert record.getMessage().startswith("the tls_certificate in use has expired")


def test_an_authority_that_did_not_sign_the_certificate_in_use_is_logged_once(
    certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    trusted = certificates.folder / "trusted-now.pem"
    trusted.write_text((certificates.folder / "ca.pem").read_text())
    files = TlsFiles(str(trusted), str(certificates.make("stays")))
    contexts = TlsContexts(files, serves=True)
    first = contexts.current()
    with caplog.at_level(logging.ERROR):
        trusted.write_text(certificates.authority("unrelated").read_text())
        second = contexts.current()
        assert second is not first
        assert contexts.current() is second
    (record,) = caplog.records
    assert record.getMessage().startswith("the changed tls_ca is in use, but others with the same")


@pytest.mark.parametrize("setting", ["tls_ca", "tls_certificate", "tls_key"])
def test_a_pipe_is_not_read(certificates: Certificates, tmp_path: Path, setting: str) -> None:
    pipe = tmp_path / "pipe.pem"
    os.mkfifo(pipe)
    with pytest.raises(SettingsError, match="can't be used") as caught:
        security_of(hqueue.Settings(**{**certificates.of("good"), setting: str(pipe)}))
    assert caught.value.facts["reason"] == f"{pipe} is not a regular file"

"""Certificates: each is broken in one way, and that is what is named."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path
from typing import Any

import pytest

import hqueue
from hqueue.doctor import Finding, Level, Subject
from hqueue.doctor.certificates import check_certificates, end_of
from hqueue.doctor.files import check_files
from tests.support.certificates import Certificates, without_key


def examined(**given: Any) -> list[Finding]:
    return [*check_certificates(Subject(hqueue.Settings(**given)))]


def wrong(found: list[Finding]) -> str:
    """The one finding that is not well."""
    [one] = [each for each in found if each.level is not Level.OK]
    assert one.advice
    return f"{one.level.value}: {one.found}"


@pytest.fixture
def here() -> str:
    return f"DNS:{socket.gethostname()},IP:127.0.0.1"


def test_a_good_one_is_well(certificates: Certificates, here: str) -> None:
    found = examined(**certificates.of("good", names=here))
    assert {each.level for each in found} == {Level.OK}
    text = " ".join(each.found for each in found)
    assert "the principal 'good'" in text
    assert "names this host" in text
    assert "accept the certificate" in text


def test_that_ports_serve_callers_without_tls_is_a_warning(
    certificates: Certificates, here: str
) -> None:
    found = examined(**certificates.of("half", names=here), tls_optional=True)
    assert wrong(found).startswith("warning: this process's ports also serve callers without TLS")


def test_without_tls_nothing_is_said() -> None:
    assert examined() == []


def test_who_calls_hbase_without_one_is_warned(certificates: Certificates) -> None:
    ca = str(certificates.folder / "ca.pem")
    assert "has no certificate, and" in wrong(examined(hbase_tls=True, tls_ca=ca))


@pytest.mark.parametrize(
    ("made", "text"),
    [
        ({"days": -1}, "wrong: the certificate of CN=broken,O=Tests expired on"),
        ({"names": "DNS:elsewhere.example"}, "warning: the certificate names elsewhere.example"),
        ({"usage": "serverAuth"}, "wrong: the certificate is not for both servers and clients"),
        ({"usage": "clientAuth"}, "wrong: the certificate is not for both servers and clients"),
        ({"usage": "codeSigning"}, "wrong: tls_certificate is neither for servers nor for clients"),
        ({"authority": "another"}, "wrong: processes with this tls_ca don't accept"),
        ({"subject": "/O=Tests"}, "wrong: no rule makes a principal of this certificate"),
    ],
)
def test_what_is_wrong_with_it_is_named(
    certificates: Certificates, here: str, made: dict[str, str], text: str
) -> None:
    certificates.authority("another")
    given = certificates.of("broken", **{"names": here, **made})
    assert wrong(examined(**given)).startswith(text)


def test_a_key_of_another_certificate_is_named(certificates: Certificates, here: str) -> None:
    other = certificates.make("other", names=here)
    given = certificates.of("mine", names=here) | {"tls_key": str(other)}
    assert "belong together" in wrong(examined(**given))


def test_a_file_without_a_key_is_named(certificates: Certificates, here: str) -> None:
    path = certificates.make("keyless", names=here)
    path.write_text(without_key(path))
    given = certificates.of("good", names=here) | {"tls_certificate": str(path)}
    assert f"tls_certificate, path={path}, reason={path} does not contain a private key" in wrong(
        examined(**given)
    )


@pytest.mark.parametrize("broken", ["missing", "garbage", "empty", "folder"])
def test_a_certificate_s_file_that_can_t_be_used_is_named_with_its_reason(
    certificates: Certificates, broken: str
) -> None:
    path = certificates.folder / broken
    if broken == "folder":
        path.mkdir()
    elif broken != "missing":
        path.write_text("junk" if broken == "garbage" else "")
    given = certificates.of("good") | {"tls_certificate": str(path)}
    text = wrong(examined(**given))
    assert text.startswith("wrong: tls_certificate can't be used")
    assert f"path={path}, reason={path} " in text


def test_an_authority_s_file_that_has_none_is_named(certificates: Certificates) -> None:
    leaf = certificates.make("leaf")
    assert "no authority" in examined(hbase_tls=True, tls_ca=str(leaf))[0].found
    leaf.write_text("nothing")
    assert "no certificates that can be read" in examined(hbase_tls=True, tls_ca=str(leaf))[0].found


DAY_S = 86_400


@pytest.mark.parametrize(
    ("begins_days", "ends_days", "level"),
    [
        (-300, 60, Level.OK),
        (-300, 13, Level.WARNING),
        (-1, 6, Level.OK),
        (-6, 1, Level.WARNING),
        (-300, -1, Level.WRONG),
        (1, 300, Level.WRONG),
    ],
)
def test_the_end_is_warned_of_by_what_is_left(
    begins_days: int, ends_days: int, level: Level
) -> None:
    def written(days: int) -> str:
        return time.strftime("%b %d %H:%M:%S %Y GMT", time.gmtime(time.time() + days * DAY_S))

    dates = {"notBefore": written(begins_days), "notAfter": written(ends_days)}
    assert end_of("certificate", "it", dates, "renew it").level is level


def test_one_that_names_no_host_gets_advice_for_that_alone(certificates: Certificates) -> None:
    found = examined(**certificates.of("unnamed-here", names="email:a@example.com"))
    assert wrong(found) == "wrong: the certificate names no host"


def test_a_pipe_is_named_and_not_read(certificates: Certificates, tmp_path: Path) -> None:
    pipe = tmp_path / "ca.pem"
    os.mkfifo(pipe)
    given = {**certificates.of("good"), "tls_ca": str(pipe)}
    subject = Subject(hqueue.Settings(**given))
    assert "is not a regular file" in wrong([*check_files(subject)])
    assert next(each.level for each in check_certificates(subject)) is Level.OK

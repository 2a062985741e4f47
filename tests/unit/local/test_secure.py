"""The profile with Kerberos and TLS: what it refuses before anything is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from hqueue import local
from hqueue.errors import LocalServerError
from hqueue.local import certificates
from hqueue.local.certificates import is_valid, keep_authority, make_authority, make_certificate


def test_it_has_no_gateways(tmp_path: Path) -> None:
    with pytest.raises(LocalServerError, match="no gateways"):
        local.start("secure", gateways=True, home=tmp_path / "home")
    assert not (tmp_path / "home").exists()


def test_certificates_need_openssl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LocalServerError, match="install openssl"):
        make_authority(tmp_path)


def test_what_openssl_says_is_in_the_error(tmp_path: Path) -> None:
    with pytest.raises(LocalServerError) as caught:
        make_certificate(tmp_path, "server", hosts="DNS:localhost", authority="nobody")
    assert "nobody.pem" in str(caught.value.facts["log"])


def test_a_certificate_and_its_key_are_in_one_file_that_nobody_else_reads(tmp_path: Path) -> None:
    make_authority(tmp_path)
    make_certificate(tmp_path, "server", hosts="DNS:localhost")
    path = tmp_path / "server.pem"
    assert path.stat().st_mode & 0o077 == 0
    text = path.read_text()
    assert "BEGIN PRIVATE KEY" in text
    assert "BEGIN CERTIFICATE" in text


def test_a_good_authority_is_kept_from_start_to_start(tmp_path: Path) -> None:
    folder = tmp_path / "authority"
    path = keep_authority(folder)
    assert folder.stat().st_mode & 0o077 == 0
    assert is_valid(path, certificates.VALID_DAYS * certificates.DAY_S)
    before = path.read_bytes()
    assert keep_authority(folder) == path
    assert path.read_bytes() == before


@pytest.mark.parametrize("harmed", ["no key", "another key", "no certificate", "expires soon"])
def test_an_authority_that_is_of_no_use_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, harmed: str
) -> None:
    monkeypatch.setattr(certificates, "AUTHORITY_DAYS", 29 if harmed == "expires soon" else 365)
    path, key = keep_authority(tmp_path), tmp_path / "ca.key"
    before = path.read_bytes()
    if harmed == "no key":
        key.unlink()
    elif harmed == "another key":
        key.write_bytes(make_authority(tmp_path, "other").with_suffix(".key").read_bytes())
    elif harmed == "no certificate":
        path.write_text("nothing")
    monkeypatch.undo()
    assert keep_authority(tmp_path).read_bytes() != before
    make_certificate(tmp_path, "server", hosts="DNS:localhost")
    assert is_valid(tmp_path / "server.pem")

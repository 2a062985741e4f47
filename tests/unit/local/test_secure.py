"""The profile with Kerberos and TLS: what it refuses before anything is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from hqueue import local
from hqueue.errors import LocalServerError
from hqueue.local.certificates import make_authority, make_certificate


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

"""Certificates for tests."""

from __future__ import annotations

import datetime
import subprocess
from pathlib import Path
from typing import Any

from hqueue.local.certificates import make_authority, make_certificate

__all__ = ["Certificates", "without_key"]

HERE = "DNS:localhost,IP:127.0.0.1"
CERTIFICATE = "-----BEGIN CERTIFICATE-----"


class Certificates:
    """Makes authorities and certificates in a folder.

    Args:
        folder: the folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority("ca")

    def authority(self, name: str) -> Path:
        """An authority; its certificate."""
        return make_authority(self.folder, name)

    def make(
        self,
        name: str,
        *,
        subject: str | None = None,
        names: str = HERE,
        authority: str = "ca",
        days: int = 2,
        begins: datetime.datetime | None = None,
        usage: str | None = None,
        file: str | None = None,
    ) -> Path:
        """A certificate with its key in one file.

        Args:
            name: its subject's common name.
            subject: the whole subject, as openssl writes it, instead.
            names: its alternative names.
            authority: who signs it.
            days: how long it is good; -1 if it has expired.
            begins: from when on it is good; from now on if None.
            usage: what it is good for, as openssl writes it: ``serverAuth``; for all if None.
            file: the file's name, if it is not ``name``.
        """
        subject = subject or f"/O=Tests/CN={name}"
        made = make_certificate(
            self.folder,
            file or name,
            hosts=names,
            subject=subject,
            authority=authority,
            days=days,
            usage=usage,
        )
        if begins is not None:
            self._sign_again(made, authority, begins, days)
        return made

    def encrypted(self, name: str, password: str) -> Path:
        """A certificate whose key has a password."""
        made = self.make(name)
        locked = _openssl("ec", "-in", str(made), "-aes256", "-passout", f"pass:{password}")
        made.write_text(locked + without_key(made))
        return made

    def of(self, name: str, authority: str = "ca", **made: Any) -> dict[str, Any]:
        """The settings of a process that has a certificate, which is made."""
        found = self.folder / f"{made.get('file') or name}.pem"
        if made or authority != "ca" or not found.exists():
            self.make(name, authority=authority, **made)
        return {
            "tls": True,
            "tls_ca": str(self.folder / "ca.pem"),
            "tls_certificate": str(found),
        }

    def _sign_again(self, made: Path, authority: str, begins: datetime.datetime, days: int) -> None:
        """Have a certificate begin later: `openssl ca` alone can do that."""
        base = self.folder / authority
        index, settings, request = (
            base.with_suffix(f".{each}") for each in ("index", "conf", "csr")
        )
        index.touch()
        settings.write_text(
            "[ca]\ndefault_ca=here\n[here]\npolicy=any\ndefault_md=sha256\n"
            f"certificate={base}.pem\nprivate_key={base}.key\ndatabase={index}\n"
            f"new_certs_dir={self.folder}\nunique_subject=no\nrand_serial=yes\n"
            "[any]\norganizationName=optional\ncommonName=optional\n"
        )
        request.write_text(_openssl("x509", "-x509toreq", "-in", str(made), "-signkey", str(made)))
        signed = _openssl(
            "ca", "-batch", "-config", str(settings), "-notext", "-in", str(request), "-days",
            str(days), "-startdate", f"{begins:%Y%m%d%H%M%SZ}",
        )  # fmt: skip
        key = made.read_text().partition(CERTIFICATE)[0]
        made.write_text(key + signed)


def _openssl(*arguments: str) -> str:
    """What the command says."""
    done = subprocess.run(
        ["openssl", *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=60, check=True,
    )  # fmt: skip
    return done.stdout


def without_key(made: Path) -> str:
    """What a certificate's file has but for the key."""
    _, begin, rest = made.read_text().partition(CERTIFICATE)
    return begin + rest

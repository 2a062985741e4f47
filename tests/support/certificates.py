"""Certificates for tests."""

from __future__ import annotations

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
        file: str | None = None,
    ) -> Path:
        """A certificate with its key in one file.

        Args:
            name: its subject's common name.
            subject: the whole subject, as openssl writes it, instead.
            names: its alternative names.
            authority: who signs it.
            days: how long it is good; -1 if it has expired.
            file: the file's name, if it is not ``name``.
        """
        subject = subject or f"/O=Tests/CN={name}"
        return make_certificate(
            self.folder, file or name, hosts=names, subject=subject, authority=authority, days=days
        )

    def encrypted(self, name: str, password: str) -> Path:
        """A certificate whose key has a password."""
        made = self.make(name)
        locked = subprocess.run(
            ["openssl", "ec", "-in", str(made), "-aes256", "-passout", f"pass:{password}"],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=True,
        )  # fmt: skip
        made.write_text(locked.stdout + without_key(made))
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


def without_key(made: Path) -> str:
    """What a certificate's file has but for the key."""
    _, begin, rest = made.read_text().partition(CERTIFICATE)
    return begin + rest

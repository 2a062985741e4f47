"""Certificates for tests, made by the ``openssl`` command."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

__all__ = ["Certificates"]

KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")
HERE = "DNS:localhost,IP:127.0.0.1"


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
        made, key = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        self._run(
            "req", "-x509", *KEY, "-nodes", "-keyout", str(key), "-out", str(made),
            "-days", "2", "-subj", f"/CN={name}",
        )  # fmt: skip
        return made

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
        made = self.folder / f"{file or name}.pem"
        key, request = made.with_suffix(".key"), made.with_suffix(".csr")
        extensions, signed = made.with_suffix(".ext"), made.with_suffix(".crt")
        extensions.write_text(f"subjectAltName={names}\n")
        whole = ("-subj", subject or f"/O=Tests/CN={name}", "-multivalue-rdn", "-utf8")
        self._run("req", *KEY, "-nodes", "-keyout", str(key), "-out", str(request), *whole)
        self._run(
            "x509", "-req", "-in", str(request), "-CA", str(self.folder / f"{authority}.pem"),
            "-CAkey", str(self.folder / f"{authority}.key"), "-CAcreateserial",
            "-out", str(signed), "-days", str(days), "-extfile", str(extensions),
        )  # fmt: skip
        new = made.with_suffix(".new")
        new.write_text(key.read_text() + signed.read_text())
        new.replace(made)
        return made

    def encrypted(self, name: str, password: str) -> Path:
        """A certificate whose key has a password."""
        made = self.make(name)
        key = made.with_suffix(".locked")
        self._run(
            "ec", "-in", str(made.with_suffix(".key")), "-aes256", "-passout", f"pass:{password}",
            "-out", str(key),
        )  # fmt: skip
        made.write_text(key.read_text() + made.with_suffix(".crt").read_text())
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

    def _run(self, *arguments: str) -> None:
        done = subprocess.run(
            ["openssl", *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr

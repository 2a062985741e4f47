"""Certificates for local servers and their clients, made by the ``openssl`` command."""

from __future__ import annotations

import subprocess
from pathlib import Path

from hqueue.errors import LocalServerError

__all__ = ["is_valid", "keep_authority", "make_authority", "make_certificate"]

TIMEOUT_S = 60.0
VALID_DAYS = 30
AUTHORITY_DAYS = 365
DAY_S = 86_400
_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


def keep_authority(folder: Path) -> Path:
    """Return the authority in a folder, ``ca.pem``, if its files are good and it is valid for as
    long as the certificates that it will sign; else make another one.

    Raises:
        LocalServerError: openssl is missing, or failed.
    """
    path, key = folder / "ca.pem", folder / "ca.key"
    if is_valid(path, VALID_DAYS * DAY_S) and _public_key(path) == _public_key(key):
        return path
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return make_authority(folder)


def is_valid(certificate: Path, for_s: int = 0) -> bool:
    """Return whether a certificate can be read, and is valid in this many seconds."""
    if not certificate.exists():
        return False
    checked = ("-noout", "-checkend", str(for_s))
    try:
        _openssl(certificate.parent, "x509", "-in", certificate.name, *checked)
    except LocalServerError:
        return False
    return True


def _public_key(path: Path) -> str | None:
    """Return the public key of a certificate or of a key; None if it can't be read."""
    read = ("pkey", "-pubout") if path.suffix == ".key" else ("x509", "-pubkey", "-noout")
    try:
        return _openssl(path.parent, *read, "-in", path.name)
    except LocalServerError:
        return None


def make_authority(folder: Path, name: str = "ca") -> Path:
    """Make an authority: ``<name>.pem``, which is returned, and its key in ``<name>.key``.

    Raises:
        LocalServerError: openssl is missing, or failed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    days = ("-days", str(AUTHORITY_DAYS))
    _openssl(
        folder, "req", "-x509", *_KEY, "-keyout", f"{name}.key", "-out", f"{name}.pem",
        *days, "-subj", f"/CN=hqueue local {name}",
    )  # fmt: skip
    return folder / f"{name}.pem"


def make_certificate(
    folder: Path,
    name: str,
    *,
    hosts: str,
    subject: str | None = None,
    authority: str = "ca",
    days: int = VALID_DAYS,
    usage: str | None = None,
) -> Path:
    """Make a certificate: ``<name>.pem``, which is returned, and has the key in it, too.

    Args:
        folder: where it is written, and the authority lies.
        name: its file's name.
        hosts: the hosts that it names, as OpenSSL writes them: ``DNS:localhost,IP:127.0.0.1``.
        subject: who its owner is, as OpenSSL writes it; by default ``/CN=<name>``.
        authority: the name of the authority.
        days: for how long from now it is good; -1 makes one that has expired.
        usage: what it is good for, as OpenSSL writes it: ``serverAuth``; for all if None.

    Raises:
        LocalServerError: openssl is missing, or failed.
    """
    request, extensions = f"{name}.csr", folder / f"{name}.ext"
    whole = ("-subj", subject or f"/CN={name}", "-multivalue-rdn", "-utf8")
    _openssl(folder, "req", *_KEY, "-keyout", f"{name}.key", "-out", request, *whole)
    limits = f"extendedKeyUsage={usage}\n" if usage else ""
    extensions.write_text(f"subjectAltName={hosts}\n{limits}", encoding="utf-8")
    _openssl(
        folder, "x509", "-req", "-in", request, "-CA", f"{authority}.pem",
        "-CAkey", f"{authority}.key", "-CAcreateserial", "-out", f"{name}.crt",
        "-days", str(days), "-extfile", extensions.name,
    )  # fmt: skip
    # HBase reads a key in PKCS #8, which this is, and both from one file.
    key, certificate = folder / f"{name}.key", folder / f"{name}.crt"
    both = folder / f"{name}.pem.new"
    both.unlink(missing_ok=True)
    both.touch(0o600)  # Nobody else may read it, from the beginning.
    both.write_text(key.read_text() + certificate.read_text(), encoding="utf-8")
    both.replace(folder / f"{name}.pem")
    for each in (key, certificate, extensions, folder / request):
        each.unlink()
    return folder / f"{name}.pem"


def _openssl(folder: Path, *arguments: str) -> str:
    """Run the command, and return what it prints."""
    try:
        done = subprocess.run(
            ["openssl", *arguments],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as exc:
        raise LocalServerError(
            "certificates can't be made: install openssl, whose command is needed"
        ) from exc
    if done.returncode != 0:
        raise LocalServerError("certificates can't be made", log=done.stderr[-2_000:])
    return done.stdout

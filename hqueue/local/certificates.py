"""Certificates for local servers and their clients, made by the ``openssl`` command."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

from hqueue.errors import LocalServerError

__all__ = ["make_authority", "make_certificate"]

TIMEOUT_S = 60.0
VALID_DAYS = 30
_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


def make_authority(folder: Path, name: str = "ca") -> None:
    """Make an authority: ``<name>.pem``, and its key in ``<name>.key``.

    Raises:
        LocalServerError: openssl is missing, or failed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    days = ("-days", str(VALID_DAYS))
    _openssl(
        folder, "req", "-x509", *_KEY, "-keyout", f"{name}.key", "-out", f"{name}.pem",
        *days, "-subj", f"/CN=hqueue local {name}",
    )  # fmt: skip


def make_certificate(
    folder: Path,
    name: str,
    *,
    hosts: str,
    authority: str = "ca",
    days: Mapping[str, str] | None = None,
) -> None:
    """Make a certificate: ``<name>.pem``, which has the key in it, too.

    Args:
        folder: where it is written, and the authority lies.
        name: its name, and that of its owner.
        hosts: the hosts that it names, as OpenSSL writes them: ``DNS:localhost,IP:127.0.0.1``.
        authority: the name of the authority.
        days: when it is good, as options of ``openssl x509``; for a month from now by default.

    Raises:
        LocalServerError: openssl is missing, or failed.
    """
    request, extensions = f"{name}.csr", folder / f"{name}.ext"
    _openssl(
        folder, "req", *_KEY, "-keyout", f"{name}.key", "-out", request, "-subj", f"/CN={name}"
    )
    extensions.write_text(f"subjectAltName={hosts}\n", encoding="utf-8")
    valid = [part for pair in (days or {"-days": str(VALID_DAYS)}).items() for part in pair]
    _openssl(
        folder, "x509", "-req", "-in", request, "-CA", f"{authority}.pem",
        "-CAkey", f"{authority}.key", "-CAcreateserial", "-out", f"{name}.crt", *valid,
        "-extfile", extensions.name,
    )  # fmt: skip
    # HBase reads a key in PKCS #8, which this is, and both from one file.
    key, certificate = folder / f"{name}.key", folder / f"{name}.crt"
    both = folder / f"{name}.pem.new"
    both.write_text(key.read_text() + certificate.read_text(), encoding="utf-8")
    both.chmod(0o600)
    both.replace(folder / f"{name}.pem")
    for each in (key, certificate, extensions, folder / request):
        each.unlink()


def _openssl(folder: Path, *arguments: str) -> None:
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

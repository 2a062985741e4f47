"""The certificates of roles, of the honest caller and of strangers."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hqueue.net.contexts import TlsContexts
from hqueue.net.tls_files import TlsFiles
from tests.support.certificates import Certificates

__all__ = [
    "EXPIRED",
    "FORGED",
    "HONEST",
    "READER",
    "Proof",
    "context_of",
    "make_certificates",
    "none",
    "proven_by",
]

Proof = Callable[[str], dict[str, Any]]
"""The settings with which a process proves that it is a principal."""
HONEST = "honest"
"""The principals that may call each port begin with this."""
PRINCIPALS = (HONEST, f"{HONEST}-producer", "hub", "worker", "subscriber")
"""Those of the roles and of the honest caller."""
FORGED, EXPIRED, READER = "forged", "expired", "reader"
"""Whose certificates strangers have: that of another authority, with a chain as long as it may be;
one that has expired; and a good one, of a principal without any right."""
CHAIN_BYTES = 90_000


def none(principal: str) -> dict[str, Any]:
    """The proof where none is asked for."""
    return {}


def proven_by(folder: Path) -> Proof:
    """The proof by the certificates of a folder."""

    def proof(principal: str) -> dict[str, Any]:
        delivers = f"{HONEST}*" if principal == "subscriber" else "worker"
        return {
            "tls": True,
            "tls_ca": str(folder / "ca.pem"),
            "tls_certificate": str(folder / f"{principal}.pem"),
            "delivery_principals": delivers,
        }

    return proof


def make_certificates(folder: Path) -> Path:
    """Make them all; the folder."""
    made = Certificates(folder)
    made.authority("others")
    for principal in (*PRINCIPALS, READER):
        made.make(principal)
    made.make(EXPIRED, days=-1)
    forged = made.make(FORGED, authority="others")
    link = (folder / "others.pem").read_text()
    forged.write_text(forged.read_text() + link * (CHAIN_BYTES * 4 // 3 // len(link)))
    return folder


def context_of(folder: Path, name: str | None) -> ssl.SSLContext:
    """What a caller has."""
    shown = None if name is None else str(folder / f"{name}.pem")
    return TlsContexts(TlsFiles(str(folder / "ca.pem"), shown)).current()

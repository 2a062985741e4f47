"""Certificates for tests, and TLS's server side."""

from __future__ import annotations

import ssl
from pathlib import Path

from hqueue.local.certificates import make_authority, make_certificate

__all__ = ["HERE", "make_certificates", "server_context"]

HERE = "127.0.0.1"


def make_certificates(folder: Path) -> Path:
    """Two authorities, and certificates of each kind that one may meet; the folder."""
    make_authority(folder)
    make_authority(folder, "other")
    here = f"IP:{HERE},DNS:localhost"
    make_certificate(folder, "server", hosts=here)
    make_certificate(folder, "client", hosts=here)
    make_certificate(folder, "elsewhere", hosts="DNS:elsewhere.example")
    make_certificate(folder, "expired", hosts=here, days=-1)
    make_certificate(folder, "stranger", hosts=here, authority="other")
    return folder


def server_context(
    folder: Path,
    certificate: str = "server",
    *,
    needs_client: bool = False,
    version: ssl.TLSVersion | None = None,
) -> ssl.SSLContext:
    """What a server has.

    Args:
        folder: of the certificates.
        certificate: the server's.
        needs_client: whether a client must show one.
        version: the only version of TLS that it speaks, if it is one.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / f"{certificate}.pem")
    context.load_verify_locations(folder / "ca.pem")
    if needs_client:
        context.verify_mode = ssl.CERT_REQUIRED
    if version is not None:
        context.minimum_version = context.maximum_version = version
    return context

"""The files for TLS, and the contexts that are made of them."""

from __future__ import annotations

import os
import ssl
import stat
from typing import NamedTuple

from hqueue.net.refusals import RefusedError

__all__ = ["TlsFiles", "make_context", "unreadable_because"]

_FILE_BYTES_MAX = 16 << 20
"""A limit far above the size of a file with all public authorities."""


class TlsFiles(NamedTuple):
    """The files for TLS, in PEM. A file may be None."""

    ca: str | None = None
    """The certificates of the authorities that are trusted; without it, the system's."""
    certificate: str | None = None
    """The certificate of this side, with the chain of authorities that signed it."""
    key: str | None = None
    """Its private key, not encrypted; without it, the key is in the file of the certificate."""


def make_context(
    files: TlsFiles, *, serves: bool = False, demands: bool = True, verify_hostname: bool = True
) -> ssl.SSLContext:
    """Make a context of the files as they are now.

    Args:
        files: the files. A server needs all of them.
        serves: whether it is for a server, which asks each client for a certificate.
        demands: whether a server refuses clients without one.
        verify_hostname: whether a server's certificate must name the host that was called.

    Raises:
        RefusedError: the files can't be read, or are not valid.
    """
    if serves:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.verify_mode = ssl.CERT_REQUIRED if demands else ssl.CERT_OPTIONAL
        # A client proves its identity in each connection, with the certificate of that time.
        context.options |= ssl.OP_NO_TICKET
        context.num_tickets = 0
    else:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = verify_hostname
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    ca, certificate, key = files
    for setting, path in (
        ("tls_certificate", certificate),
        ("tls_certificate", key),
        ("tls_ca", ca),
    ):
        reason = unreadable_because(path) if path else None
        if path and reason is not None:
            raise _unreadable(setting, path, reason)
    if certificate:  # First: some callers give a certificate as its own authority.
        try:
            context.load_cert_chain(certificate, key, _refuse_to_ask)
        except (OSError, ValueError) as exc:
            reason = _lacking(certificate, key) or str(exc)
            raise _unreadable("tls_certificate", certificate, reason) from exc
    if ca:
        try:
            context.load_verify_locations(ca)
        except (OSError, ValueError) as exc:
            raise _unreadable("tls_ca", ca, str(exc)) from exc
    else:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    return context


def unreadable_because(path: str) -> str | None:
    """The reason why a file must not be read: it is a pipe, which would block until a program
    writes to it, or another special file, or it is too large. None if it may be read, or can't be
    found.
    """
    try:
        found = os.stat(path)
    except OSError:
        return None  # OpenSSL says why.
    if not stat.S_ISREG(found.st_mode):
        return f"{path} is not a regular file"
    return f"{path} is too large" if found.st_size > _FILE_BYTES_MAX else None


def _refuse_to_ask() -> str:
    """Refuse an encrypted key: OpenSSL would ask for its password at the terminal."""
    raise ValueError("the private key is encrypted: store it without a password")


def _lacking(certificate: str, key: str | None) -> str | None:
    """What the files of a certificate lack: OpenSSL does not say."""
    key = key or certificate
    for path, what, mark in (
        (certificate, "a certificate", b"-----BEGIN CERTIFICATE-----"),
        (key, "a private key", b"PRIVATE KEY-----"),
    ):
        try:
            with open(path, "rb") as opened:
                if mark not in opened.read():
                    return f"{path} does not contain {what} in PEM"
        except OSError as exc:
            return f"{path} can't be read: {exc.strerror}"
    return None


def _unreadable(setting: str, path: str, reason: str) -> RefusedError:
    return RefusedError(
        f"{setting} can't be used: check that the files exist, can be read by this user, and are "
        "certificates and a private key in PEM that belong together",
        setting=setting,
        path=path,
        reason=reason,
    )

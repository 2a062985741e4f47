"""Checks that servers listen, and that this client accepts their certificates."""

from __future__ import annotations

import ssl
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from hqueue.doctor.certificates import end_of
from hqueue.doctor.findings import OWN_FILES, Finding, ok, said, wrong
from hqueue.net.contexts import TlsContexts
from hqueue.net.refusals import RefusedError
from hqueue.net.sockets import shake
from hqueue.runtime.sockets import open_connection
from hqueue.settings.addresses import Address

__all__ = ["look_at_peers"]

_OTHER_HOST = (62, 64)
"""OpenSSL's numbers: ``X509_V_ERR_HOSTNAME_MISMATCH``, ``X509_V_ERR_IP_ADDRESS_MISMATCH``."""


def look_at_peers(
    check: str, what: str, addresses: Iterable[Address], tls: TlsContexts | None, timeout_s: float
) -> Iterator[Finding]:
    """Connect to servers, and shake hands.

    Args:
        check: the check.
        what: what the report calls such a server.
        addresses: where they listen.
        tls: the TLS contexts; None for connections in clear.
        timeout_s: the time limit of each.
    """
    for address in dict.fromkeys(addresses):
        yield _look_at(check, f"{what} {address}", address, tls, timeout_s)


def _look_at(
    check: str, what: str, address: Address, tls: TlsContexts | None, timeout_s: float
) -> Finding:
    try:
        certificate = _certificate_at(address, tls, timeout_s)
    except RefusedError as exc:
        return _of_refusal(check, what, address, exc)
    except OSError as exc:
        return wrong(
            check,
            f"{what} can't be reached: {exc or type(exc).__name__}",
            "check that it runs, listens there and speaks TLS as the settings say, and that a "
            "firewall lets this host in",
        )
    if certificate is None:
        return ok(check, f"{what} can be reached")
    return end_of(
        check, f"the certificate of {what}", certificate, "have another one made for that server"
    )


def _certificate_at(
    address: Address, tls: TlsContexts | None, timeout_s: float
) -> Mapping[str, Any] | None:
    """Return the certificate that a server shows; None in clear."""
    opened = open_connection(address, timeout_s)
    if tls is None:
        opened.close()
        return None
    opened.settimeout(timeout_s)
    with shake(opened, tls, address.host) as shaken:
        return shaken.getpeercert() or {}


def _of_refusal(check: str, what: str, address: Address, error: RefusedError) -> Finding:
    """Say who did not accept whom, and which hosts a certificate for other hosts names."""
    cause = error.__cause__
    if not isinstance(cause, ssl.SSLCertVerificationError):
        is_own = "setting" in error.facts
        return wrong(
            check,
            f"{what}: {said(error)}",
            OWN_FILES if is_own else "see the log of that server, which says more",
        )
    if cause.verify_code not in _OTHER_HOST:
        return wrong(
            check,
            f"{what}: its certificate is not accepted: {cause.verify_message}",
            "add the authority that signed it to tls_ca, or have another one made for that server",
        )
    return wrong(
        check,
        f"{what}: its certificate does not name that host: {cause.verify_message}",
        f"call it by a name in its certificate, which `openssl s_client -connect {address}` shows, "
        "or have one made for that server whose subjectAltName names it",
    )

"""Servers that are called: whether they listen, and whether their certificate is good."""

from __future__ import annotations

import ssl
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from hqueue.doctor.certificates import end_of
from hqueue.doctor.findings import Finding, ok, wrong
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
    """Call servers, and shake hands.

    Args:
        check: the check.
        what: what they are.
        addresses: where they listen.
        tls: what TLS is spoken with; in clear if None.
        timeout_s: the bound for each.
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
            "see whether it runs and listens there, speaks TLS as the settings say, and whether a "
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
    """The certificate that a server shows; None in clear."""
    opened = open_connection(address, timeout_s)
    if tls is None:
        opened.close()
        return None
    opened.settimeout(timeout_s)
    with shake(opened, tls, address.host) as shaken:
        return shaken.getpeercert() or {}


def _of_refusal(check: str, what: str, address: Address, error: RefusedError) -> Finding:
    """Who did not accept whom; of a certificate for other hosts, for which."""
    cause = error.__cause__
    if not isinstance(cause, ssl.SSLCertVerificationError):
        return wrong(check, f"{what}: {error.text}", "see the log of that server, which says more")
    if cause.verify_code not in _OTHER_HOST:
        return wrong(
            check,
            f"{what}: its certificate is not accepted: {cause.verify_message}",
            "put the authority that signed it into tls_ca, or have another one made for that "
            "server",
        )
    return wrong(
        check,
        f"{what}: its certificate does not name that host: {cause.verify_message}",
        "call it by a name that its certificate has, which `openssl s_client -connect "
        f"{address}` shows, or have one made for that server whose subjectAltName names it",
    )

"""Checks that servers listen, and that this client accepts their certificates."""

from __future__ import annotations

import ssl
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from hqueue.doctor.certificates import end_of
from hqueue.doctor.findings import OWN_FILES, Finding, ok, said, wrong
from hqueue.net.alerts import is_not_tls
from hqueue.net.contexts import TlsContexts
from hqueue.net.endpoints import Met, meet
from hqueue.net.refusals import RefusedError
from hqueue.net.sockets import shake
from hqueue.runtime.sockets import open_connection
from hqueue.settings.addresses import Address

__all__ = ["Peers", "look_at_peers"]

_OTHER_HOST = (62, 64)
"""OpenSSL's numbers: ``X509_V_ERR_HOSTNAME_MISMATCH``, ``X509_V_ERR_IP_ADDRESS_MISMATCH``."""


_UNKNOWN = (Met.SILENT, Met.OTHER)


class Peers(NamedTuple):
    """Describes servers of one kind, and how this client calls them."""

    check: str
    """The check."""
    what: str
    """What the report calls such a server."""
    tls: TlsContexts | None
    """The TLS contexts; None for connections in clear."""
    switch: str
    """The setting that turns TLS on."""
    timeout_s: float
    """The time limit of each."""
    kind: Met | None = None
    """What listens there, if it is known by its answers in clear."""


def look_at_peers(peers: Peers, addresses: Iterable[Address]) -> Iterator[Finding]:
    """Connect to servers, shake hands, and see in clear whether they are of the right kind. Where
    one side alone speaks TLS, the finding names the setting.

    Args:
        peers: what they are.
        addresses: where they listen.
    """
    for address in dict.fromkeys(addresses):
        yield _look_at(peers, f"{peers.what} {address}", address)


def _look_at(peers: Peers, what: str, address: Address) -> Finding:
    check = peers.check
    try:
        opened = open_connection(address, peers.timeout_s)
    except OSError as exc:
        return wrong(
            check,
            f"{what} can't be reached: {exc or type(exc).__name__}",
            "check that it runs and listens there, and that a firewall lets this host in",
        )
    if peers.tls is None:
        opened.close()
        return _look_in_clear(peers, what, address)
    opened.settimeout(peers.timeout_s)
    try:
        with shake(opened, peers.tls, address.host) as shaken:
            certificate: Mapping[str, Any] = shaken.getpeercert() or {}
    except RefusedError as exc:
        return _of_refusal(peers, what, address, exc)
    except OSError as exc:
        met = meet(address, peers.timeout_s, peers.kind)
        if met is not Met.TLS and met not in _UNKNOWN:
            return _without_tls(peers, f"{what} does not speak TLS: {met.value} answers there")
        return wrong(
            check,
            f"{what} does not shake hands: {exc or type(exc).__name__}",
            f"check that it speaks TLS there, which {peers.switch} turns on in this client; its "
            "log says more",
        )
    return end_of(
        check, f"the certificate of {what}", certificate, "have another one made for that server"
    )


def _look_in_clear(peers: Peers, what: str, address: Address) -> Finding:
    met = meet(address, peers.timeout_s, peers.kind)
    if met is Met.TLS:
        return wrong(
            peers.check,
            f"{what} speaks TLS, and this client calls it in clear",
            f"set {peers.switch}, and tls_ca if the system does not trust its authority; or "
            "correct the address",
        )
    if peers.kind is not None and met is not peers.kind and met not in _UNKNOWN:
        return wrong(
            peers.check,
            f"{what} can't be reached: {met.value} answers there",
            "correct the address in the settings",
        )
    return ok(peers.check, f"{what} can be reached")


def _without_tls(peers: Peers, found: str) -> Finding:
    return wrong(peers.check, found, f"turn {peers.switch} off, or correct the address")


def _of_refusal(peers: Peers, what: str, address: Address, error: RefusedError) -> Finding:
    """Say who did not accept whom, and which hosts a certificate for other hosts names."""
    check, cause = peers.check, error.__cause__
    if cause is not None and is_not_tls(cause):
        return _without_tls(peers, f"{what} does not speak TLS: {said(error)}")
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

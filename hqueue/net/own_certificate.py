"""Reads this process's own certificate by a handshake with itself, in memory: Python's library
shows the contents of a certificate only to a peer that has accepted it.
"""

from __future__ import annotations

import ipaddress
import math
import ssl
from collections.abc import Mapping
from typing import Any, NamedTuple

from hqueue.net.principals import PrincipalRules
from hqueue.net.refusals import RefusedError
from hqueue.net.tls_files import TlsFiles, make_context

__all__ = [
    "UNFIT", "OwnCertificate", "Shaken", "dates_of", "examine", "read_certificate", "shake_hands",
]  # fmt: skip

UNFIT = 26
"""OpenSSL's number for a certificate that is not for this use: ``X509_V_ERR_INVALID_PURPOSE``."""

_AT_ANY_TIME = 0x200000
"""``X509_V_FLAG_NO_CHECK_TIME``, which Python has no name for."""

_ROUNDS_MAX = 16

Shaken = tuple[Mapping[str, Any], Mapping[str, Any]]
"""The server's certificate as the client saw it, and the client's as the server saw it, as
`ssl.SSLSocket.getpeercert` returns them. Empty if a side did not ask for a certificate."""


def shake_hands(client: ssl.SSLContext, server: ssl.SSLContext, host: str) -> Shaken:
    """Have a client and a server shake hands in memory.

    Args:
        client, server: their contexts.
        host: the server's host, as the client calls it.

    Raises:
        ssl.SSLError: one side does not accept the other.
    """
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    left = [
        client.wrap_bio(to_client, to_server, server_hostname=host),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    both = tuple(left)
    for _ in range(_ROUNDS_MAX):
        for side in list(left):
            try:
                side.do_handshake()
                left.remove(side)
            except ssl.SSLWantReadError:
                pass
        if not left:
            break
    seen_by_client, seen_by_server = (side.getpeercert() or {} for side in both)
    return seen_by_client, seen_by_server


def read_certificate(certificate: str, key: str | None) -> Mapping[str, Any]:
    """Read a certificate, as `ssl.SSLSocket.getpeercert` returns it, even if its authority is not
    trusted, or if it has expired.

    Args:
        certificate, key: the files, as in `TlsFiles`.

    Raises:
        RefusedError: the files can't be read, don't belong together, or are a certificate neither
            for servers nor for clients.
    """
    files = TlsFiles(certificate, certificate, key)
    for is_servers in (True, False):
        client, server = _both_sides(files)
        for each in (client, server):
            each.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        (server if is_servers else client).verify_mode = ssl.CERT_NONE
        try:
            seen = shake_hands(client, server, "localhost")
        except ssl.SSLError as exc:
            reason = str(exc)
        else:
            return seen[0] if is_servers else seen[1]
    raise RefusedError(
        "tls_certificate is neither for servers nor for clients: have its authority make one whose "
        "extendedKeyUsage has both serverAuth and clientAuth, or that has none",
        path=certificate,
        reason=reason,
    )


class OwnCertificate(NamedTuple):
    """A certificate of this process, as others see it."""

    begin_s: float
    end_s: float
    """Since 1970."""
    faults: frozenset[str] = frozenset()
    """Why others with the same settings would not accept the certificate in its roles, at any time.
    """

    def check(
        self, path: str, now_s: float, *, earlier_faults: frozenset[str] = frozenset()
    ) -> None:
        """Check that others would accept the certificate now.

        Args:
            path: the path of its file.
            now_s: the current time, in seconds since 1970.
            earlier_faults: the faults of the certificate that it replaces. It may have them, too.

        Raises:
            RefusedError: others would not accept the certificate. If it is not valid yet, the
                error's fact ``begins_s`` says when it will be.
        """
        if not self.begin_s <= now_s < self.end_s:
            reason = "it has expired" if now_s >= self.end_s else "it is not valid yet"
        else:
            reason = "; ".join(sorted(self.faults - earlier_faults))
        if reason:
            begins_s = self.begin_s if now_s < self.begin_s else math.inf
            raise RefusedError(
                "others would not accept this tls_certificate: check its dates and this machine's "
                "clock, that an authority in tls_ca has signed it, that its extendedKeyUsage, if "
                "it has one, has serverAuth and clientAuth, that its subjectAltName names the host "
                "of this process, and that tls_principal_rules make a principal of it",
                setting="tls_certificate",
                path=path,
                reason=reason,
                begins_s=begins_s,
            )


def examine(
    files: TlsFiles, *, serves: bool, rules: PrincipalRules | None = None, host: str | None = None
) -> OwnCertificate:
    """Examine a certificate of this process in its roles.

    Args:
        files: the files, with a certificate.
        serves: whether the certificate is a server's; if not, it is a client's.
        rules: make principals at HQueue's own ports. A certificate for these must be fit for
            servers and for clients, and make a principal. None for other servers.
        host: the host under which others call this process, which the certificate must name. Empty
            if only they know the host: then the certificate must name any. None if no others call
            this process, or they don't check names.

    Raises:
        RefusedError: as `read_certificate`.
    """
    assert files.certificate is not None
    certificate = read_certificate(files.certificate, files.key)
    faults = set()
    if host is not None and not _names(certificate, host):
        faults.add(f"it does not name this host, {host}" if host else "it names no host")
    for is_servers in (serves,) if rules is None else (True, False):
        client, server = _both_sides(files)
        (server if is_servers else client).verify_mode = ssl.CERT_NONE
        try:
            shake_hands(client, server, "localhost")
        except ssl.SSLError as exc:
            role = "a server" if is_servers else "a client"
            faults.add(f"as {role}: {getattr(exc, 'verify_message', '') or exc}")
    if rules is not None:
        try:
            rules.principal_of(certificate)
        except RefusedError as exc:
            faults.add(exc.text)
    return OwnCertificate(*dates_of(certificate), frozenset(faults))


def _names(certificate: Mapping[str, Any], host: str) -> bool:
    """Whether a certificate names a host, or any host if that is empty."""
    called = host.lower().removesuffix(".")
    for kind, value in certificate.get("subjectAltName", ()):
        name = value.lower()
        if kind == "IP Address" and (not host or _is_same_address(name, called)):
            return True
        wild = name.startswith("*.") and called.partition(".")[2] == name[2:]
        if kind == "DNS" and (not host or wild or name == called):
            return True
    return False


def _is_same_address(one: str, other: str) -> bool:
    try:
        return ipaddress.ip_address(one.strip()) == ipaddress.ip_address(other.strip("[]"))
    except ValueError:
        return False


def dates_of(certificate: Mapping[str, Any]) -> tuple[float, float]:
    """The beginning and the end of a certificate's validity, in seconds since 1970."""
    begin_s, end_s = (
        ssl.cert_time_to_seconds(certificate[name]) for name in ("notBefore", "notAfter")
    )
    return begin_s, end_s


def _both_sides(files: TlsFiles) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """A client's and a server's context for which dates and hosts don't matter."""
    client, server = (
        make_context(files, serves=serves, verify_hostname=False) for serves in (False, True)
    )
    for each in (client, server):
        each.verify_flags |= _AT_ANY_TIME
    return client, server

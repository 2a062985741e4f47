"""Checks this process's certificate: its dates, its names, its uses, and who signed it."""

from __future__ import annotations

import dataclasses
import socket
import ssl
from collections.abc import Iterator, Mapping
from typing import Any

from hqueue.doctor.findings import Finding, ok, said, warning, wrong
from hqueue.doctor.subject import Subject
from hqueue.net.contexts import TlsContexts
from hqueue.net.own_certificate import UNFIT, dates_of, read_certificate, shake_hands
from hqueue.net.principals import PrincipalRules, distinguished_name
from hqueue.net.refusals import RefusedError
from hqueue.net.tls_files import TlsFiles, unreadable_because
from hqueue.runtime.clock import SYSTEM_CLOCK
from hqueue.settings.connection import Settings

__all__ = ["check_certificates", "end_of", "names_in", "tls_of"]

DAY_S = 86_400
WARNED_DAYS_MAX = 14
"""The doctor warns of a certificate this long before it expires; of one for less than ten weeks,
when a fifth of its time is left."""

_RENEW = "have the authority make another one, and move it to the file's name: no restart is needed"


def check_certificates(subject: Subject) -> Iterator[Finding]:
    """Check the authorities and the certificate that the settings name."""
    settings = subject.settings
    if settings.tls_ca is not None:
        yield from _look_at_authorities(settings.tls_ca)
    if settings.tls_certificate is None:
        if settings.hbase_tls:
            yield warning(
                "certificate",
                "this process has no certificate, and HBase asks for one by default",
                "set tls_certificate, unless hbase.server.netty.tls.client.auth.mode is NONE",
            )
        return
    try:
        certificate = read_certificate(settings.tls_certificate, settings.tls_key)
    except RefusedError as exc:
        yield wrong(
            "certificate",
            said(exc),
            "see `openssl x509 -text -in FILE`, and make the files as "
            "docs/secure-a-cluster.md shows",
        )
        return
    subject_name = distinguished_name(certificate.get("subject", ()))
    dated = end_of("certificate", f"the certificate of {subject_name}", certificate, _RENEW)
    yield dated
    if not settings.tls:
        return
    if settings.tls_optional:
        yield warning(
            "certificate",
            "this process's ports also serve callers without TLS, as the principal 'anonymous'",
            "set tls_optional to false when all callers speak TLS",
        )
    yield _principal(settings, certificate)
    yield _names(certificate)
    if _is_in_time(certificate):
        yield _accepted_by_itself(settings)


def tls_of(settings: Settings, switch: str = "tls", *, serves: bool = False) -> TlsContexts:
    """Make the TLS contexts with which this process calls servers, or serves.

    Args:
        settings: say which files.
        switch: the setting that turns TLS on, for errors.
        serves: whether they are for this process's own ports.
    """
    files = TlsFiles(settings.tls_ca, settings.tls_certificate, settings.tls_key)
    verifies = settings.tls_verify_hostname
    return TlsContexts(files, serves=serves, verify_hostname=verifies, switch=switch)


def end_of(check: str, what: str, certificate: Mapping[str, Any], advice: str) -> Finding:
    """Judge the dates of a certificate, as `ssl.SSLSocket.getpeercert` gives them."""
    begin_s, end_s = dates_of(certificate)
    now_s = SYSTEM_CLOCK.wall_ms() / 1e3
    if now_s < begin_s:
        return wrong(
            check,
            f"{what} is not valid before {certificate['notBefore']}",
            f"check this machine's clock; or {advice}",
        )
    if now_s >= end_s:
        return wrong(check, f"{what} expired on {certificate['notAfter']}", advice)
    left_s, whole_s = end_s - now_s, end_s - begin_s
    if left_s < min(WARNED_DAYS_MAX * DAY_S, whole_s / 5):
        return warning(
            check, f"{what} expires in {_days(left_s)}, on {certificate['notAfter']}", advice
        )
    return ok(check, f"{what} is valid for {_days(left_s)}")


def names_in(certificate: Mapping[str, Any]) -> list[str]:
    """List the hosts that a certificate names."""
    return [
        value
        for kind, value in certificate.get("subjectAltName", ())
        if kind in ("DNS", "IP Address")
    ]


def _days(seconds: float) -> str:
    hours = int(seconds // 3600)
    return f"{hours // 24} days" if hours >= 48 else f"{hours} hours"


def _look_at_authorities(path: str) -> Iterator[Finding]:
    if unreadable_because(path) is not None:
        return  # `check_files` reports the file.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(path)
    except (OSError, ValueError) as exc:
        yield wrong(
            "certificate", f"tls_ca: {path} has no certificates that can be read: {exc}",
            "put the authorities' certificates into it, in PEM",
        )  # fmt: skip
        return
    found = context.get_ca_certs()
    if not found:
        yield wrong(
            "certificate",
            f"tls_ca: {path} has certificates, but no authority's",
            "put the certificate of the authority that signed the others into it, not one of the "
            "others",
        )
    for each in found:
        name = distinguished_name(each["subject"])  # type: ignore[arg-type]
        yield end_of(
            "certificate", f"the authority {name}", each,
            "have a new authority made, add it to tls_ca everywhere, beside this one, then have "
            "it sign the certificates",
        )  # fmt: skip


def _is_in_time(certificate: Mapping[str, Any]) -> bool:
    begin_s, end_s = dates_of(certificate)
    return begin_s <= SYSTEM_CLOCK.wall_ms() / 1e3 < end_s


def _principal(settings: Settings, certificate: Mapping[str, Any]) -> Finding:
    try:
        name = PrincipalRules(settings.tls_principal_rules).principal_of(certificate)
    except RefusedError as exc:
        return wrong(
            "certificate",
            f"{exc.text} [subject={exc.facts.get('subject')}]",
            "change tls_principal_rules of the processes that this one calls, or the certificate's "
            "subject",
        )
    return ok("certificate", f"tls_principal_rules makes the principal {name!r} of this process")


def _names(certificate: Mapping[str, Any]) -> Finding:
    """Check that the certificate names this host, under which others call this process."""
    names = names_in(certificate)
    host = socket.gethostname()
    called = {host, socket.getfqdn(host)} | _addresses_of(host)
    if not names:
        return wrong(
            "certificate",
            "the certificate names no host",
            f"have one made whose subjectAltName names this host: DNS:{host}",
        )
    if any(_matches(name, each) for name in names for each in called):
        return ok("certificate", f"the certificate names this host: {', '.join(names)}")
    return warning(
        "certificate",
        f"the certificate names {', '.join(names)}, but not this host, {host}",
        "have one made whose subjectAltName has the name or address under which others call this "
        "process; a program that does not subscribe, and so is never called, needs none",
    )


def _addresses_of(host: str) -> set[str]:
    try:
        return {str(info[4][0]) for info in socket.getaddrinfo(host, None)}
    except OSError:
        return set()


def _matches(name: str, host: str) -> bool:
    """Return whether a name in a certificate matches a host: ``*.example.com`` one level below."""
    name, host = name.lower(), host.lower().removesuffix(".")
    if name.startswith("*."):
        return host.partition(".")[2] == name[2:]
    return name == host


def _accepted_by_itself(settings: Settings) -> Finding:
    """Check that another process with the same settings would accept this one, as a client and as a
    server.
    """
    settings = dataclasses.replace(settings, tls_verify_hostname=False)  # `_names` checks names.
    try:
        client, server = (tls_of(settings, serves=serves).current() for serves in (False, True))
        shake_hands(client, server, "localhost")
    except RefusedError as exc:
        return wrong("certificate", said(exc), "correct the setting")
    except ssl.SSLCertVerificationError as exc:
        if exc.verify_code == UNFIT:
            return wrong(
                "certificate",
                "the certificate is not for both servers and clients",
                "have one made whose extendedKeyUsage has both serverAuth and clientAuth, or that "
                "has no extendedKeyUsage",
            )
        return wrong(
            "certificate",
            f"processes with this tls_ca don't accept the certificate: {exc.verify_message}",
            "add the certificate of the authority that signed it to tls_ca everywhere, and any "
            "intermediate certificates to tls_certificate, after its own",
        )
    except ssl.SSLError as exc:
        return wrong(
            "certificate",
            f"a handshake with this certificate fails: {exc}",
            "see `openssl x509 -text -in FILE`, and make the files as "
            "docs/secure-a-cluster.md shows",
        )
    return ok("certificate", "processes with the same settings accept the certificate")

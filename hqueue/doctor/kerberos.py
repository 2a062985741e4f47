"""Checks Kerberos: the keytab, the ticket, and the KDC."""

from __future__ import annotations

import time

from hqueue.doctor.findings import FACT_LENGTH_MAX, Finding, Found, ok, warning, wrong
from hqueue.doctor.subject import Subject
from hqueue.net.kdc import KdcUnavailableError
from hqueue.net.kerberos import Login
from hqueue.net.keytab import principals_in
from hqueue.net.refusals import RefusedError
from hqueue.settings.connection import Settings

__all__ = ["check_kerberos"]

NO_TICKET = "this client has no ticket"

SOON_S = 600
"""The doctor warns of a ticket of ``kinit`` that is valid for less than this."""


def check_kerberos(subject: Subject) -> Found:
    """Check that this client has keys or a ticket, and that the KDC accepts them."""
    settings = subject.settings
    if not subject.is_proven:
        return None
    if settings.kerberos_keytab is not None:
        finding = _look_at_keytab(settings.kerberos_keytab, settings.kerberos_principal)
        yield finding
    ends_s = time.monotonic() + settings.operation_timeout_ms / 1e3
    try:
        principal, left_s = _login(settings).identity(ends_s)
    except RefusedError as exc:
        reason = str(exc.facts.get("reason", exc.facts.get("path", "")))[:FACT_LENGTH_MAX]
        yield wrong(
            "kerberos",
            f"{exc.text} [{reason}]" if reason else exc.text,
            "correct kerberos_config, or /etc/krb5.conf where it is not set"
            if exc.facts.get("setting") == "kerberos_config"
            else "run kinit, or get a new keytab: `klist` and `klist -k FILE` show what this "
            "client has"
            if settings.kerberos_keytab is None
            else "compare `klist -k FILE` with kerberos_principal, and get a new keytab",
        )
        return NO_TICKET
    except KdcUnavailableError as exc:
        facts = ", ".join(f"{name}={fact}" for name, fact in exc.facts.items())
        yield wrong(
            "kerberos",
            f"the KDC can't be reached [{facts}]",
            "check that the KDC runs, and its host and port in kerberos_config or /etc/krb5.conf",
        )
        return NO_TICKET
    what = f"the ticket of {principal} is valid for {_span(left_s)}"
    if settings.kerberos_keytab is None and left_s < SOON_S:
        yield warning("kerberos", what, "run kinit again in time, or set kerberos_keytab")
    else:
        yield ok("kerberos", what)
    return None


def _login(settings: Settings) -> Login:
    return Login(
        settings.kerberos_principal,
        settings.kerberos_keytab,
        settings.kerberos_ticket_cache,
        settings.kerberos_config,
    )


def _look_at_keytab(path: str, principal: str | None) -> Finding:
    try:
        found = principals_in(path)
    except OSError as exc:
        return wrong(
            "kerberos", f"the keytab can't be read: {exc.strerror}", "correct kerberos_keytab"
        )
    except ValueError as exc:
        return wrong(
            "kerberos",
            f"{path} can't be used: {exc}",
            "have a keytab made: `kadmin ktadd -k FILE PRINCIPAL`",
        )
    names = ", ".join(found) or "nobody"
    wanted = principal or next(iter(found), None)
    if wanted is None or not any(each == wanted or _name(each) == wanted for each in found):
        return wrong(
            "kerberos",
            f"the keytab {path} has keys of {names}, but none of {wanted}",
            "correct kerberos_principal, or have the key added: `kadmin ktadd -k FILE PRINCIPAL`",
        )
    return ok("kerberos", f"the keytab has keys of {names}")


def _name(principal: str) -> str:
    """Return a principal's name without its realm."""
    return principal.rpartition("@")[0]


def _span(seconds: int) -> str:
    minutes = seconds // 60
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min"

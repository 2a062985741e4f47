"""Says that a KDC gives no answer, and which one: in an error, and once in the log of a process."""

from __future__ import annotations

import ctypes as c
import functools
import itertools
from collections.abc import Mapping
from typing import Any

from hqueue.runtime.causes import causes
from hqueue.runtime.logs import Log
from hqueue.runtime.seldom import FaultLog

__all__ = ["KdcUnavailableError", "kdc_error_of", "log_answered", "log_unavailable"]

logger = Log(__name__)

_faults = FaultLog(logger)
"""Of all clients of the process, which has one configuration of Kerberos."""

_LIBRARY = "libkrb5.so.3"


class KdcUnavailableError(ConnectionError):
    """The KDC gave no answer, can't be reached, or is in trouble, so that this client can't prove
    who it is. That may pass. No server was asked for anything.

    Args:
        reason: what went wrong, in the library's words.
        principal: the client's, which names the realm; None, or without a realm, for the default.
    """

    def __init__(self, reason: str, principal: str | None = None) -> None:
        self.text = (
            "the KDC can't be reached, so this client can't prove who it is: check that the KDC "
            "runs, and its host and port in kerberos_config or /etc/krb5.conf"
        )
        self.realm, kdcs = _find_kdcs(_realm_in(principal))
        facts = {"realm": self.realm, "kdc": ", ".join(kdcs), "reason": reason}
        self.facts: Mapping[str, str] = {name: fact for name, fact in facts.items() if fact}
        """The realm, its KDCs as far as the configuration names them, and the reason."""
        shown = "; ".join(f"{name}: {fact}" for name, fact in self.facts.items())
        super().__init__(f"{self.text} ({shown})")


def kdc_error_of(error: BaseException | None) -> KdcUnavailableError | None:
    """Return the error of a KDC that an error is, or that it comes from; None if it is another."""
    return next((each for each in causes(error) if isinstance(each, KdcUnavailableError)), None)


def log_unavailable(error: KdcUnavailableError) -> None:
    """Log that a realm's KDC gave no answer, unless that was logged before, and it has given none
    since.
    """
    _faults.met(error.realm, "%s; trying again", error)


def log_answered(principal: str | None) -> None:
    """Log that the KDC of a client's realm answers again, if it gave no answer before."""
    if _faults.count:
        realm, _ = _find_kdcs(_realm_in(principal))
        _faults.over(realm, "the KDC of the realm %s answers again", realm)


def _realm_in(principal: str | None) -> str:
    return (principal or "").partition("@")[2]


@functools.cache
def _library() -> Any:
    """Load Kerberos' own library, which that of GSS-API stands on.

    Raises:
        OSError: it is not there.
    """
    return c.CDLL(_LIBRARY)


def _find_kdcs(realm: str) -> tuple[str, list[str]]:
    """Return a realm, the default one if it is empty, and the KDCs that the library's configuration
    names; empty where it can't be read, or leaves them to DNS. Asks no name service.
    """
    context, profile = c.c_void_p(), c.c_void_p()
    default, values = c.c_char_p(), c.POINTER(c.c_char_p)()
    try:
        library = _library()
        if library.krb5_init_context(c.byref(context)):
            return realm, []
    except (OSError, AttributeError):
        return realm, []
    try:
        if not realm and not library.krb5_get_default_realm(context, c.byref(default)):
            realm = (default.value or b"").decode(errors="replace")
        names = (c.c_char_p * 4)(b"realms", realm.encode(), b"kdc", None)
        if library.krb5_get_profile(context, c.byref(profile)) or library.profile_get_values(
            profile, names, c.byref(values)
        ):
            return realm, []
        found = itertools.takewhile(bool, map(values.__getitem__, itertools.count()))
        return realm, [each.decode(errors="replace") for each in found]
    finally:
        if values:
            library.profile_free_list(values)
        if profile:
            library.profile_release(profile)
        if default:
            library.krb5_free_default_realm(context, default)
        library.krb5_free_context(context)

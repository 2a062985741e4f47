"""Writes the audit: a line for each refusal, and for each act of an administrator."""

from __future__ import annotations

import json

from hqueue.net.principals import ANONYMOUS
from hqueue.runtime.logs import Log
from hqueue.runtime.seldom import EachLog, SeldomLog

__all__ = ["Audit"]

logger = Log("hqueue.audit")


class Audit:
    """Writes to the logger ``hqueue.audit``: who, from where, what, on what, allowed or not. It
    quotes what callers say of themselves, so that no caller can forge a line. Callers that have
    not authenticated, or wait for no answer, cause at most one line a second; a principal causes at
    most 10 lines at once, and one a second after that. Thread-safe.
    """

    def __init__(self) -> None:
        self._seldom = SeldomLog(logger)
        self._each = EachLog(logger)

    def refused(
        self,
        action: str,
        who: str | None,
        host: str,
        reason: str,
        **on: str | None,
    ) -> None:
        """Write that something was refused.

        Args:
            action: what.
            who: the principal; None if the caller has not authenticated.
            host: the caller's IP address.
            reason: why.
            on: on what: kinds and names.
        """
        line = _line(action, who, host, on, "no", reason=reason)
        if who is None:
            self._seldom.warning("%s", line)
        else:
            self._each.warning(who, "%s", line)

    def refused_for_now(
        self, action: str, who: str | None, host: str, reason: str, **on: str | None
    ) -> None:
        """As `refused`, for what may be refused all the time: at most one line a second."""
        self._seldom.warning("%s", _line(action, who, host, on, "no", reason=reason))

    def did(self, action: str, who: str | None, host: str, **on: str | None) -> None:
        """Write that something was done that only administrators may do. As `refused`."""
        logger.info("%s", _line(action, who, host, on, "yes"))


def _line(
    action: str, who: str | None, host: str, on: dict[str, str | None], allowed: str, **more: str
) -> str:
    facts = {"who": ANONYMOUS if who is None else who, "from": host, "action": action, **on}
    facts |= {"allowed": allowed, **more}
    return " ".join(f"{name}={json.dumps(fact)}" for name, fact in facts.items() if fact)

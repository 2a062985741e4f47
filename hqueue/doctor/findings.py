"""Describes what a check finds: a level, what was found, and what to do."""

from __future__ import annotations

import enum
from collections.abc import Generator
from typing import NamedTuple

from hqueue.errors import (
    AuthenticationError,
    HQueueError,
    RequestRefusedError,
    StoreUnavailableError,
)
from hqueue.net.refusals import RefusedError

__all__ = ["OWN_FILES", "Finding", "Found", "Level", "of_error", "ok", "said", "warning", "wrong"]

FACT_LENGTH_MAX = 300

OWN_FILES = "correct this setting or its file: no server was asked"
"""What to do if a file of this client can't be used."""


class Level(enum.Enum):
    """Says how bad a finding is."""

    OK = "ok"
    WARNING = "warning"
    """It works now, and may not soon, or elsewhere."""
    WRONG = "wrong"
    """It does not work, or is not safe."""


class Finding(NamedTuple):
    """One line of the report."""

    check: str
    level: Level
    found: str
    advice: str = ""
    """What to do; nothing where all is well."""


Found = Generator[Finding, None, "str | None"]
"""What a check finds that others build on. It returns why they can say nothing, or None."""


def ok(check: str, found: str) -> Finding:
    return Finding(check, Level.OK, found)


def warning(check: str, found: str, advice: str) -> Finding:
    return Finding(check, Level.WARNING, found, advice)


def wrong(check: str, found: str, advice: str) -> Finding:
    return Finding(check, Level.WRONG, found, advice)


def of_error(check: str, error: HQueueError, advice: str = "", away: str = "") -> Finding:
    """Make a finding of an error.

    Args:
        check: the check.
        error: the error.
        advice: what to do, if this client lacks the right or a setting is wrong.
        away: what to do if a server gave no answer.
    """
    if isinstance(error, AuthenticationError) and "setting" in error.facts:
        advice = OWN_FILES
    elif isinstance(error, AuthenticationError):
        advice = (
            "check what this line names; the tables of AuthenticationError in "
            "docs/security-hbase.md and docs/security-zookeeper.md say where to look, and the "
            "server's log says more"
        )
    elif isinstance(error, RequestRefusedError):
        advice = advice or "grant this principal the right, or use a principal that has it"
    elif isinstance(error, StoreUnavailableError):
        advice = away or "check that the server runs, and that no firewall keeps this host out"
    return wrong(check, said(error), advice or "correct what this line names")


def said(error: HQueueError | RefusedError) -> str:
    """Write an error's text and its facts in one line."""
    facts = ", ".join(
        f"{name}={str(fact).splitlines()[0][:FACT_LENGTH_MAX]}"
        for name, fact in error.facts.items()
        if str(fact)
    )
    return f"{error.text} [{facts}]" if facts else error.text

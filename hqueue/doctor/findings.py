"""What a check says."""

from __future__ import annotations

import enum
from typing import NamedTuple

from hqueue.errors import (
    AuthenticationError,
    HQueueError,
    RequestRefusedError,
    StoreUnavailableError,
)

__all__ = ["Finding", "Level", "of_error", "ok", "said", "warning", "wrong"]

FACT_LENGTH_MAX = 300


class Level(enum.Enum):
    """How bad it is."""

    OK = "ok"
    WARNING = "warning"
    """It works now, and may not soon, or elsewhere."""
    WRONG = "wrong"
    """It does not work, or is not safe."""


class Finding(NamedTuple):
    """A line of the report."""

    check: str
    level: Level
    found: str
    advice: str = ""
    """What to do; nothing where all is well."""


def ok(check: str, found: str) -> Finding:
    return Finding(check, Level.OK, found)


def warning(check: str, found: str, advice: str) -> Finding:
    return Finding(check, Level.WARNING, found, advice)


def wrong(check: str, found: str, advice: str) -> Finding:
    return Finding(check, Level.WRONG, found, advice)


def of_error(check: str, error: HQueueError, advice: str = "") -> Finding:
    """What an error of the library means, which names what to look at by itself.

    Args:
        check: the check.
        error: the error.
        advice: what to do if a server gave no answer, or refuses for want of rights.
    """
    if isinstance(error, AuthenticationError):
        advice = (
            "see what the line names; the table of AuthenticationError in docs/security.md says "
            "where to look, and the server's log says more"
        )
    elif isinstance(error, RequestRefusedError):
        advice = advice or "give this principal the right, or use one that has it"
    elif isinstance(error, StoreUnavailableError):
        advice = advice or "see whether the server runs, and whether a firewall lets this host in"
    return wrong(check, said(error), advice or "mend what the line names")


def said(error: HQueueError) -> str:
    """An error's text with its facts, in one line."""
    facts = ", ".join(
        f"{name}={str(fact).splitlines()[0][:FACT_LENGTH_MAX]}"
        for name, fact in error.facts.items()
        if str(fact)
    )
    return f"{error.text} [{facts}]" if facts else error.text

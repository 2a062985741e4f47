"""Refusals: who does not let whom in, and why."""

from __future__ import annotations

from hqueue.errors import SettingsError
from hqueue.runtime.causes import causes

__all__ = ["NotTlsError", "RefusedError", "refusal_of", "settings_error"]


class RefusedError(OSError):
    """Server and client don't accept each other, and trying again is of no use. Nothing that was
    asked for on the connection was done.

    Args:
        text: what was refused, and what to look at.
        facts: the details, by name.
    """

    def __init__(self, text: str, **facts: object) -> None:
        super().__init__(text)
        self.text = text
        self.facts = facts

    def __str__(self) -> str:
        return self.text


class NotTlsError(RefusedError):
    """The server answers a handshake with something else: it does not speak TLS."""


def refusal_of(error: BaseException | None) -> RefusedError | None:
    """The refusal that an error is, or that it comes from; None if it is not a refusal."""
    return next((each for each in causes(error) if isinstance(each, RefusedError)), None)


def settings_error(refused: RefusedError) -> SettingsError:
    """The error of settings that a refusal at the start of a process is."""
    error = SettingsError(refused.text)
    error.facts.update(refused.facts)
    error.facts.pop("begins_s", None)
    return error

"""Whole numbers in a range, wherever they come from."""

from __future__ import annotations

from typing import TypeGuard, cast

from hqueue.errors import HQueueError, InvalidInputError

__all__ = ["check_number", "check_whole", "is_whole", "read_whole", "whole_number"]

DIGITS_MAX = 20
"""As many as 64 bits can have. Python refuses to read thousands of digits."""


def whole_number(text: str) -> int | None:
    """The number that a text says in ASCII digits, at most 20; None if it says none."""
    if text.isascii() and text.isdecimal() and len(text) <= DIGITS_MAX:
        return int(text)
    return None


def is_whole(value: object, low: int | None = None, high: int | None = None) -> TypeGuard[int]:
    """Whether a value is a whole number, from `low` to `high` where given. A bool is none."""
    return (
        isinstance(value, int)
        and not isinstance(value, bool)
        and (low is None or low <= value)
        and (high is None or value <= high)
    )


def check_whole(
    value: object,
    low: int,
    high: int | None = None,
    *,
    error: type[HQueueError] = InvalidInputError,
    **named: object,
) -> int:
    """A whole number from `low` to `high`, both included.

    Args:
        value: what was given.
        low, high: the least and the greatest that it may be; no greatest if None.
        error: what is raised.
        named: facts of the error that say of what it is, as ``option="port"``.

    Raises:
        InvalidInputError, or `error`: it is none.
    """
    if not is_whole(value, low, high):
        wrong = error("this must be a whole number in its range")
        wrong.facts.update(named, value=value, low=low)
        if high is not None:
            wrong.facts["high"] = high
        raise wrong
    return value


def check_number(value: object, low: float, high: float, **named: object) -> None:
    """See that something is a number from `low` to `high`, both included. A bool is none.

    Raises:
        InvalidInputError: it is none; `named` are facts of the error.
    """
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not (is_number and low <= cast("float", value) <= high):
        wrong = InvalidInputError("this must be a number in its range", low=low, high=high)
        wrong.facts.update(named, value=value)
        raise wrong


def read_whole(
    value: object,
    low: int,
    high: int | None = None,
    *,
    error: type[HQueueError] = InvalidInputError,
    **named: object,
) -> int:
    """The same of a value that may also be a text which says the number."""
    said = whole_number(value.strip()) if isinstance(value, str) else None
    return check_whole(value if said is None else said, low, high, error=error, **named)

"""Whole numbers in a range, wherever they come from."""

from __future__ import annotations

import contextlib
from numbers import Integral, Real
from typing import TypeGuard

from hqueue.errors import HQueueError, InvalidInputError

__all__ = ["as_whole", "check_number", "check_whole", "is_whole", "read_whole", "whole_number"]

EXACT_MAX = 2**53
"""Up to here each whole number is a float."""
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


def as_whole(value: object, low: int, high: int | None = None) -> int | None:
    """The plain number that a whole number from `low` to `high` is, one of numpy's too; None if it
    is none, as a bool isn't.
    """
    if type(value) is not int:
        if not isinstance(value, Integral) or isinstance(value, bool):
            return None
        value = int(value)
    return value if low <= value and (high is None or value <= high) else None


def check_whole(
    value: object,
    low: int,
    high: int | None = None,
    *,
    error: type[HQueueError] = InvalidInputError,
    **named: object,
) -> int:
    """A whole number from `low` to `high`, both included, as a plain one.

    Args:
        value: what was given; numpy's integers count as well.
        low, high: the least and the greatest that it may be; no greatest if None.
        error: what is raised.
        named: facts of the error that say of what it is, as ``option="port"``.

    Raises:
        InvalidInputError, or `error`: it is not such a number.
    """
    number = as_whole(value, low, high)
    if number is None:
        wrong = error("this must be a whole number in its range")
        wrong.facts.update(named, value=value, low=low)
        if high is not None:
            wrong.facts["high"] = high
        raise wrong
    return number


def check_number(value: object, low: float, high: float, **named: object) -> float:
    """A number from `low` to `high`, both included, as a plain one. A bool is none.

    Raises:
        InvalidInputError: it is not such a number; `named` are facts of the error.
    """
    if type(value) is float or (type(value) is int and -EXACT_MAX <= value <= EXACT_MAX):
        if low <= value <= high:
            return float(value)
    elif isinstance(value, Real) and not isinstance(value, bool):
        with contextlib.suppress(OverflowError):
            number = float(value)
            if low <= number <= high:
                return number
    wrong = InvalidInputError("the value must be a number in its range", low=low, high=high)
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

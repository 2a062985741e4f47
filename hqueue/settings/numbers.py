"""Whole numbers as people write them."""

from __future__ import annotations

__all__ = ["whole_number"]

DIGITS_MAX = 20
"""As many as 64 bits can have. Python refuses to read thousands of digits."""


def whole_number(text: str) -> int | None:
    """The number that a text says in ASCII digits, at most 20; None if it says none."""
    if text.isascii() and text.isdecimal() and len(text) <= DIGITS_MAX:
        return int(text)
    return None

"""Waiting for a condition, with a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

__all__ = ["wait_for"]

_Found = TypeVar("_Found")


def wait_for(
    condition: Callable[[], _Found], what: str, *, timeout_s: float = 60, pause_s: float = 0.02
) -> _Found:
    """Wait until the condition gives something true, and return that.

    Raises:
        AssertionError: it did not in time.
    """
    ends = time.monotonic() + timeout_s
    while True:
        found = condition()
        if found:
            return found
        assert time.monotonic() < ends, f"not within {timeout_s} s: {what}"
        time.sleep(pause_s)

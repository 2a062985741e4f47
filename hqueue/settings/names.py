"""Names that are known, and those that come close to them."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import TypeVar

from hqueue.errors import HQueueError

__all__ = ["closest", "with_closest"]

_Error = TypeVar("_Error", bound=HQueueError)


def closest(name: str, known: Iterable[str]) -> str | None:
    """The known name that was probably meant, whatever its case; None where none is close."""
    by_lower = {each.lower(): each for each in known}
    matches = difflib.get_close_matches(name.lower(), by_lower, n=1)
    return by_lower[matches[0]] if matches else None


def with_closest(error: _Error, name: str, known: Iterable[str]) -> _Error:
    """An error about an unknown name, with the fact ``closest`` where a known one is close."""
    near = closest(name, known)
    if near is not None:
        error.facts["closest"] = near
    return error

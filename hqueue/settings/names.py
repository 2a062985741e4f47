"""Names: which there may be, which a list has, and which known ones come close to one."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import TypeGuard, TypeVar

from hqueue.errors import HQueueError
from hqueue.settings.limits import NAME_LENGTH_MAX

__all__ = ["EVERYBODY", "closest", "is_among", "is_name", "names_in", "with_closest"]

EVERYBODY = "*"
"""At the end of a name in a list it stands for anything that may follow."""

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]*", re.ASCII)
_Error = TypeVar("_Error", bound=HQueueError)


def is_name(name: object) -> TypeGuard[str]:
    """Whether a subscriber, a worker, a producer or a principal may have this name."""
    return (
        isinstance(name, str) and len(name) <= NAME_LENGTH_MAX and _NAME.fullmatch(name) is not None
    )


def is_among(names: Iterable[str], name: str) -> bool:
    """Whether a list, as that of an ACL, contains a name, by itself or by a prefix."""
    return any(
        name.startswith(each[:-1]) if each.endswith(EVERYBODY) else name == each for each in names
    )


def names_in(text: str) -> list[str]:
    """The names of a setting that lists some, with commas between."""
    return [name.strip() for name in text.split(",") if name.strip()]


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

"""A part that answers as another one does, but for some of its methods."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["Interposed"]


class Interposed:
    """What it is given, with other methods in the place of some. A test puts it where its scene
    keeps that part: so those who were given the part before are not concerned.

    Args:
        part: what answers everything else.
        methods: the others, by name.
    """

    def __init__(self, part: Any, **methods: Callable[..., Any]) -> None:
        for name in methods:
            assert callable(getattr(part, name)), name
        self._part = part
        self.__dict__.update(methods)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._part, name)

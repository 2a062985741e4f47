"""Metrics and traces of a test alone."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from hqueue.watching.observers import OBSERVERS

__all__ = ["only_here"]


@contextlib.contextmanager
def only_here() -> Iterator[None]:
    """A block after which nothing watches this process that began to watch it in the block."""
    before = list(OBSERVERS)
    try:
        yield
    finally:
        OBSERVERS[:] = before

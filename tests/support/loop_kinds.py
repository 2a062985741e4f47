"""The kinds of event loops that programs have: asyncio's own, and uvloop's."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

import uvloop

__all__ = ["LOOP_KINDS", "loops_of"]

LOOP_KINDS = ("asyncio", "uvloop")


@contextlib.contextmanager
def loops_of(kind: str) -> Iterator[None]:
    """Have every event loop that is made meanwhile be of a kind, as after `uvloop.install`."""
    if kind == "asyncio":
        yield
        return
    before = asyncio.get_event_loop_policy()
    asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
    try:
        yield
    finally:
        asyncio.set_event_loop_policy(before)

"""What belongs to one event loop, and what lets others have turns in it."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from typing import TypeVar

from hqueue.errors import InvalidInputError
from hqueue.runtime.program_loop import ProgramLoop

__all__ = ["AT_ONCE", "check_loop", "collected", "own_loop"]

AT_ONCE = 250
"""After this many messages other tasks have turns: they take a millisecond, or three if they have
many headers."""

Given = TypeVar("Given")


def check_loop(loop: asyncio.AbstractEventLoop | None, what: str) -> asyncio.AbstractEventLoop:
    """The running loop, which is the one that an object belongs to, if it belongs to one.

    Raises:
        InvalidInputError: it is another one.
    """
    running = asyncio.get_running_loop()
    if loop is not None and loop is not running:
        raise InvalidInputError(
            f"{what} belongs to the event loop that used it first: make another one here"
        )
    return running


def own_loop(what: str) -> ProgramLoop:
    """The running event loop, for a new object that belongs to it.

    Raises:
        InvalidInputError: no event loop runs.
    """
    try:
        return ProgramLoop()
    except RuntimeError as exc:
        raise InvalidInputError(
            f"no event loop runs: make the {what} in a coroutine of the loop that uses it"
        ) from exc


async def collected(messages: Given) -> Given:
    """The same messages; those of an iterator as a list. Other tasks have turns meanwhile."""
    if not isinstance(messages, Iterator):
        return messages
    taken: list[object] = []
    while some := list(itertools.islice(messages, AT_ONCE)):
        taken += some
        await asyncio.sleep(0)
    return taken  # type: ignore[return-value]

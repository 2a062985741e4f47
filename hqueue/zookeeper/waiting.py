"""How a session's requests wait for what others put into a box: kazoo's threads, and the courier.

What is done by a session is work (`hqueue.runtime.steps`) that asks for boxes, and for what comes
into them. So it is written once, for callers that wait in their threads and for event loops.
"""

from __future__ import annotations

import asyncio
import collections
import queue
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol, TypeVar

from hqueue.runtime.clock import Deadline
from hqueue.runtime.interrupts import is_interruption
from hqueue.runtime.steps import Wait, Work

__all__ = ["NEW_BOX", "Box", "insist", "take"]

Result = TypeVar("Result")


class Box(Protocol):
    """What comes from other threads is put into it."""

    def put(self, item: Any, /) -> None:
        """Put something in. From any thread."""

    def take(self, bound_ms: float, /) -> Any:
        """What comes next; None if nothing does within the bound. In a loop it is awaited."""


class _ThreadBox(queue.SimpleQueue[Any]):
    """A thread takes from it. A handler of a signal that raises there leaves nothing behind."""

    def take(self, bound_ms: float, /) -> Any:
        try:
            return self.get(timeout=max(0.0, bound_ms) / 1e3)
        except queue.Empty as exc:
            if is_interruption(exc):
                raise
            return None


class _LoopBox:
    """A `Box` that a task takes from."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._items: collections.deque[Any] = collections.deque()
        self._woken: asyncio.Future[None] | None = None

    def put(self, item: Any, /) -> None:
        self._items.append(item)
        woken, self._woken = self._woken, None
        if woken is not None:
            try:
                self._loop.call_soon_threadsafe(_wake, woken)
            except RuntimeError:  # The loop was closed, and nobody waits any more.
                pass

    async def take(self, bound_ms: float, /) -> Any:
        ends_s = time.monotonic() + bound_ms / 1e3
        while not self._items:
            left_s = ends_s - time.monotonic()
            if left_s <= 0:
                return None
            woken = self._woken = self._loop.create_future()
            if not self._items:  # Else it came just now.
                await asyncio.wait([woken], timeout=left_s)
        return self._items.popleft()


def _wake(woken: asyncio.Future[None]) -> None:
    if not woken.done():
        woken.set_result(None)


async def _new_loop_box() -> Box:
    return _LoopBox(asyncio.get_running_loop())


NEW_BOX = Wait(_ThreadBox, _new_loop_box)
"""Asks for a box, empty."""


def take(box: Box, bound_ms: float) -> Wait:
    """Asks for what comes next into a box; the answer is None if nothing does within the bound."""
    came = partial(box.take, bound_ms)
    return Wait(came, came)


def insist(deadline: Deadline, attempt: Callable[[], Work[Any, Result]]) -> Work[Any, Result]:
    """Like `Deadline.run`, for an operation that is work."""
    return deadline.bound(deadline.insist(attempt))

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
from typing import Any, NamedTuple, Protocol, TypeVar

from hqueue.runtime.clock import SYSTEM_CLOCK, Deadline, do_step, do_step_in_loop
from hqueue.runtime.interrupts import is_interruption
from hqueue.runtime.steps import Work
from hqueue.runtime.stepwise import Stepwise

__all__ = ["Box", "NewBox", "OnSession", "Take", "insist"]

Result = TypeVar("Result")


class Box(Protocol):
    """What comes from other threads is put into it."""

    def put(self, item: Any, /) -> None:
        """Put something in. From any thread."""


class _Way(Protocol):
    """A way to wait."""

    def new_box(self) -> Any: ...

    def take(self, box: Any, bound_ms: float) -> Any: ...


class NewBox(NamedTuple):
    """Asks for a box, empty."""

    def do(self, way: _Way) -> Any:
        return way.new_box()


class Take(NamedTuple):
    """Asks for what comes next into a box; the answer is None if nothing does within the bound."""

    box: Box
    bound_ms: float

    def do(self, way: _Way) -> Any:
        return way.take(self.box, self.bound_ms)


class _Here:
    """The caller's thread waits. A handler of a signal that raises here leaves nothing behind."""

    def new_box(self) -> queue.SimpleQueue[Any]:
        return queue.SimpleQueue()

    def take(self, box: queue.SimpleQueue[Any], bound_ms: float) -> Any:
        try:
            return box.get(timeout=max(0.0, bound_ms) / 1e3)
        except queue.Empty as exc:
            if is_interruption(exc):
                raise
            return None


class _InLoop:
    """A task of an event loop waits."""

    async def new_box(self) -> _LoopBox:
        return _LoopBox(asyncio.get_running_loop())

    async def take(self, box: _LoopBox, bound_ms: float) -> Any:
        return await box.take(bound_ms)


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

    async def take(self, bound_ms: float) -> Any:
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


_HERE, _IN_LOOP = _Here(), _InLoop()


class OnSession(Stepwise):
    """What is done by a session. Its methods are `hqueue.runtime.stepwise`."""

    def _do(self, step: Any) -> object:
        return do_step(_HERE, SYSTEM_CLOCK, step)

    async def _do_in_loop(self, step: Any) -> object:
        return await do_step_in_loop(_IN_LOOP, SYSTEM_CLOCK, step)


def insist(deadline: Deadline, attempt: Callable[[], Work[Any, Result]]) -> Work[Any, Result]:
    """As `Deadline.run`, for an operation that is work."""
    return deadline.bound(deadline.insist(attempt))

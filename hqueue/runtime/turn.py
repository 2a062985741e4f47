"""Turns that threads and coroutines take with something that one at a time may use."""

from __future__ import annotations

import asyncio
import collections
import threading
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from hqueue.runtime.fork import register
from hqueue.runtime.held import NotHeldError
from hqueue.runtime.interrupts import is_interruption
from hqueue.runtime.waiting import Event

__all__ = ["Turn"]

Result = TypeVar("Result")

LOOK_EVERY_S = 0.25
"""How often one that waits looks for itself whether it has the turn: those that were interrupted on
their way out wake nobody."""


class _Place:
    """A place in the queue for a turn. The first one's is the turn."""

    __slots__ = ("lock", "loop", "wake")

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self.lock = threading.Lock()
        """Held by the one whose place it is, and by nobody else: nothing that is raised anywhere
        leaves it held, so whether it is held says whether the place is still needed."""
        self.loop = loop
        """The coroutine's, which goes on no more when this is closed."""
        self.wake: Callable[[], object] | None = None
        """Wakes the one who waits."""

    def is_left(self) -> bool:
        return not self.lock.locked() or (self.loop is not None and self.loop.is_closed())


_Queue = collections.deque[_Place]


class Turn:
    """Lets one at a time go on with something: threads, and coroutines of any event loop, in the
    order in which they come. Usable in a forked child.

    Everyone waits no longer than a bound. A thread that waits may be interrupted by a handler of a
    signal at any step, and a coroutine may be cancelled: the turn goes to the next one.
    """

    def __init__(self) -> None:
        self.after_fork_in_child()
        register(self)

    def after_fork_in_child(self) -> None:
        self._lock = threading.Lock()
        self._queue: _Queue = collections.deque()

    @property
    def is_free(self) -> bool:
        """Whether nobody has a turn, or waits for one, at this moment."""
        try:
            return self._queue[0].is_left()
        except IndexError:
            return True

    def take(
        self,
        work: Callable[[], Result],
        wait_s: float,
        error: Callable[[], BaseException] = NotHeldError,
    ) -> Result:
        """Do something in a turn of this thread.

        Args:
            work: what is done.
            wait_s: how long to wait for the turn.
            error: makes what is raised if it does not come.
        """
        queue, place = self._queue, _Place()
        try:
            with place.lock:
                queue.append(place)
                if queue[0] is not place:
                    self._await(queue, place, wait_s, error)
                return work()
        finally:
            self._leave(queue, place)

    async def take_in_loop(
        self,
        work: Callable[[], Awaitable[Result]],
        wait_s: float,
        error: Callable[[], BaseException] = NotHeldError,
    ) -> Result:
        """As `take`, in a turn of the coroutine that awaits this."""
        queue, place = self._queue, _Place(asyncio.get_running_loop())
        try:
            with place.lock:
                queue.append(place)
                if queue[0] is not place:
                    await self._await_in_loop(queue, place, wait_s, error)
                return await work()
        finally:
            self._leave(queue, place)

    def _await(
        self, queue: _Queue, place: _Place, wait_s: float, error: Callable[[], BaseException]
    ) -> None:
        woken = Event()
        place.wake = woken.set
        ends_s = time.monotonic() + wait_s
        while not self._has(queue, place):
            woken.wait(_look_s(ends_s, error))

    async def _await_in_loop(
        self, queue: _Queue, place: _Place, wait_s: float, error: Callable[[], BaseException]
    ) -> None:
        loop = asyncio.get_running_loop()
        woken = loop.create_future()
        place.wake = lambda: loop.call_soon_threadsafe(_set, woken)
        ends_s = time.monotonic() + wait_s
        while not self._has(queue, place):
            await asyncio.wait([woken], timeout=_look_s(ends_s, error))

    def _has(self, queue: _Queue, place: _Place) -> bool:
        if queue[0] is not place:
            with self._lock:
                _drop_left(queue)
        return queue[0] is place

    def _leave(self, queue: _Queue, place: _Place) -> None:
        with self._lock:
            if place in queue:  # Else another one saw that it is left.
                queue.remove(place)
            _drop_left(queue)
            if queue:
                _wake(queue[0])


def _drop_left(queue: _Queue) -> None:
    while queue and queue[0].is_left():
        queue.popleft()


def _wake(place: _Place) -> None:
    wake, place.wake = place.wake, None
    if wake is not None:
        try:
            wake()
        except RuntimeError as exc:  # Its loop was closed just now.
            if is_interruption(exc):
                raise


def _set(woken: asyncio.Future[None]) -> None:
    if not woken.done():
        woken.set_result(None)


def _look_s(ends_s: float, error: Callable[[], BaseException]) -> float:
    """Until when to wait now.

    Raises:
        BaseException: there is no time left.
    """
    left_s = ends_s - time.monotonic()
    if left_s <= 0:
        raise error()
    return min(left_s, LOOK_EVERY_S)

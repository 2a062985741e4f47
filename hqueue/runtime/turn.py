"""Turns that threads and coroutines take with something that one at a time may use."""

from __future__ import annotations

import asyncio
import collections
import itertools
import operator
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from hqueue.errors import InvalidInputError
from hqueue.runtime.fork import register
from hqueue.runtime.held import NotHeldError
from hqueue.runtime.interrupts import is_interruption
from hqueue.runtime.steps import Wait, Work
from hqueue.runtime.waiting import Event

__all__ = ["OWN_TURN", "Turn"]

StepT = TypeVar("StepT")
Result = TypeVar("Result")
_Error = Callable[[], BaseException]

LOOK_EVERY_S = 0.25
"""How often one that waits looks for itself whether it has the turn: those that were interrupted on
their way out wake nobody."""

OWN_TURN = (
    "this call, from a signal handler or a finalizer, would wait for the call that it "
    "interrupts: use Producer.send or Consumer.commit_async there, or leave the work to the "
    "program"
)


class _Place:
    """A place in the queue for a turn. The first one's is the turn."""

    __slots__ = ("lock", "loop", "thread", "wake")

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self.lock = threading.Lock()
        """Held by the one whose place it is, and by nobody else: nothing that is raised anywhere
        leaves it held, so whether it is held says whether the place is still needed."""
        self.loop = loop
        """The coroutine's, which goes on no more when this is closed."""
        self.thread = threading.get_ident()
        """The one that carries out what is done in the turn."""
        self.wake: Callable[[], object] | None = None
        """Wakes the one who waits."""

    def is_left(self) -> bool:
        return not self.lock.locked() or (self.loop is not None and self.loop.is_closed())


_Queue = collections.deque[_Place]


class Turn:
    """Lets one at a time go on with something: threads, and coroutines of any event loop, in the
    order in which they come. Usable in a forked child.

    Everyone waits no longer than a bound. A thread that waits may be interrupted by a handler of a
    signal at any step, and a coroutine may be cancelled: the turn goes to the next one. A handler
    or a finalizer that wants the turn of what it interrupts is refused, for that goes on behind it.
    """

    def __init__(self) -> None:
        self.after_fork_in_child()
        register(self)

    def after_fork_in_child(self) -> None:
        self._queue: _Queue = collections.deque()

    @property
    def length(self) -> int:
        """How many have the turn or wait for it at this moment."""
        return len(self._queue)

    @property
    def is_free(self) -> bool:
        """Whether nobody has a turn, or waits for one, at this moment."""
        try:
            return self._queue[0].is_left()
        except IndexError:
            return True

    @property
    def is_own(self) -> bool:
        """Whether the caller's thread is in the middle of a turn, or waits for one."""
        return any(_is_own(each, threading.get_ident()) for each in list(self._queue))

    def take(
        self,
        work: Work[StepT, Result],
        wait_s: float,
        error: _Error = NotHeldError,
    ) -> Work[StepT | Wait, Result]:
        """The same work, in a turn.

        Args:
            work: what is done.
            wait_s: how long to wait for the turn.
            error: makes what is raised if it does not come. Nothing was begun.

        Raises:
            InvalidInputError: the caller's own thread is in the middle of a turn, or waits for one,
                and would wait for itself. Those who give no ``error`` get a `NotHeldError`.
        """
        queue, place = self._queue, _Place(asyncio._get_running_loop())
        try:
            with place.lock:
                queue.append(place)
                if queue[0] is not place:
                    late = queue, place, time.monotonic() + wait_s, error
                    yield Wait(partial(_wait, *late), partial(_wait_in_loop, *late))
                return (yield from work)
        finally:
            _leave(queue, place)


def _wait(queue: _Queue, place: _Place, ends_s: float, error: _Error) -> None:
    _check_own(queue, place, error, loops=True)
    woken = Event()
    place.wake = woken.set
    while _first(queue) is not place:
        woken.wait(_look_s(ends_s, error))


async def _wait_in_loop(queue: _Queue, place: _Place, ends_s: float, error: _Error) -> None:
    _check_own(queue, place, error, loops=False)
    loop = asyncio.get_running_loop()
    woken = loop.create_future()
    place.wake = lambda: loop.call_soon_threadsafe(_set, woken)
    while _first(queue) is not place:
        await asyncio.wait([woken], timeout=_look_s(ends_s, error))


def _check_own(queue: _Queue, place: _Place, error: _Error, *, loops: bool) -> None:
    """Wait for nothing that this thread has interrupted: it goes on when the wait is over.

    Args:
        loops: whether this thread's loop is kept from going on, too.
    """
    for before in itertools.takewhile(partial(operator.is_not, place), list(queue)):
        if _is_own(before, place.thread) and (loops or before.loop is None):
            raise error() if error is NotHeldError else InvalidInputError(OWN_TURN)


def _is_own(place: _Place, thread: int) -> bool:
    return place.thread == thread and not place.is_left()


def _leave(queue: _Queue, place: _Place) -> None:
    _drop(queue, place)
    if queue and (following := _first(queue)) is not None:
        _wake(following)


def _first(queue: _Queue) -> _Place | None:
    """Whose turn it is. Places that were left go: the first that looks drops them. Nothing is
    locked here, and each step allows for what others did since the one before: a handler of a
    signal may take the same turn between any two.
    """
    for first in list(queue):
        if not first.is_left():
            return first
        _drop(queue, first)
    return None


def _drop(queue: _Queue, place: _Place) -> None:
    try:
        queue.remove(place)
    except ValueError as exc:  # Another saw before that it is left.
        if is_interruption(exc):
            raise


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


def _look_s(ends_s: float, error: _Error) -> float:
    """Until when to wait now.

    Raises:
        BaseException: there is no time left.
    """
    left_s = ends_s - time.monotonic()
    if left_s <= 0:
        raise error()
    return min(left_s, LOOK_EVERY_S)

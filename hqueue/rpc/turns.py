"""Turns in an event loop: each does what there is to do, for a short while."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable

__all__ = ["Turns"]


class Turns:
    """Has turns taken in an event loop: when a file can be read, when it is time, and when somebody
    calls for one. One at a time is asked for, or they would become ever more while there is always
    something to do.

    Args:
        take: takes one, and says in how many seconds the next is due if nothing comes before;
            below 0 if all is over.
    """

    def __init__(self, take: Callable[[], float]) -> None:
        self._take = take
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: int | None = None
        self._file = -1
        self._timer: asyncio.TimerHandle | None = None
        self.called_for = False
        """Whether another turn is called for."""
        self.under_way = self._comes_soon = self._over = False

    @property
    def begun(self) -> bool:
        """Whether there are any."""
        return self._loop is not None

    @property
    def is_here(self) -> bool:
        """Whether the caller is in the loop in which they are taken."""
        return threading.get_ident() == self._thread

    def begin(self, file: int) -> None:
        """Take turns from now on in the event loop that runs, also when this file can be read."""
        self._loop, self._file = asyncio.get_running_loop(), file
        self._thread = threading.get_ident()
        self._loop.add_reader(file, self._next)
        self._next()

    def end(self) -> None:
        """Take no more. In the loop."""
        self._over = True
        if self._timer is not None:
            self._timer.cancel()
        if self._loop is not None:
            self._loop.remove_reader(self._file)

    def call_for_one(self) -> None:
        """Have another turn taken, soon. From any thread: what is called for before is seen."""
        if not self.called_for:
            self.called_for = True
            if not (self.under_way and self.is_here):
                self.call(self._next)

    def call(self, function: Callable[..., object], *args: object) -> None:
        """Have the loop call something. From any thread."""
        if self._loop is not None and not self._over:
            with contextlib.suppress(RuntimeError):  # It has ended.
                self._loop.call_soon_threadsafe(function, *args)

    def _next(self) -> None:
        loop = self._loop
        assert loop is not None
        if self._over or self._comes_soon:
            return
        self.under_way = True
        try:
            wait_s = self._take()
        finally:
            self.under_way = False
        if not wait_s:
            self._comes_soon = True
            loop.call_soon(self._next_soon)
        elif wait_s > 0:
            at_s = loop.time() + wait_s
            if self._timer is not None:
                if loop.time() < self._timer.when() <= at_s:
                    return  # One turn too many costs less than another timer for each.
                self._timer.cancel()
            self._timer = loop.call_at(at_s, self._next)

    def _next_soon(self) -> None:
        self._comes_soon = False
        self._next()

"""Turns for calls to one subscriber: several at a time, or one alone."""

from __future__ import annotations

import asyncio
import collections
import contextlib
from collections.abc import AsyncIterator

__all__ = ["CallTurns"]


class CallTurns:
    """Lets several calls run at a time, or a single call that must run alone. Waiting calls get
    their turns in the order in which they came. For one event loop.
    """

    def __init__(self) -> None:
        self._running = 0
        self._is_alone = False
        self._waiting: collections.deque[tuple[bool, asyncio.Future[None]]] = collections.deque()

    @contextlib.asynccontextmanager
    async def turn(self, *, alone: bool) -> AsyncIterator[None]:
        """Hold a turn for a block."""
        if self._waiting or not self._may_begin(alone):
            await self._wait(alone)
        else:
            self._begin(alone)
        try:
            yield
        finally:
            self._end()

    def _may_begin(self, alone: bool) -> bool:
        return not self._is_alone and not (alone and self._running)

    def _begin(self, alone: bool) -> None:
        self._running += 1
        self._is_alone = alone

    def _end(self) -> None:
        self._running -= 1
        self._is_alone = False
        self._wake()

    async def _wait(self, alone: bool) -> None:
        woken = asyncio.get_running_loop().create_future()
        self._waiting.append((alone, woken))
        try:
            await woken
        except BaseException:
            if woken.done() and not woken.cancelled():  # This call had just got its turn.
                self._end()
            else:
                self._waiting = collections.deque(
                    each for each in self._waiting if each[1] is not woken
                )
                self._wake()
            raise

    def _wake(self) -> None:
        """Start the waiting calls that may run now, in order."""
        while self._waiting and self._may_begin(self._waiting[0][0]):
            alone, woken = self._waiting.popleft()
            if not woken.done():
                self._begin(alone)
                woken.set_result(None)

"""The program's event loop, for what an object of the program does in the background there."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from hqueue.errors import HQueueError
from hqueue.runtime.logs import Log
from hqueue.runtime.loop import in_thread
from hqueue.runtime.steps import Wait

__all__ = ["ProgramLoop"]

logger = Log(__name__)


class ProgramLoop:
    """The running event loop, and the tasks of one object in it. Made in that loop; `start` and
    `call` may be called by any thread, and do nothing where the loop was closed.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[Any]] = set()
        """Loops keep no task."""
        self._left: asyncio.Future[Any] | None = None
        """What a thread does now: a caller that was cancelled has left it to its end."""

    def start(self, function: Callable[..., Coroutine[Any, Any, object]], *args: object) -> None:
        """Have a coroutine go on by itself, with none of the caller's context variables."""
        if asyncio._get_running_loop() is self._loop:
            self._begin(function, *args)
        else:
            self.call(self._begin, function, *args)

    def call(self, function: Callable[..., object], *args: object) -> None:
        """Have something called by the loop, soon."""
        if asyncio._get_running_loop() is self._loop:
            self._loop.call_soon(function, *args)
        else:
            with contextlib.suppress(RuntimeError):  # The loop was closed.
                self._loop.call_soon_threadsafe(function, *args)

    def _begin(
        self, function: Callable[..., Coroutine[Any, Any, object]], *args: object
    ) -> asyncio.Task[Any]:
        task = contextvars.Context().run(self._loop.create_task, function(*args))
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, HQueueError):
            logger.error("a task in the background failed", exc_info=error)

    def blocking(self, function: Callable[[], object]) -> Wait:
        """Asks for a call that blocks, and that must not be left in its middle: a thread makes it.
        A caller that is cancelled leaves it to its end, and what is asked for next waits for that:
        see `settled`.
        """
        return Wait(function, partial(self._in_thread, function))

    async def settled(self) -> None:
        """Wait until a thread has ended what a cancelled caller has left to it."""
        while (left := self._left) is not None:
            await asyncio.wait([left])
            if self._left is left:
                self._left = None

    async def _in_thread(self, function: Callable[[], object]) -> object:
        await self.settled()
        self._left = left = self._loop.create_task(in_thread(function))
        left.add_done_callback(_see)
        await self.settled()
        return left.result()

    async def close(self) -> None:
        """Cancel the tasks that go on, and wait until they have ended."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


def _see(ended: asyncio.Future[Any]) -> None:
    """Its error is not reported as one that nobody learned: its caller may be gone."""
    if not ended.cancelled():
        ended.exception()

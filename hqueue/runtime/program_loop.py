"""The program's event loop, for what an object of the program does in the background there."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

from hqueue.errors import ClosedError, HQueueError, Outcome
from hqueue.runtime.logs import Log
from hqueue.runtime.loop import in_thread
from hqueue.runtime.steps import Wait

__all__ = ["ProgramLoop", "result_of"]

logger = Log(__name__)

Result = TypeVar("Result")


class ProgramLoop:
    """The running event loop, and the tasks of one object in it. Made in that loop; `start` and
    `call` may be called by any thread, and do nothing where the loop was closed.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Future[Any]] = set()
        """Loops keep no task."""
        self._left: asyncio.Future[Any] | None = None
        """What a thread does now: a caller that was cancelled has left it to its end."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop."""
        return self._loop

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
        self.own(task)
        task.add_done_callback(_log)
        return task

    def own(self, task: asyncio.Future[Any]) -> None:
        """Add a task that goes on until it is done, or until `close`."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(_see)

    def begin(self, work: Coroutine[Any, Any, Result]) -> asyncio.Task[Result]:
        """Have work go on, with the caller's context variables. The caller, who may be cancelled
        meanwhile, waits for the task that this returns.
        """
        task = self._loop.create_task(work)
        self.own(task)
        return task

    async def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """The result of work, which goes on if the caller is cancelled.

        Raises:
            ClosedError: `close` has cancelled the work.
        """
        task = self.begin(work)
        await asyncio.wait([task])
        return result_of(task)

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

    async def close(self, bound_s: float | None = None) -> None:
        """Cancel the tasks that go on, and wait until they have ended, no longer than the bound."""
        tasks = self._tasks - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=bound_s)


def result_of(ended: asyncio.Task[Result]) -> Result:
    """The result of a task that a `ProgramLoop` owned.

    Raises:
        ClosedError: it was cancelled. The caller was not: so this is no `asyncio.CancelledError`.
        BaseException: what the task raised.
    """
    if ended.cancelled():
        raise ClosedError("it was closed while the call was under way", outcome=Outcome.UNKNOWN)
    return ended.result()


def _log(ended: asyncio.Task[Any]) -> None:
    error = None if ended.cancelled() else ended.exception()
    if error is not None and not isinstance(error, HQueueError):
        logger.error("a task in the background failed", exc_info=error)


def _see(ended: asyncio.Future[Any]) -> None:
    """Its error is not reported as one that nobody learned: its caller may be gone."""
    if not ended.cancelled():
        ended.exception()

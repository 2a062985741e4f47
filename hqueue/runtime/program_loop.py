"""The program's event loop, for what an object of the program does in the background there."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

from hqueue.errors import ClosedError, HQueueError, Outcome
from hqueue.runtime.foreign import call_foreign
from hqueue.runtime.logs import Log
from hqueue.runtime.loop import BackgroundLoop, background, program_loop
from hqueue.runtime.steps import Wait
from hqueue.runtime.waiting import InterruptibleFuture

__all__ = ["ProgramLoop", "ended", "forget_error", "loop_here", "result_of"]

logger = Log(__name__)

TRIES = 8
"""How often work is begun that must be done. The end of a loop cancels all its tasks, but once or
twice."""

Result = TypeVar("Result")


class ProgramLoop:
    """The running event loop, and the tasks of one object in it: a `BackgroundLoop`. Made in that
    loop; `start` and `call` may be called by any thread, and do nothing where the loop was closed.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Future[Any]] = set()
        """Loops keep no task."""
        self._left: asyncio.Task[Any] | None = None
        """What goes on now: a caller that was cancelled has left it to its end."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop."""
        return self._loop

    def start(
        self, function: Callable[..., Coroutine[Any, Any, Any]], /, *args: Any
    ) -> InterruptibleFuture[Any]:
        """Have a coroutine go on by itself, with none of the caller's context variables. What comes
        of it; `cancel` cancels it.
        """
        future: InterruptibleFuture[Any] = InterruptibleFuture()
        if asyncio._get_running_loop() is self._loop:
            self._begin(future, function, *args)
        else:
            self.call(self._begin, future, function, *args)
        return future

    def call(self, function: Callable[..., object], /, *args: Any) -> None:
        """Have something called by the loop, soon."""
        if asyncio._get_running_loop() is self._loop:
            self._loop.call_soon(function, *args)
        else:
            with contextlib.suppress(RuntimeError):  # The loop was closed.
                self._loop.call_soon_threadsafe(function, *args)

    async def notify(self, what: str, function: Callable[..., object], /, *args: Any) -> None:
        """Like `BackgroundLoop.notify`. The loop calls the listener, which must not block."""
        call_foreign(what, function, *args)

    def _begin(
        self,
        future: InterruptibleFuture[Any],
        function: Callable[..., Coroutine[Any, Any, Any]],
        *args: Any,
    ) -> None:
        task = contextvars.Context().run(self._loop.create_task, function(*args))
        self.own(task)
        task.add_done_callback(_log)
        task.add_done_callback(partial(_pass_on, future))
        future.add_done_callback(partial(self._cancel, weakref.ref(task)))

    def _cancel(self, kept: weakref.ref[asyncio.Task[Any]], future: Future[Any]) -> None:
        """The future keeps its callbacks, and with a task the frames of its error."""
        task = kept()
        if future.cancelled() and task is not None and not task.done():
            self.call(task.cancel)

    def own(self, task: asyncio.Future[Any]) -> None:
        """Add a task that goes on until it is done, or until `close`."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(forget_error)

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

    async def made(
        self,
        make: Callable[[Callable[[], bool]], Coroutine[Any, Any, Result]],
        close: Callable[[Result], Coroutine[Any, Any, object]],
    ) -> Result:
        """The result of work that makes something which must be closed. If the caller is cancelled,
        a task closes it as soon as it is made.

        Args:
            make: makes it; given what says whether it is still wanted.
            close: closes it.
        """
        is_wanted = True

        async def work() -> Result:
            result = await make(lambda: is_wanted)
            if not is_wanted:
                await close(result)
            return result

        task = self.begin(work())
        try:
            await asyncio.wait([task])
        except BaseException:
            is_wanted = False
            if task.done() and not task.cancelled() and task.exception() is None:
                self.start(close, task.result())
            raise
        return result_of(task)

    async def idle(self) -> None:
        """Wait until no task goes on but the caller's."""
        while tasks := self._tasks - {asyncio.current_task()}:
            await asyncio.wait(tasks)

    def to_end(self, wait: Wait) -> Wait:
        """Asks for the same, in a task of its own: it must not be left in its middle. A caller that
        is cancelled leaves it to its end, and what is asked for next waits for that: see `settled`.
        """
        return Wait(
            wait.here, partial(self._to_end, wait.in_loop), partial(self._leave, wait.in_loop)
        )

    async def settled(self) -> None:
        """Wait until what a cancelled caller has left under way has ended."""
        while (left := self._left) is not None:
            await asyncio.wait([left])
            if self._left is left:
                self._left = None

    async def _to_end(self, work: Callable[[], Awaitable[object]]) -> object:
        await self.settled()
        left = self._leave(work)
        await self.settled()
        return result_of(left)

    def _leave(self, work: Callable[[], Awaitable[object]]) -> asyncio.Task[object]:
        before = self._left

        async def carried() -> object:
            if before is not None:
                await asyncio.wait([before])
            return await work()

        self._left = left = self._loop.create_task(carried())
        left.add_done_callback(forget_error)
        left.add_done_callback(self._forget)
        return left

    async def insist(self, work: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        """The result of work that must be done, when what a cancelled caller has left under way has
        ended. A caller that is cancelled meanwhile learns that when the work is done: so it is done
        also where the loop ends, which waits for the caller. The end cancels each task of the loop,
        and the work's too: then it is begun again.
        """
        is_cancelled = False
        if self._left is not None:
            is_cancelled = await _past_cancellation(self._left)
        for _ in range(TRIES):
            task = self._loop.create_task(work())
            task.add_done_callback(forget_error)
            is_cancelled |= await _past_cancellation(task)
            if not task.cancelled():
                break
        if is_cancelled:
            raise asyncio.CancelledError
        return result_of(task)

    def _forget(self, left: asyncio.Task[Any]) -> None:
        """Keep nothing of what has ended: its error has the frames of those that waited for it."""
        if self._left is left:
            self._left = None

    async def close(self, bound_s: float | None = None) -> None:
        """Cancel the tasks that go on, and wait until they have ended, no longer than the bound."""
        tasks = self._tasks - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=bound_s)


def loop_here() -> BackgroundLoop | None:
    """What carries the caller's work in the background: the program's event loop, if the caller
    runs in one, else the process's. None if there can be none now.
    """
    return background() if program_loop() is None else ProgramLoop()


def ended(future: InterruptibleFuture[Any], bound_s: float) -> Wait:
    """Asks until a future is done, no longer than this many seconds; answers whether it is."""
    return Wait(partial(future.wait, bound_s), partial(_ended_in_loop, future, bound_s))


async def _ended_in_loop(future: InterruptibleFuture[Any], bound_s: float) -> bool:
    loop = asyncio.get_running_loop()
    done = asyncio.Event()

    def wake(_: object) -> None:
        with contextlib.suppress(RuntimeError):  # The loop was closed, and nobody waits any more.
            loop.call_soon_threadsafe(done.set)

    future.add_done_callback(wake)
    waiting = asyncio.ensure_future(done.wait())
    try:
        await asyncio.wait([waiting], timeout=bound_s)
    finally:
        waiting.cancel()
    return future.done()


def result_of(ended: asyncio.Task[Result]) -> Result:
    """The result of a task that a `ProgramLoop` owned.

    Raises:
        ClosedError: it was cancelled. The caller was not, so it is not an `asyncio.CancelledError`.
        BaseException: what the task raised.
    """
    if ended.cancelled():
        raise ClosedError(
            "the object was closed while the call was under way", outcome=Outcome.UNKNOWN
        )
    return ended.result()


async def _past_cancellation(task: asyncio.Task[Any]) -> bool:
    """Wait until a task has ended. Returns whether the caller was cancelled meanwhile."""
    is_cancelled = False
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            is_cancelled = True
    return is_cancelled


def _log(ended: asyncio.Task[Any]) -> None:
    error = None if ended.cancelled() else ended.exception()
    if error is not None and not isinstance(error, HQueueError):
        logger.error("a task in the background failed", exc_info=error)


def _pass_on(future: InterruptibleFuture[Any], ended: asyncio.Task[Any]) -> None:
    """Have the future of a task be done with what came of it."""
    if ended.cancelled():
        future.cancel()
    if not future.set_running_or_notify_cancel():
        return
    error = ended.exception()
    if error is None:
        future.set_result(ended.result())
    else:
        future.set_exception(error)


def forget_error(ended: asyncio.Future[Any]) -> None:
    """Have the error of a task not reported as one that nobody learned: its caller may be gone. One
    that was cancelled keeps nothing of that, as the frames of an error by which its loop ended.
    """
    with contextlib.suppress(asyncio.CancelledError):
        ended.exception()

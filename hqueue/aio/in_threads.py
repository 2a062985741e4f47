"""Calls of topics' metadata, whose managers work in threads, for event loops."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from itertools import islice
from typing import Generic, ParamSpec, TypeVar

from hqueue.aio.loops import AT_ONCE
from hqueue.errors import ClosedError, Outcome
from hqueue.runtime.foreign import call_foreign
from hqueue.runtime.loop import call_later, in_thread
from hqueue.runtime.program_loop import ProgramLoop
from hqueue.runtime.waiting import InterruptibleFuture

__all__ = ["ProgressInLoop", "answered", "called_here", "each_read", "made"]

LOOK_S = 0.25
"""How often a thread that waits for a callback looks whether the event loop was closed."""

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


async def answered(
    ask: Callable[Parameters, Future[Result]], *args: Parameters.args, **named: Parameters.kwargs
) -> Result:
    """The answer to a manager's request. A thread makes the call, which may wait for room or ask
    ZooKeeper; no thread waits for the answer. If the caller is cancelled, the request is not sent,
    or nobody learns what came of it.
    """
    return await asyncio.wrap_future(await in_thread(ask, *args, **named))


async def made(make: Callable[[], Result], close: Callable[[Result], object]) -> Result:
    """Have a thread make something that must be closed. If the caller is cancelled, it is closed
    by a thread as soon as it is made.
    """
    lock = threading.RLock()
    there: list[Result] = []
    is_left = False

    def work() -> Result:
        result = make()
        with lock:
            there.append(result)
            must_close = is_left
        if must_close:
            close(result)
        return result

    try:
        return await in_thread(work)
    except BaseException:
        with lock:
            is_left = True
            left = there.copy()
        for result in left:
            call_later(0, close, result)
        raise


async def each_read(items: Iterator[Result]) -> AsyncIterator[Result]:
    """Iterate over what an iterator reads. Threads read some hundred items at a time."""
    while True:
        some, error = await in_thread(_some, items)
        for item in some:
            yield item
        if error is not None:
            raise error
        if len(some) < AT_ONCE:
            return


def _some(items: Iterator[Result]) -> tuple[list[Result], BaseException | None]:
    """The next items, and the error that came after them."""
    taken: list[Result] = []
    try:
        for item in islice(items, AT_ONCE):
            taken.append(item)
    except BaseException as exc:  # Whatever it is, it comes after them.
        return taken, exc
    return taken, None


def called_here(what: str, listener: Callable[Parameters, object]) -> Callable[Parameters, None]:
    """A function for any thread that has a listener called soon by the running event loop. What it
    raises is logged.
    """
    tasks = ProgramLoop()

    def call(*args: Parameters.args, **named: Parameters.kwargs) -> None:
        tasks.call(lambda: call_foreign(what, listener, *args, **named))

    return call


class ProgressInLoop(Generic[Parameters]):
    """A callback for a thread which the running event loop calls. The thread waits for that, and
    gets what the callback raises. Use it as a context manager: at its end no caller waits for the
    thread's work any more, and the next call fails.

    Args:
        callback: what the loop calls.
    """

    def __init__(self, callback: Callable[Parameters, object]) -> None:
        self._callback = callback
        self._loop = asyncio.get_running_loop()
        self._over = False

    def __enter__(self) -> ProgressInLoop[Parameters]:
        return self

    def __exit__(self, *exc: object) -> None:
        self._over = True

    def __call__(self, *args: Parameters.args, **named: Parameters.kwargs) -> None:
        done: InterruptibleFuture[None] = InterruptibleFuture()

        def call() -> None:
            try:
                self._check()
                self._callback(*args, **named)
            except BaseException as exc:  # Whatever it is, the thread's caller gets it.
                done.set_exception(exc)
            else:
                done.set_result(None)

        self._check()
        try:
            self._loop.call_soon_threadsafe(call)
        except RuntimeError as exc:
            raise _left() from exc
        while not done.wait(LOOK_S):
            self._check()
        done.result()

    def _check(self) -> None:
        if self._over or self._loop.is_closed():
            raise _left()


def _left() -> ClosedError:
    return ClosedError("the task that awaited this call was cancelled", outcome=Outcome.UNKNOWN)

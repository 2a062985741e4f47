"""Work that is done again and again in the background."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from hqueue.errors import ClosedError, HQueueError
from hqueue.runtime.alarm import Alarm, needed_loop
from hqueue.runtime.logs import Log
from hqueue.runtime.loop import BackgroundLoop, in_thread

__all__ = ["Job"]

logger = Log(__name__)

RETRY_MS = 1_000.0


class Job:
    """Has work done, never twice at a time, when it is asked for and when it is due again. A loop's
    task waits for that. Thread-safe. In a forked child it does nothing.

    Args:
        work: what is done, by a thread of the loop's (see `in_thread`), or in the loop if it is a
            coroutine function. Returns in how many milliseconds it is due again; infinity if only
            when it is asked for. It is over when this raises `ClosedError`.
        retry_ms: when work is tried again that no thread could be had for, or that failed
            unexpectedly.
        loop: the loop; the process's if None.

    Raises:
        ClosedError: the interpreter is ending.
        HQueueError: the system starts no more threads for now.
    """

    def __init__(
        self,
        work: Callable[[], float] | Callable[[], Coroutine[Any, Any, float]],
        retry_ms: float = RETRY_MS,
        loop: BackgroundLoop | None = None,
    ) -> None:
        self._retry_ms = retry_ms
        self._waits = inspect.iscoroutinefunction(work)
        self._work: Callable[[], Any] = work
        self._closed = False
        loop = loop or needed_loop()
        self._alarm = Alarm(loop)
        loop.start(self._run)

    def ask(self) -> None:
        """Have it done soon; once more, if it is being done."""
        self._alarm.ring()

    def close(self) -> None:
        """Have it done no more. What is being done is not waited for."""
        self._closed = True
        self._alarm.ring()

    async def _run(self) -> None:
        due_ms = float("inf")
        while True:
            await self._alarm.wait(due_ms)
            if self._closed:
                return
            try:
                due_ms = await (self._work() if self._waits else in_thread(self._work))
            except ClosedError:
                return
            except asyncio.CancelledError:  # The program's loop ends.
                raise
            except BaseException as exc:
                level = logging.DEBUG if isinstance(exc, HQueueError) else logging.ERROR
                logger.log(level, "work in the background failed", exc_info=True)
                due_ms = self._retry_ms

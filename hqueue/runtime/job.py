"""Work that is done again and again in the background."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from hqueue.errors import ClosedError, HQueueError
from hqueue.runtime.alarm import needed_loop
from hqueue.runtime.logs import Log
from hqueue.runtime.loop import BackgroundLoop, in_thread

__all__ = ["Job"]

logger = Log(__name__)

RETRY_MS = 1_000.0


class Job:
    """Does work when it is requested and when it is due again, never twice at a time. Each time a
    task of a loop does it; no task waits meanwhile. Thread-safe. In a forked child it does nothing.

    Args:
        work: does the work, in a thread of the loop's (see `in_thread`), or in the loop if it is a
            coroutine function. Returns in how many milliseconds it is due again; infinity if only
            when it is requested. The job is over when this raises `ClosedError`, or is cancelled.
        retry_ms: the pause before another try if the system starts no thread, or if the work failed
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
        self._loop = loop or needed_loop()
        self._asked = self._at_work = self._over = False
        self._due: asyncio.TimerHandle | None = None

    def ask(self) -> None:
        """Do the work soon; once more, if it is under way."""
        self._asked = True
        self._loop.call(self._look)

    def close(self) -> None:
        """Do the work no more. Does not wait for work that is under way."""
        self._over = True
        self._loop.call(self._look)

    def _look(self) -> None:
        """Begin, if the work was requested and is not under way. Called in the loop."""
        if self._due is not None and (self._asked or self._over):
            self._due.cancel()
            self._due = None
        if self._asked and not (self._at_work or self._over):
            self._asked, self._at_work = False, True
            self._loop.start(self._do)

    async def _do(self) -> None:
        due_ms = self._retry_ms
        try:
            due_ms = await (self._work() if self._waits else in_thread(self._work))
        except ClosedError:
            self._over = True
        except (asyncio.CancelledError, GeneratorExit):  # The program's loop ends, or has ended.
            self._over = True
            raise
        except BaseException as exc:
            level = logging.DEBUG if isinstance(exc, HQueueError) else logging.ERROR
            logger.log(level, "work in the background failed", exc_info=True)
        self._at_work = False
        if due_ms != float("inf"):
            self._due = asyncio.get_running_loop().call_later(due_ms / 1e3, self.ask)
        self._look()

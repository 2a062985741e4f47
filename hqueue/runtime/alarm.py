"""A task of a loop, and what wakes it from any thread."""

from __future__ import annotations

import asyncio
import threading

from hqueue.runtime.loop import BackgroundLoop, LoopThread, background
from hqueue.runtime.threads import REFUSAL, refused

__all__ = ["Alarm", "needed_loop"]


def needed_loop() -> LoopThread:
    """The process's loop, for what can't be done without it.

    Raises:
        ClosedError: the interpreter is ending.
        HQueueError: the system starts no more threads for now.
    """
    loop = background()
    if loop is None:
        reason = "no thread" if threading.main_thread().is_alive() else REFUSAL
        raise refused(RuntimeError(reason), "hqueue-loop")
    return loop


class Alarm:
    """Lets one task wait until something must be done. Rung before the task waits, it rings then.

    Args:
        loop: the task's.
    """

    def __init__(self, loop: BackgroundLoop) -> None:
        self._loop = loop
        self._rung = asyncio.Event()

    def ring(self) -> None:
        """Wake the task. From any thread; takes no lock."""
        self._loop.call(self._rung.set)

    async def wait(self, bound_ms: float = float("inf")) -> bool:
        """Wait until the alarm rings, no longer than the bound. Returns whether it has rung."""
        if bound_ms > 0 and not self._rung.is_set():
            timeout_s = None if bound_ms == float("inf") else bound_ms / 1e3
            waiting = asyncio.ensure_future(self._rung.wait())
            try:
                await asyncio.wait([waiting], timeout=timeout_s)
            finally:
                if not waiting.get_loop().is_closed():
                    waiting.cancel()
        rung = self._rung.is_set()
        self._rung.clear()
        return rung

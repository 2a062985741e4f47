"""Whether an event loop goes on while something is computed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

__all__ = ["LoopWatch"]

Result = TypeVar("Result")

WAIT_S = 5


class LoopWatch:
    """Stands for a function, and does not call it before the loop has gone on.

    Args:
        function: what computes. It gets a thread, however late.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._went_on = threading.Event()
        self.calls: list[bool] = []
        """Of each call, whether the loop went on beside it."""

    def __call__(self, *args: Any, **named: Any) -> Any:
        self._went_on.clear()
        self.calls.append(self._went_on.wait(WAIT_S))
        return self._function(*args, **named)

    async def watched(self, work: Coroutine[Any, Any, Result]) -> Result:
        """What comes of work in this loop, which is watched meanwhile."""
        going_on = asyncio.create_task(self._go_on())
        try:
            return await work
        finally:
            going_on.cancel()

    async def _go_on(self) -> None:
        while True:
            self._went_on.set()
            await asyncio.sleep(0.001)

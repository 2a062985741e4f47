"""What is for an event loop, used by threads that wait."""

from __future__ import annotations

import inspect
from typing import Any

from hqueue.runtime.stepwise import BoundWork, Stepwise
from tests.support.looped import LoopThread

__all__ = ["Awaited", "LoopedSteps"]


class Awaited:
    """The methods of something that is for an event loop.

    Args:
        of: it.
        thread: runs the loop.
    """

    def __init__(self, of: Any, thread: LoopThread) -> None:
        self.of = of
        self.thread = thread

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.of, name)
        if not callable(found):
            return found

        async def called(*given: Any, **named: Any) -> Any:
            answer = found(*given, **named)
            return await answer if inspect.isawaitable(answer) else answer

        return lambda *given, **named: self.thread.run(called(*given, **named))


class LoopedSteps:
    """The methods of something that is `Stepwise`, carried out in an event loop.

    Args:
        of: it.
        thread: runs the loop.
    """

    def __init__(self, of: Stepwise, thread: LoopThread) -> None:
        self._of = of
        self._thread = thread

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._of, name)
        if not isinstance(found, BoundWork):
            return found
        return lambda *given, **named: self._thread.run(found.in_loop(*given, **named))

"""An object whose methods are `hqueue.runtime.stepwise`, used by an event loop, behind the face for
threads: so what is promised of both is tested by the same tests.
"""

from __future__ import annotations

from typing import Any

from hqueue.runtime.stepwise import BoundWork
from tests.support.looped import LoopThread

__all__ = ["StepsInLoop"]


class StepsInLoop:
    """Has the work of each method carried out in a loop. What is no such method is the object's.

    Args:
        of: the object.
        thread: runs the loop.
    """

    def __init__(self, of: Any, thread: LoopThread) -> None:
        self.of = of
        self.thread = thread

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.of, name)
        if not isinstance(found, BoundWork):
            return found

        def call(*given: Any, **named: Any) -> Any:
            return self.thread.run(found.in_loop(*given, **named))

        return call

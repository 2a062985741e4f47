"""Whether an event loop goes on while something is computed, and how long it stands still."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

__all__ = ["LoopWatch", "longest_turn_ms"]

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


BEAT_S = 0.001

SCHEDULED = Path("/proc/thread-self/schedstat")


async def longest_turn_ms(work: Callable[[], Coroutine[Any, Any, object]]) -> float:
    """How long this loop stood still at most while something was done, by what this process did.

    A task that wakes every millisecond shows it, wherever the time goes: in a callback of the loop,
    or in another thread that does not give up Python's lock. A loaded machine delays the task, too:
    so no longer time counts than the process used of a processor meanwhile, and none in which the
    loop's thread waited for one. Python's garbage collector is off: how long it takes depends on
    all that the program keeps.
    """
    longest_s = 0.0

    async def beat() -> None:
        nonlocal longest_s
        before = _clocks()
        while True:
            await asyncio.sleep(BEAT_S)
            now = _clocks()
            wall_s, used_s, waited_s = (end - start for start, end in zip(before, now, strict=True))
            longest_s = max(longest_s, min(wall_s - BEAT_S - waited_s, used_s))
            before = now

    gc.collect()
    gc.disable()
    beating = asyncio.create_task(beat())
    try:
        await asyncio.sleep(0)
        await work()
        await asyncio.sleep(2 * BEAT_S)  # The last turn counts, too.
    finally:
        beating.cancel()
        gc.enable()
    return longest_s * 1e3


def _clocks() -> tuple[float, float, float]:
    """The time, that of a processor which this process used, and that for which this thread waited
    for one, as far as the system knows.
    """
    waited_ns = SCHEDULED.read_text().split()[1] if SCHEDULED.exists() else "0"
    return time.perf_counter(), time.process_time(), int(waited_ns) / 1e9

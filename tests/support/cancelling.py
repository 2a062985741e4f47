"""Cancelling a coroutine at each of its awaits, one after the other."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Coroutine, Generator
from typing import Any

__all__ = ["AWAITS_MAX", "Cut", "each_await"]

AWAITS_MAX = 120


class Cut:
    """Awaits a coroutine, and cancels the task that does when it waits for the n-th time.

    Args:
        work: the coroutine.
        number: at which of its waits, from 0.
        again: whether it is cancelled at the next one, too.
    """

    def __init__(self, work: Coroutine[Any, Any, Any], number: int, *, again: bool = False) -> None:
        self._work = work
        self._numbers = (number, number + 1) if again else (number,)
        self.was_cut = False

    def __await__(self) -> Generator[Any, Any, Any]:
        steps = self._work.__await__()
        error: BaseException | None = None
        for number in itertools.count():
            try:
                waited = steps.send(None) if error is None else steps.throw(error)
            except StopIteration as end:
                return end.value
            if number in self._numbers:
                self.was_cut = True
                task = asyncio.current_task()
                assert task is not None
                task.cancel()
            error = None
            try:
                yield waited
            except BaseException as exc:
                error = exc


async def each_await(
    use: Callable[[Callable[..., Any]], Coroutine[Any, Any, object]], *, again: bool = False
) -> int:
    """Use something again and again, with a function that cuts one of its calls at its first await,
    then at its second, and so on; how many awaits were cut.

    Args:
        use: gets the function: ``await cut(call())`` awaits the call in a task of its own, which is
            cancelled; whether it was.
        again: whether each is cancelled at the next await, too.
    """
    for number in range(AWAITS_MAX):
        was_cut = False

        async def cut(work: Coroutine[Any, Any, Any], number: int = number) -> bool:
            nonlocal was_cut
            cutting = Cut(work, number, again=again)

            async def awaited() -> None:
                await cutting

            try:
                await asyncio.ensure_future(awaited())
            except asyncio.CancelledError:
                if not cutting.was_cut:
                    raise
            was_cut = cutting.was_cut
            return was_cut

        await use(cut)
        if not was_cut:
            return number
    return AWAITS_MAX

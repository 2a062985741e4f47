"""A log's port for event loops that cancels the one who asks, once, at a request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from hqueue.log.table_ports import AsyncLogPort

__all__ = ["BEFORE", "CuttingPort", "each_cut"]

BEFORE, WHILE, AFTER = "before", "while", "after"


class CuttingPort:
    """Passes requests on; at the one of a number it cancels the task that makes it.

    Args:
        port: where they go.
        number: which one, from 0.
        moment: whether before it is made, while nobody knows of its answer, or when it is
            answered.
    """

    def __init__(self, port: AsyncLogPort, number: int, moment: str) -> None:
        self._port = port
        self._left = number
        self._moment = moment
        self.was_cut = False

    def __getattr__(self, name: str) -> Callable[..., Coroutine[Any, Any, Any]]:
        return self._passing(getattr(self._port, name))

    async def open(self, *args: Any) -> _CuttingStream:
        return _CuttingStream(self, await self._passing(self._port.open)(*args))

    def _passing(
        self, call: Callable[..., Coroutine[Any, Any, Any]]
    ) -> Callable[..., Coroutine[Any, Any, Any]]:
        async def passed(*args: Any) -> Any:
            self._left -= 1
            if self._left != -1:
                return await call(*args)
            self.was_cut = True
            task = asyncio.current_task()
            assert task is not None
            if self._moment == BEFORE:
                task.cancel()
                await asyncio.sleep(0)
            answer = await call(*args)
            task.cancel()
            if self._moment == WHILE:
                await asyncio.sleep(0)
            return answer

        return passed


class _CuttingStream:
    def __init__(self, port: CuttingPort, stream: Any) -> None:
        self.read = port._passing(stream.read)
        self.close = port._passing(stream.close)


def each_cut(first: int = 0) -> list[tuple[int, str]]:
    """Requests and moments to cut off at, from one on: more than the tests have."""
    return [
        (number, moment) for number in range(first, first + 12) for moment in (BEFORE, WHILE, AFTER)
    ]

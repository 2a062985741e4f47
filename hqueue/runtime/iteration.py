"""Iterations in event loops that a cancelled caller may continue."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from types import AsyncGeneratorType
from typing import TypeVar, cast

__all__ = ["Iteration"]

Item = TypeVar("Item")


class Iteration(AsyncIterator[Item]):
    """An iteration by a generator. If a caller is cancelled, the next call continues: a generator
    alone would have ended, as if there were no more.

    Args:
        generate: makes the generator; called again for one that continues after a cancellation.
    """

    def __init__(self, generate: Callable[[], AsyncGenerator[Item, None]]) -> None:
        self._generate = cast("Callable[[], AsyncGeneratorType[Item, None]]", generate)
        self._generator = self._generate()
        self._closed = False

    def __aiter__(self) -> Iteration[Item]:
        return self

    def __anext__(self) -> Awaitable[Item]:
        if self._generator.ag_frame is None and not self._closed:
            self._generator = self._generate()
        return self._generator.__anext__()

    async def aclose(self) -> None:
        """End the iteration."""
        self._closed = True
        await self._generator.aclose()

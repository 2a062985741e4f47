"""Topics' metadata of `hqueue.aio` behind the blocking one's face."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator
from typing import Any

import hqueue.aio
from hqueue.metadata import managers
from hqueue.metadata.managers import following
from tests.support.looped import LoopThread

__all__ = ["looped_metadata"]


def looped_metadata(awaited: object, thread: LoopThread) -> Any:
    """An object of `hqueue.aio` by the face of its namesake in `hqueue.metadata.managers`: its
    coroutines go on in a loop's thread. Where the namesake returns a future, so does this.
    """
    return _Looped(awaited, thread)


class _Looped:
    def __init__(self, awaited: object, thread: LoopThread) -> None:
        self._awaited = awaited
        self._thread = thread
        self._blocking = getattr(managers, type(awaited).__name__)

    def __enter__(self) -> _Looped:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __getattr__(self, name: str) -> Any:
        item = getattr(self._awaited, name)
        if not inspect.ismethod(item):
            return self._faced(item)
        face = getattr(self._blocking, name)
        if isinstance(face, property):
            return self._thread.run(item())
        if type(face).__module__ == following.__name__:
            return lambda *args: asyncio.run_coroutine_threadsafe(item(*args), self._thread.loop)
        return lambda *args, **named: self._called(item, args, named)

    def _called(self, method: Any, args: Any, named: Any) -> Any:
        async def call() -> Any:
            answer = method(*args, **named)
            if isinstance(answer, AsyncIterator):
                return iter([each async for each in answer])
            return await answer if inspect.isawaitable(answer) else answer

        return self._faced(self._thread.run(call()))

    def _faced(self, item: object) -> object:
        is_ours = type(item).__module__.startswith(hqueue.aio.__name__)
        return _Looped(item, self._thread) if is_ours else item

"""The two faces of a queue, the blocking one and asyncio's, behind the former's calls: so what is
promised of both is tested by the same tests.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import hqueue
import hqueue.aio
from tests.support.looped import LoopThread

__all__ = ["QueueFace", "queue_face_of"]

QueueFace = Callable[[hqueue.Client, hqueue.Queue], Any]
"""What has the calls of a blocking queue, for a queue and its client."""


@contextlib.contextmanager
def queue_face_of(name: str) -> Iterator[QueueFace]:
    """The face of this name, ``threads`` or ``asyncio``."""
    if name == "threads":
        yield lambda client, queue: queue
        return
    with contextlib.closing(LoopThread()) as thread:

        def looped(client: hqueue.Client, queue: hqueue.Queue) -> Any:
            return _Looped(thread.run(hqueue.aio.Client(client).queue(queue.name)), thread)

        yield looped


class _Looped:
    """An object of asyncio's face, whose calls are made in an event loop."""

    def __init__(self, awaited: Any, thread: LoopThread) -> None:
        self._awaited = awaited
        self._thread = thread

    def __enter__(self) -> _Looped:
        return self

    def __exit__(self, *exc: object) -> None:
        self._thread.run(self._awaited.close())

    def __iter__(self) -> Iterator[Any]:
        return self._each(aiter(self._awaited))

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._awaited, name)
        if inspect.ismethod(found):
            return lambda *given, **options: self._call(found, *given, **options)
        return self._faced(found)

    def _call(self, method: Callable[..., Any], *given: Any, **options: Any) -> Any:
        async def called() -> Any:
            answer = method(*given, **options)
            return await answer if inspect.iscoroutine(answer) else answer

        return self._faced(self._thread.run(called()))

    def _faced(self, answer: Any) -> Any:
        if type(answer).__module__.startswith("hqueue.aio."):
            return _Looped(answer, self._thread)
        return self._each(answer) if isinstance(answer, AsyncIterator) else answer

    def _each(self, given: AsyncIterator[Any]) -> Iterator[Any]:
        async def following() -> tuple[Any, ...]:
            async for item in given:
                return (item,)
            return ()

        while some := self._thread.run(following()):
            yield some[0]

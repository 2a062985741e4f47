"""The two faces of a client of hubs, the blocking one and asyncio's, behind the former's calls: so
what is promised of both is tested by the same tests.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import hqueue
import hqueue.aio
from hqueue.topics.exchanges import Exchange
from tests.support.looped import LoopThread

__all__ = ["after_exchanges", "both_faces", "connected", "face_of"]

both_faces = pytest.mark.parametrize("hub_face", ["threads", "asyncio"], indirect=True)
"""The test runs with clients of both faces: `hqueue.connect_hubs` makes them."""


@contextlib.contextmanager
def face_of(name: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let `hqueue.connect_hubs` make clients of a face."""
    if name == "threads":
        yield
        return
    with contextlib.closing(LoopThread()) as thread:
        opened: list[hqueue.aio.HubClient] = []

        def connect(hubs: Any, **options: Any) -> Any:
            client = hqueue.aio.connect_hubs(hubs, **options)
            opened.append(client)
            return _Looped(client, thread)

        monkeypatch.setattr(hqueue, "connect_hubs", connect)
        yield
        for client in opened:
            thread.run(client.close())


@contextlib.contextmanager
def connected(hubs: Any, *, in_loop: bool, **options: Any) -> Iterator[Any]:
    """A client of either face, with the blocking one's calls."""
    if not in_loop:
        with hqueue.connect_hubs(hubs, **options) as client:
            yield client
        return
    with contextlib.closing(LoopThread()) as thread:
        client = _Looped(hqueue.aio.connect_hubs(hubs, **options), thread)
        with client:
            yield client


class _Looped:
    """An object of asyncio's face, with the blocking one's calls."""

    def __init__(self, awaited: Any, thread: LoopThread) -> None:
        self._awaited = awaited
        self._thread = thread

    def __enter__(self) -> _Looped:
        return self

    def __exit__(self, *exc: object) -> None:
        self._thread.run(self._awaited.close())

    def __iter__(self) -> Iterator[Any]:
        while (message := self.next()) is not None:
            yield message

    def __getattr__(self, name: str) -> Any:
        if name == "partitions":
            return self._call(self._awaited.partitions)
        if name == "subscriptions":
            return [_Looped(each, self._thread) for each in self._awaited.subscriptions]
        found = getattr(self._awaited, name)
        if not inspect.ismethod(found) or name == "messages":  # These are for the caller's loop.
            return found
        return lambda *given, **options: self._call(found, *given, **options)

    def wait(self, timeout_s: float | None = None) -> bool:
        return self._bounded(self._awaited.wait(), timeout_s)

    def result(self, timeout_s: float | None = None) -> Any:
        async def awaited() -> Any:
            return await self._awaited

        assert self._bounded(self._settled(), timeout_s)
        return self._thread.run(awaited())

    def exception(self, timeout_s: float | None = None) -> BaseException | None:
        assert self._bounded(self._settled(), timeout_s)
        error: BaseException | None = self._awaited.exception()
        return error

    async def _settled(self) -> None:
        with contextlib.suppress(hqueue.HQueueError):
            await self._awaited

    def flush(self, timeout_s: float | None = None) -> bool:
        return self._bounded(self._awaited.flush(), timeout_s)

    def _bounded(self, work: Any, timeout_s: float | None) -> bool:
        async def bounded() -> bool:
            try:
                # Even what takes no time has its turn within a bound of 0.
                await asyncio.wait_for(work, None if timeout_s is None else timeout_s + 0.1)
            except asyncio.TimeoutError:
                return False
            return True

        return self._thread.run(bounded())

    def _call(self, method: Any, *given: Any, **options: Any) -> Any:
        async def called() -> Any:
            answer = method(*given, **options)
            return await answer if inspect.iscoroutine(answer) else answer

        answer = self._thread.run(called())
        is_face = type(answer).__module__.startswith("hqueue.aio.")
        return _Looped(answer, self._thread) if is_face else answer


def after_exchanges(
    monkeypatch: pytest.MonkeyPatch, calls: Any, then: Callable[[Exchange], object]
) -> None:
    """Have something called when a server has answered a call, in either face. What it raises comes
    in place of the answer.
    """
    blocking, looped = calls._connections, calls._loop_connections
    exchange, exchange_in_loop = blocking.exchange, looped.exchange

    def exchanged(call: Exchange) -> Any:
        answer = exchange(call)
        then(call)
        return answer

    async def exchanged_in_loop(call: Exchange) -> Any:
        answer = await exchange_in_loop(call)
        then(call)
        return answer

    monkeypatch.setattr(blocking, "exchange", exchanged)
    monkeypatch.setattr(looped, "exchange", exchanged_in_loop)

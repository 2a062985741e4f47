"""An asynchronous subscriber behind the blocking one's face: so what is promised of both is tested
by the same tests.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import hqueue
import hqueue.aio
from hqueue import MessageListener
from hqueue.settings.kinds import is_async
from tests.support.looped import LoopThread

__all__ = ["LoopedSubscriber"]


class LoopedSubscriber:
    """Has each call made in an event loop of its own, which ends with the subscriber.

    Args:
        client: the client.
        queue: the queue's name.
        listeners: plain ones are called by threads, for they may block.
        args, options: as `hqueue.Queue.subscriber` takes them.
    """

    def __init__(
        self, client: hqueue.Client, queue: str, subscription: Any, listeners: Any, **options: Any
    ) -> None:
        self._thread = LoopThread()
        self._closed = False
        several = listeners if isinstance(listeners, Sequence) else [listeners]
        beside = [_beside(each) if _blocks(each) else each for each in several]

        async def make() -> hqueue.aio.Subscriber:
            opened = await hqueue.aio.Client(client).queue(queue)
            return opened.subscriber(subscription, beside, **options)

        try:
            self._subscriber = self._thread.run(make())
        except BaseException:
            self._thread.close()
            raise

    def __enter__(self) -> LoopedSubscriber:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._subscriber, name)
        return partial(self._call, found) if inspect.ismethod(found) else found

    def start(self) -> None:
        try:
            self._call(self._subscriber.start)
        except BaseException:
            self._end()
            raise

    def stop(self, reason: str = "") -> bool:
        if self._closed:
            return True
        drained: bool = self._call(self._subscriber.stop, reason)
        self._end()
        return drained

    def wait(self, timeout_s: float | None = None) -> bool:
        try:
            self._thread.run(asyncio.wait_for(self._subscriber.wait(), timeout_s))
        except asyncio.TimeoutError:
            return False
        return True

    def _call(self, method: Callable[..., Any], *args: Any) -> Any:
        async def call() -> Any:
            answer = method(*args)
            return await answer if inspect.isawaitable(answer) else answer

        return self._thread.run(call())

    def _end(self) -> None:
        if not self._closed:
            self._closed = True
            self._thread.close()


def _blocks(listener: Any) -> bool:
    function = listener.consume if isinstance(listener, MessageListener) else listener
    return callable(function) and not isinstance(listener, type) and not is_async(function)


def _beside(listener: Any) -> Callable[..., Any]:
    function = listener.consume if isinstance(listener, MessageListener) else listener

    async def consume(messages: Sequence[hqueue.ReceivedMessage]) -> Any:
        answer = await asyncio.to_thread(function, messages)
        return await answer if inspect.isawaitable(answer) else answer

    return consume

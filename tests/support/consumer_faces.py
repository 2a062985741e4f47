"""An asynchronous consumer or processor behind the blocking one's face: so what is promised of both
is tested by the same tests.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Any

import hqueue
import hqueue.aio
from hqueue import HQueueError, MessageID, PartitionKey
from tests.support.looped import LoopThread

__all__ = ["LoopedConsumer", "LoopedProcessor", "LoopedShareConsumer"]

CALLBACKS = ("on_assigned", "on_revoked", "on_lost")


class LoopedConsumer:
    """Has each call made in an event loop of its own, which ends with the consumer.

    Args:
        args, client, options: as `hqueue.Consumer` takes them.
    """

    kind: Any = hqueue.aio.Consumer

    def __init__(self, *args: Any, client: hqueue.Client, **options: Any) -> None:
        self._thread = LoopThread()
        self._closed = False
        try:
            self._consumer = self._thread.run(_begun(self.kind, *args, client=client, **options))
        except BaseException:
            self._thread.close()
            raise

    def __enter__(self) -> Any:
        return self

    def __exit__(self, kind: Any, *exc: Any) -> None:
        self._run(partial(self._consumer.__aexit__, kind, *exc))
        self._end()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._consumer, name)
        return partial(self._call, found) if callable(found) else found

    def __iter__(self) -> Iterator[hqueue.ConsumedMessage]:
        return self.messages()

    def subscribe(self, *args: Any, **named: Any) -> None:
        """Callbacks of tests call the consumer, which a thread may do, and the loop may not."""
        for name in filter(named.get, CALLBACKS):
            named[name] = partial(_in_thread, named[name])
        self._call(self._consumer.subscribe, *args, **named)

    def messages(self, **how: Any) -> Iterator[hqueue.ConsumedMessage]:
        return self._each(self._consumer.messages(**how))

    def arrow_batches(self, **how: Any) -> Iterator[Any]:
        return self._each(self._consumer.arrow_batches(**how))

    def commit_async(self, positions: Any, on_commit: Callable[..., object]) -> None:
        """A task that awaits the commit. The positions are a mapping, or a message."""

        async def commit() -> None:
            error: HQueueError | None = None
            try:
                await self._consumer.commit(positions)
            except HQueueError as exc:
                error = exc
            on_commit(_offsets(positions), error)

        asyncio.run_coroutine_threadsafe(commit(), self._thread.loop)

    def close(self, **how: Any) -> None:
        if not self._closed:
            self._run(partial(self._consumer.close, **how))
            self._end()

    def request_stop(self) -> None:
        self._consumer.request_stop()

    def _end(self) -> None:
        self._closed = True
        self._thread.close()

    def _each(self, given: AsyncIterator[Any]) -> Iterator[Any]:
        while not self._closed:
            try:
                yield self._run(partial(anext, given))
            except StopAsyncIteration:
                return

    def _call(self, call: Callable[..., Any], *args: Any, **named: Any) -> Any:
        return self._run(partial(call, *args, **named))

    def _run(self, call: Callable[[], Any]) -> Any:
        if self._closed:
            raise hqueue.ClosedError("the consumer was closed")
        return self._thread.run(_awaited(call))


class LoopedShareConsumer(LoopedConsumer):
    """A share consumer, likewise."""

    kind = hqueue.aio.ShareConsumer


class LoopedProcessor:
    """An `ExactlyOnceProcessor`, likewise.

    Args:
        source, target, group, process, client, options: as `hqueue.ExactlyOnceProcessor` takes
            them.
    """

    def __init__(
        self,
        source: str,
        target: str,
        group: str,
        process: hqueue.typing.Process,
        *,
        client: hqueue.Client,
        **options: Any,
    ) -> None:
        async def processed(message: hqueue.ReceivedMessage) -> Any:
            """It may call the processor, which a thread may do, and the loop may not."""
            results: Any = await asyncio.to_thread(process, message)
            return await results if inspect.isawaitable(results) else results

        self._processor = hqueue.aio.ExactlyOnceProcessor(
            source, target, group, processed, client=hqueue.aio.Client(client), **options
        )
        self._thread = LoopThread()

    def __enter__(self) -> LoopedProcessor:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
        self._thread.close()

    def run(self, *, idle_ms_max: float | None = None) -> int:
        return self._thread.run(self._processor.run(idle_ms_max=idle_ms_max))

    def request_stop(self) -> None:
        self._processor.request_stop()

    def close(self) -> None:
        self._thread.run(self._processor.close())


async def _begun(kind: Any, *args: Any, client: hqueue.Client, **options: Any) -> Any:
    return await kind(*args, client=hqueue.aio.Client(client), **options).__aenter__()


async def _awaited(call: Callable[[], Any]) -> Any:
    result = call()
    return await result if inspect.isawaitable(result) else result


async def _in_thread(callback: Callable[..., object], keys: list[PartitionKey]) -> None:
    await asyncio.to_thread(callback, keys)


def _offsets(positions: Any) -> dict[PartitionKey, MessageID]:
    if isinstance(positions, hqueue.ConsumedMessage):
        return {PartitionKey(positions.queue, positions.partition): positions.id.next()}
    return dict(positions)

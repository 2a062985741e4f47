"""Where an asynchronous scanner has its batches from: requests that go on beside it.

A task of the event loop makes each request, and a scanner waits for tasks: a caller who is
cancelled while it waits cancels no request, and loses no batch.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
from collections.abc import Coroutine, Sequence
from typing import Any, Protocol

from hqueue.consume.fetcher import Fetch, Fetcher, Pace
from hqueue.consume.prefetch import PREFETCH_REQUESTS
from hqueue.consume.queue_reader import LoopReader
from hqueue.errors import ClosedError, HQueueError
from hqueue.log import Batch, PartitionCursor
from hqueue.runtime.program_loop import forget_error

__all__ = ["Follower", "Prefetcher", "Source", "closed_error", "started"]

FOLLOWED_MAX = 2
"""This many answers of a follower wait to be taken."""


class Source(Protocol):
    """Gives batches, some at a time."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The loop in which it has to be closed; None if it holds nothing."""

    async def next(self) -> list[Batch]:
        """The next ones; none at the end. A caller who is cancelled loses nothing.

        Raises:
            HQueueError: as `LoopReader.read`.
        """

    async def close(self) -> None:
        """Ask for nothing more, and free what is held in the store. Cancels what is under way.
        Never raises.
        """


class Prefetcher:
    """Gives the batches of some partitions up to their ends: those of one in order, those of
    several in turns. While some are used, the next ones are on their way.

    Args:
        reader: of the queue.
        cursors: in different partitions; nobody else reads with them.
    """

    def __init__(self, reader: LoopReader, cursors: Sequence[PartitionCursor]) -> None:
        self._reader = reader
        self._cursors = cursors
        self._fetcher = Fetcher(Fetch(cursor, Pace(), 0.0) for cursor in cursors)
        self._asked: collections.deque[tuple[PartitionFetch, asyncio.Task[list[Batch]]]]
        self._asked = collections.deque()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        return self._loop if self._asked or _hold(self._cursors) else None

    async def next(self) -> list[Batch]:
        self._loop = asyncio.get_running_loop()
        while True:
            self._ask()
            if not self._asked:
                return []
            fetch, request = self._asked[0]
            await asyncio.wait([request])
            if self._closed:  # By another task.
                raise closed_error()
            self._asked.popleft()
            batches = request.result()
            if not fetch.reader.at_tail:
                self._fetcher.request(fetch)
            self._ask()
            if batches:
                return batches

    async def close(self) -> None:
        self._closed = True
        requests = [request for _, request in self._asked]
        self._asked.clear()
        await _cancelled(requests)
        await _released(self._reader, self._cursors)

    def _ask(self) -> None:
        while len(self._asked) < PREFETCH_REQUESTS:
            fetch = self._fetcher.take_first(0.0)
            if fetch is None:
                return
            self._asked.append((fetch, started(self._reader.read(fetch.reader))))


class Follower:
    """Gives what comes in some partitions, as it comes.

    Args:
        reader: of the queue.
        cursors: in different partitions; nobody else reads with them.
        bytes_max: the bodies asked for in one request, about; at least one batch.
        idle_ms_max: end after this long without a batch; None for never.
    """

    def __init__(
        self,
        reader: LoopReader,
        cursors: Sequence[PartitionCursor],
        bytes_max: int,
        idle_ms_max: int | None,
    ) -> None:
        self._reader = reader
        self._cursors = cursors
        self._batches = reader.follow(cursors, bytes_max, idle_ms_max=idle_ms_max)
        self._ready: asyncio.Queue[list[Batch] | BaseException] = asyncio.Queue(FOLLOWED_MAX)
        self._following: asyncio.Task[None] | None = None
        self._ended = False

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        following = self._following
        if following is None or (following.done() and not _hold(self._cursors)):
            return None
        return following.get_loop()

    async def next(self) -> list[Batch]:
        if self._following is None:
            self._following = started(self._follow())
        came: list[Batch] | BaseException = [] if self._ended else await self._ready.get()
        if isinstance(came, BaseException):
            raise came
        self._ended = not came
        return came

    async def close(self) -> None:
        if self._following is not None:
            await _cancelled([self._following])
        while not self._ready.empty():
            self._ready.get_nowait()
        self._ready.put_nowait(closed_error())  # For another task that waits.
        await _released(self._reader, self._cursors)

    async def _follow(self) -> None:
        try:
            async for batches in self._batches:
                await self._ready.put(batches)
            await self._ready.put([])
        except asyncio.CancelledError:
            raise
        except BaseException as exc:  # The scanner raises it.
            await self._ready.put(exc)


PartitionFetch = Fetch[PartitionCursor]


def closed_error() -> ClosedError:
    """The error of calls to a scanner that was closed."""
    return ClosedError("the scanner was closed: open another one")


def started(work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    """A task whose error is not reported as one that nobody learned: it may be given up."""
    task = asyncio.get_running_loop().create_task(work)
    task.add_done_callback(forget_error)
    return task


def _hold(cursors: Sequence[PartitionCursor]) -> bool:
    return any(cursor.holds for cursor in cursors)


async def _cancelled(tasks: Sequence[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)


async def _released(reader: LoopReader, cursors: Sequence[PartitionCursor]) -> None:
    for cursor in cursors:
        if cursor.holds:
            with contextlib.suppress(HQueueError):  # It expires by itself.
                await reader.release(cursor)

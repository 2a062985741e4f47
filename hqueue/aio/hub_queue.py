"""A whole queue, put to and scanned through hubs in an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from typing import overload

from hqueue.aio.loops import AT_ONCE, check_loop, collected
from hqueue.errors import ClosedError
from hqueue.message import Message, ReceivedMessage
from hqueue.message_id import MessageID
from hqueue.position import Position
from hqueue.runtime.program_loop import ProgramLoop
from hqueue.topics.api_calls import ApiCalls
from hqueue.topics.hub_scan import HubScan
from hqueue.topics.queue_requests import QueueRequests

__all__ = ["HubQueue", "HubScanner"]

CLOSED = "the scanner was closed: open another one"
END_S = 10.0
"""How long a request that was cancelled may take to end."""


class HubScanner:
    """Reads a queue, or one of its partitions, through hubs. Like `hqueue.HubScanner`: ``async
    for`` iterates over messages. Made by `HubQueue.scan`.

    A caller that is cancelled while it waits for a message loses none: the next call returns it.
    Use the scanner as an asynchronous context manager, or `close` it. After an error every further
    call raises that error. Only one task at a time may use it.

    Args:
        scan: reads the messages to return.
        queue: the queue, which the scanner keeps alive.
    """

    def __init__(self, scan: HubScan, queue: HubQueue) -> None:
        self._scan = scan
        self._queue = queue
        self._tasks: ProgramLoop | None = None
        """Those of the loop that uses it, from the first call on."""
        self._fetching: asyncio.Task[None] | None = None
        self._given = 0
        self._closed = False
        self._failure: BaseException | None = None

    async def __aenter__(self) -> HubScanner:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    def __aiter__(self) -> HubScanner:
        return self

    async def __anext__(self) -> ReceivedMessage:
        following = await self.next()
        if following is None:
            raise StopAsyncIteration
        return following

    async def next(self) -> ReceivedMessage | None:
        """Return the next message; None at the end. Raises like `hqueue.HubScanner.next`."""
        self._here()
        if self._closed:
            raise ClosedError(CLOSED)
        if self._failure is not None:
            raise self._failure
        self._given += 1
        if not self._given % AT_ONCE:
            await asyncio.sleep(0)  # A loop that takes messages lets others have turns.
        while (message := self._scan.take()) is None and not self._scan.at_end:
            await self._fetch()
        return message

    async def close(self) -> None:
        """End the scan, and close its scanners at the hubs. If the caller is cancelled, the close
        continues in the background.
        """
        self._closed = True
        if self._tasks is not None and self._tasks.loop.is_closed():
            return  # So are its connections.
        tasks = self._here()
        await tasks.close(END_S)
        await tasks.run(self._scan.close.in_loop())

    async def _fetch(self) -> None:
        """Wait for a request, which goes on if the caller is cancelled."""
        if self._fetching is None:
            self._fetching = self._here().begin(self._scan.fetch.in_loop())
        fetching = self._fetching
        await asyncio.wait([fetching])
        if self._closed:  # By another task.
            raise ClosedError(CLOSED)
        self._fetching = None
        self._failure = fetching.exception()
        if self._failure is not None:
            raise self._failure

    def _here(self) -> ProgramLoop:
        if self._tasks is None:
            self._tasks = ProgramLoop()
        check_loop(self._tasks.loop, "a scanner")
        return self._tasks


class HubQueue:
    """A queue to put messages into and to scan through hubs. Like `hqueue.HubQueue`, for any number
    of event loops. Made by `HubClient.queue`.

    Args:
        name: the queue.
        calls: calls the API.
        client: the client, which the queue keeps alive.
    """

    def __init__(self, name: str, calls: ApiCalls, client: object = None) -> None:
        self.name = name
        self._requests = QueueRequests(name, calls)
        self._client = client

    async def partitions(self) -> int:
        """The number of partitions. Like `hqueue.HubQueue.partitions`, which is a property."""
        return await self._requests.partitions.in_loop()

    @overload
    async def put(
        self,
        messages: Message,
        *,
        partition: int | None = None,
        key: str | bytes | None = None,
        idempotency_key: str | bytes | None = None,
        since: Position | None = None,
    ) -> MessageID: ...
    @overload
    async def put(
        self,
        messages: Sequence[Message] | Iterator[Message],
        *,
        partition: int | None = None,
        key: str | bytes | None = None,
        idempotency_key: str | bytes | None = None,
        since: Position | None = None,
    ) -> Sequence[MessageID]: ...
    async def put(
        self,
        messages: Message | Sequence[Message] | Iterator[Message],
        *,
        partition: int | None = None,
        key: str | bytes | None = None,
        idempotency_key: str | bytes | None = None,
        since: Position | None = None,
    ) -> MessageID | Sequence[MessageID]:
        """Write one message, or several as one batch. Like `hqueue.HubQueue.put`. A thread encodes
        many messages. If the caller is cancelled, the messages may be in the log, now or a moment
        later; with an `idempotency_key` they can be put again.
        """
        return await self._requests.put.in_loop(
            await collected(messages), partition, key, idempotency_key, since
        )

    def scan(
        self,
        *,
        partition: int | None = None,
        start: Position | None = None,
        stop: Position | None = None,
        topics: Iterable[str] = (),
    ) -> HubScanner:
        """Open a scanner over one partition, or over all in the order of IDs, up to the end of the
        log. Like `hqueue.HubQueue.scan`.
        """
        return HubScanner(HubScan(self._requests, partition, start, stop, topics), self)

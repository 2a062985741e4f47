"""Scanning a topic that has an owner, in an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import TYPE_CHECKING

from hqueue.aio.loops import check_loop
from hqueue.aio.scanner import Scanner
from hqueue.aio.sources import closed_error
from hqueue.consume.queue_reader import LoopReader
from hqueue.consume.topic_ranges import TopicRanges
from hqueue.message import ReceivedMessage
from hqueue.runtime.iteration import Iteration
from hqueue.settings.limits import SCAN_BYTES_MAX
from hqueue.settings.numbers import check_whole

if TYPE_CHECKING:
    import pyarrow

__all__ = ["TopicScanner"]


class TopicScanner:
    """Reads a topic that has an owner, range after range, in an event loop. Like
    `hqueue.TopicScanner`: ``async for`` iterates over messages, and `arrow_batches` over record
    batches. Made by `Queue.scan_topic`.

    A caller that is cancelled while it waits for a message loses none: the next call returns it.
    Use the scanner as an asynchronous context manager, or `close` it. Only one task at a time may
    use it.

    Args:
        reader: the reader of the queue.
        ranges: the ranges to read.
        bytes_max: about how many bytes of bodies the scanner holds and fetches at a time.

    Raises:
        InvalidInputError: an argument is out of range.
    """

    def __init__(self, reader: LoopReader, ranges: TopicRanges, *, bytes_max: int) -> None:
        self._bytes_max = check_whole(bytes_max, 1, SCAN_BYTES_MAX, option="bytes_max")
        self._reader = reader
        self._ranges = ranges
        self._scanner: Scanner | None = None
        self._expired = 0
        self._closed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        """The one that uses it, from the first call on."""

    async def __aenter__(self) -> TopicScanner:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    def __aiter__(self) -> AsyncIterator[ReceivedMessage]:
        return Iteration(self._messages)

    async def _messages(self) -> AsyncGenerator[ReceivedMessage, None]:
        while (message := await self.next()) is not None:
            yield message

    async def __anext__(self) -> ReceivedMessage:
        message = await self.next()
        if message is None:
            raise StopAsyncIteration
        return message

    async def next(self) -> ReceivedMessage | None:
        """Return the next message; None at the end. Raises as `Scanner.next`."""
        while (scanner := self._current()) is not None:
            message = await scanner.next()
            if message is not None:
                return message
            await self._advance(scanner)
        return None

    def arrow_batches(self) -> AsyncIterator[pyarrow.RecordBatch]:
        """Iterate over the messages as Arrow record batches. Like
        `hqueue.TopicScanner.arrow_batches`; leaving or cancelling the iteration works as for
        `Scanner.arrow_batches`. Needs the extra ``hqueue-hbase[arrow]``. Raises as `next`.
        """
        return Iteration(self._arrow_batches)

    async def _arrow_batches(self) -> AsyncGenerator[pyarrow.RecordBatch, None]:
        while (scanner := self._current()) is not None:
            async for columns in scanner.arrow_batches():
                yield columns
            if scanner is self._scanner:  # Else `next` went on meanwhile.
                await self._advance(scanner)

    @property
    def expired(self) -> int:
        """How many messages of the log had expired before this scanner could read them."""
        return self._expired + (0 if self._scanner is None else self._scanner.expired)

    async def close(self) -> None:
        """End the scan, and free what it holds in HBase."""
        self._closed = True
        if self._scanner is not None:
            await self._scanner.close()

    def _current(self) -> Scanner | None:
        """What reads the range where it is; None after the last one."""
        self._loop = check_loop(self._loop, "a scanner")
        if self._closed:
            raise closed_error()
        if self._scanner is None and self._ranges.next is not None:
            partition, scan = self._ranges.next
            self._scanner = Scanner(self._reader, {partition: scan}, bytes_max=self._bytes_max)
        return self._scanner

    async def _advance(self, scanner: Scanner) -> None:
        """The log ended, or that range: go on with the next one, or where the log continues. If
        this is cancelled, the next call does the rest.
        """
        (position,) = scanner.positions().values()
        self._ranges.reach(int(position))
        self._scanner, self._expired = None, self._expired + scanner.expired
        await scanner.close()
        await self._reader.do_long(self._ranges.advance(int(position)))

"""Scanning a queue in an event loop."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import dataclasses
import functools
import heapq
import importlib
import itertools
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from hqueue.aio.loops import AT_ONCE, check_loop
from hqueue.aio.sources import Follower, Prefetcher, Source, closed_error, started
from hqueue.consume.decode import each_message_of
from hqueue.consume.queue_reader import LoopReader
from hqueue.consume.scan import Scan
from hqueue.consume.scanners import (
    MERGED_BYTES_MAX,
    MESSAGE_OVERHEAD_BYTES,
    CheckedOptions,
    ScannerOptions,
)
from hqueue.log import Batch
from hqueue.message import ReceivedMessage
from hqueue.message_id import MessageID
from hqueue.runtime.extras import needing_arrow
from hqueue.runtime.forgotten import Watched
from hqueue.runtime.iteration import Iteration
from hqueue.runtime.loop import computed, in_thread
from hqueue.settings.keyword_options import Unpack

if TYPE_CHECKING:
    import pyarrow

__all__ = ["Scanner"]

ARROW = "hqueue.consume.arrow"

SORTED_AT_ONCE = 200
"""After so many sorted messages other tasks have turns: to sort takes longer than to read."""


class Scanner:
    """Reads some partitions of a queue in an event loop. Like `hqueue.Scanner`: ``async for``
    iterates over messages, and `arrow_batches` over record batches.

    A caller that is cancelled while it waits for a message loses none: the next call returns it.
    Use the scanner as an asynchronous context manager, or `close` it: one that Python collects in
    the middle of its messages causes a `ResourceWarning`. After an error every further call raises
    that error; it never ends as if it had read everything. Only one task at a time may use it. Made
    by `Queue.scan`.

    Args:
        reader: the reader of the queue.
        scans: the `Scan` of each partition.
        options: see `ScannerOptions`.

    Raises:
        InvalidInputError: an argument is out of range.
    """

    def __init__(
        self, reader: LoopReader, scans: Mapping[int, Scan], **options: Unpack[ScannerOptions]
    ) -> None:
        checked = CheckedOptions.of(scans, **options)
        self._reader = reader
        self._cursors = [
            reader.cursor(partition, scan, checked.request_bytes_max)
            for partition, scan in sorted(scans.items())
        ]
        self._sources: list[Source]
        if checked.follow:
            bytes_max, idle_ms_max = checked.request_bytes_max, checked.idle_ms_max
            self._sources = [Follower(reader, self._cursors, bytes_max, idle_ms_max)]
        elif checked.merge_sorted:
            self._sources = [Prefetcher(reader, [cursor]) for cursor in self._cursors]
        else:
            self._sources = [Prefetcher(reader, self._cursors)]
        self._flows = [_Flow(reader, source) for source in self._sources]
        self._unsorted = collections.deque(self._flows)
        """Those whose next message is not in `_heads` yet."""
        self._heads: list[tuple[MessageID, int, ReceivedMessage, _Flow]] = []
        self._left = checked.limit
        """How many messages may still be given; None if that isn't limited."""
        self._merged: collections.deque[ReceivedMessage] = collections.deque()
        """Sorted messages for the next record batch."""
        self._turns = 0
        """How many messages were sorted."""
        self._closed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        """The one that uses it, from the first call on."""
        self._failure: BaseException | None = None
        self._watched = Watched(
            self,
            "an asynchronous scanner",
            functools.partial(_release, self._sources),
            functools.partial(_any_holds, self._sources),
        )

    async def __aenter__(self) -> Scanner:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    def __aiter__(self) -> AsyncIterator[ReceivedMessage]:
        # Python goes through a generator in half the time that it needs for `__anext__`.
        return Iteration(self._messages)

    async def _messages(self) -> AsyncGenerator[ReceivedMessage, None]:
        while (following := await self.next()) is not None:
            yield following
            if len(self._flows) == 1 and self._left is None:
                flow = self._flows[0]
                messages = flow.messages
                for message in messages:
                    yield message
                    if flow.messages is not messages:  # It was closed, or read in another way.
                        break

    async def __anext__(self) -> ReceivedMessage:
        following = await self.next()
        if following is None:
            raise StopAsyncIteration
        return following

    async def next(self) -> ReceivedMessage | None:
        """Return the next message; None at the end.

        Raises:
            StoreUnavailableError: HBase was unavailable for ``operation_timeout_ms``.
            CorruptLogError: the log is corrupt at this position.
            ClosedError: the scanner was closed.
        """
        self._check_usable()
        if self._left == 0:
            return None
        try:
            message = await self._next()
        except asyncio.CancelledError:
            raise
        except BaseException as exc:
            self._failure = exc
            raise
        if message is not None and self._left is not None:
            self._left -= 1
        return message

    async def _next(self) -> ReceivedMessage | None:
        if len(self._flows) == 1:
            return await self._flows[0].next()
        return self._merged.popleft() if self._merged else await self._sorted()

    async def _sorted(self) -> ReceivedMessage | None:
        self._turns += 1
        if not self._turns % SORTED_AT_ONCE:
            await asyncio.sleep(0)
        while self._unsorted:
            flow = self._unsorted[0]
            message = await flow.next()
            if message is not None:
                heapq.heappush(self._heads, (message.id, message.partition, message, flow))
            self._unsorted.popleft()
        if not self._heads:
            return None
        _, _, message, flow = heapq.heappop(self._heads)
        self._unsorted.append(flow)
        return message

    def arrow_batches(self) -> AsyncIterator[pyarrow.RecordBatch]:
        """Iterate over the messages as Arrow record batches. Like `hqueue.Scanner.arrow_batches`.
        If the caller leaves the iteration early, the next iteration or `next` returns the remaining
        messages; after a cancellation the same iteration can also continue. Needs the extra
        ``hqueue-hbase[arrow]``. Raises as `next`.
        """
        return Iteration(self._arrow_batches)

    async def _arrow_batches(self) -> AsyncGenerator[pyarrow.RecordBatch, None]:
        with needing_arrow():
            await in_thread(importlib.import_module, ARROW)  # It takes most of a second.
            from hqueue.consume.arrow import (  # noqa: PLC0415  (pyarrow is an extra)
                first_of,
                record_batch,
                record_batch_of,
            )

        while self._left != 0:
            self._check_usable()
            try:
                if len(self._flows) > 1:
                    columns = await self._sorted_columns(record_batch_of)
                else:
                    columns = await self._flows[0].columns(first_of, record_batch)
            except asyncio.CancelledError:
                raise
            except BaseException as exc:
                self._failure = exc
                raise
            if columns is None:
                return
            if self._left is not None:
                columns = columns.slice(0, self._left)
                self._left -= columns.num_rows
            if columns.num_rows:
                yield columns

    async def _sorted_columns(
        self, record_batch_of: Callable[[Sequence[ReceivedMessage]], pyarrow.RecordBatch]
    ) -> pyarrow.RecordBatch | None:
        # What a call that was cancelled has gathered counts: so it stays within the bound.
        left = MERGED_BYTES_MAX - sum(map(_size_of, self._merged))
        while left > 0 and (message := await self._sorted()) is not None:
            self._merged.append(message)
            left -= _size_of(message)
        if not self._merged:
            return None
        columns = await computed(record_batch_of, list(self._merged))
        self._merged.clear()
        return columns

    @property
    def expired(self) -> int:
        """How many messages of the log had expired before this scanner could read them."""
        return sum(cursor.expired for cursor in self._cursors)

    @property
    def skipped(self) -> int:
        """How many messages could not be read and were skipped, because an operator chose to skip
        their batches.
        """
        return sum(cursor.skipped for cursor in self._cursors)

    def positions(self) -> dict[int, MessageID]:
        """For each partition, the first ID that was not fetched yet."""
        return {each.partition: MessageID.from_int(each.cursor) for each in self._cursors}

    async def close(self) -> None:
        """End the scan, and free what it holds in HBase."""
        self._closed = True
        begun = [flow.drop() for flow in self._flows]
        if self._loop is not None and self._loop.is_closed():
            self._watched.closed()
            return  # So are its connections.
        self._loop = check_loop(self._loop, "a scanner")
        for messages in itertools.chain.from_iterable(begun):
            while next(itertools.islice(messages, AT_ONCE - 1, None), None) is not None:
                await asyncio.sleep(0)  # To free what was decoded of a batch takes time, too.
        for source in self._sources:
            await source.close()
        self._watched.closed()

    def _check_usable(self) -> None:
        self._loop = check_loop(self._loop, "a scanner")
        if self._closed:
            raise closed_error()
        if self._failure is not None:
            raise self._failure


def _any_holds(sources: Sequence[Source]) -> bool:
    return any(source.loop is not None for source in sources)


def _release(sources: Sequence[Source]) -> None:
    """Close the sources of a scanner that was forgotten, in the loop that they belong to."""
    for source in sources:
        loop = source.loop
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # It has ended.
                loop.call_soon_threadsafe(_close, source)


def _close(source: Source) -> None:
    started(source.close())


def _size_of(message: ReceivedMessage) -> int:
    return len(message.value) + MESSAGE_OVERHEAD_BYTES


class _Flow:
    """The batches of a source, one by one or in columns: each message is given once.

    Args:
        reader: of the queue.
        source: gives the batches.
    """

    def __init__(self, reader: LoopReader, source: Source) -> None:
        self.messages: Iterator[ReceivedMessage] = iter(())
        """Those that are given without waiting."""
        self._reader = reader
        self._source = source
        self._batches: collections.deque[Batch] = collections.deque()
        """What came and was not begun."""
        self._begun: tuple[Batch, Iterator[ReceivedMessage]] | None = None

    async def next(self) -> ReceivedMessage | None:
        """The next message; None at the end."""
        while True:
            for message in self.messages:
                return message
            if self._begun is not None:
                await asyncio.sleep(0)  # A loop that takes messages lets others have turns.
                batch, messages = self._begun
            elif await self._come():
                batch = self._batches[0]
                messages = await self._reader.decoded(batch, each_message_of)
                self._batches.popleft()
            else:
                return None
            following = next(messages, None)
            self._begun = None
            if following is not None:
                self._begun = batch, messages
                self.messages = itertools.chain(
                    (following,), itertools.islice(messages, AT_ONCE - 1)
                )

    async def columns(
        self,
        first_of: Callable[[Sequence[Batch]], Sequence[Batch]],
        record_batch: Callable[[Sequence[Batch]], pyarrow.RecordBatch],
    ) -> pyarrow.RecordBatch | None:
        """What `next` has not given, as a record batch of some messages; None at the end."""
        self._put_back()
        if not await self._come():
            return None
        batches = first_of(self._batches)
        columns = await self._reader.decoded_together(batches, record_batch)
        for _ in batches:
            self._batches.popleft()
        return columns

    def drop(self) -> Sequence[Iterator[ReceivedMessage]]:
        """Give no more. Returns what was decoded and not given."""
        begun = () if self._begun is None else (self.messages, self._begun[1])
        self._begun, self.messages = None, iter(())
        return begun

    async def _come(self) -> bool:
        """Whether there is a batch to begin: this waits for one."""
        while not self._batches:
            came = await self._source.next()
            if not came:
                return False
            self._batches.extend(came)
        return True

    def _put_back(self) -> None:
        """Let what is left of a begun batch be given in columns."""
        if self._begun is None:
            return
        batch, messages = self._begun
        following = next(self.messages, None) or next(messages, None)
        if following is not None:
            self._batches.appendleft(dataclasses.replace(batch, start=int(following.id)))
        self._begun, self.messages = None, iter(())

"""MessageScanner: reads a part of the log, for all its subscribers that are near each other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol, cast

from hqueue import HQueueError, MessageID, Queue, Scan
from hqueue.engine import Batch, LoopReader, PartitionCursor, TopicCursor
from hqueue.runtime.clock import Deadline
from hqueue_workers.delivery.poller import Poller, TailWaiter
from hqueue_workers.delivery.segment import (
    Segment,
    SubscriptionFilter,
    Window,
    cut_for,
    segments_of,
)
from hqueue_workers.node.runtime import RETRIES, Runtime

__all__ = ["CursorSource", "MessageScanner", "OpenSource", "Reading", "Source", "partition_opener"]


class Source(Protocol):
    """A part of the log, read in order from an ID on."""

    @property
    def at_tail(self) -> bool:
        """Whether the last read reached the end of the log, or of what may be read yet."""

    @property
    def cursor(self) -> int:
        """The ID from which another source would continue after this one."""

    @property
    def holds(self) -> bool:
        """Whether it holds anything in the store."""

    async def read(self, deadline: Deadline) -> list[Batch]:
        """The next batches.

        Raises:
            HQueueError: they can't be read until the deadline, or at all.
        """

    async def release(self) -> None:
        """Release what it holds in the store."""


OpenSource = Callable[[int, "frozenset[str] | None", int], Source]
"""Makes a source, given where it begins, the wanted topics, and the bytes of a request."""


class CursorSource:
    """A partition, or a topic, as a `Source`.

    Args:
        log: reads the queue.
        at: the cursor, which no other object uses.
    """

    def __init__(self, log: LoopReader, at: PartitionCursor | TopicCursor) -> None:
        self.at = at
        self._log = log

    @property
    def at_tail(self) -> bool:
        """Like `Source`."""
        return self.at.at_tail

    @property
    def cursor(self) -> int:
        """Like `Source`."""
        return self.at.cursor

    @property
    def holds(self) -> bool:
        """Like `Source`."""
        return self.at.holds

    async def read(self, deadline: Deadline) -> list[Batch]:
        """Like `Source`."""
        return await self._log.read(self.at, deadline)

    async def release(self) -> None:
        """Like `Source`."""
        await self._log.release(self.at)


def partition_opener(log: LoopReader, partition: int) -> OpenSource:
    """Make a function that opens sources of a partition."""

    def open_source(start: int, topics: frozenset[str] | None, bytes_max: int) -> Source:
        scan = Scan(MessageID.from_int(start), topics=topics or ())
        return CursorSource(log, log.cursor(partition, scan, bytes_max))

    return open_source


class Reading(Protocol):
    """A reader that a scanner reads the log for."""

    filter: SubscriptionFilter

    @property
    def position(self) -> int:
        """The ID from which on the reader still needs messages."""


class MessageScanner(Window):
    """A window of bounded size over a partition or a topic, which is read ahead of the foremost
    reader.

    The scanner reads when a reader waits at the window's end, and in advance while the foremost
    reader has less than half a window to go; otherwise it sleeps. It does not wait for slower
    readers: those that the window has passed need another scanner. At a partition's end the poller
    finds out when there are new batches.

    Used by the event loop's thread alone.

    Args:
        queue: the queue.
        open_source: makes what is read.
        runtime: what it runs on.
        bytes_max: what the window may weigh now, but for one batch.
        poller: looks for what comes at a partition's end; without one it is looked for now and
            then.
        patience: the bound on a read with its repetitions, after which those that wait get the
            error; None for none: it reads until it can.
    """

    def __init__(
        self,
        queue: Queue,
        open_source: OpenSource,
        runtime: Runtime,
        bytes_max: Callable[[], int],
        *,
        poller: Poller | None = None,
        patience: Callable[[], Deadline] | None = None,
    ) -> None:
        super().__init__(0)
        self.region_host: str | None = None
        """The host that serves the partition's region, if that is known."""
        self.filters: frozenset[SubscriptionFilter] = frozenset()
        self._queue = queue
        self._open_source = open_source
        self._patience = patience
        self._runtime = runtime
        self._bytes_max = bytes_max
        self._poller = poller
        self._for: set[Reading] = set()
        self._topics: frozenset[str] | None = frozenset()
        self.source = self._new_source()
        # One has the source at a time: a task that reads, or the poller.
        self._reading: asyncio.Task[None] | None = None
        self._polled = False
        self._waiting: list[asyncio.Future[None]] = []
        self._closed = False
        if poller is not None:
            poller.add(cast(TailWaiter, self))

    @property
    def partition(self) -> int:
        """The partition that it reads, if it reads one."""
        return self.cursor.partition

    @property
    def cursor(self) -> PartitionCursor:
        """Where it reads on, if it reads a partition."""
        return cast(PartitionCursor, cast(CursorSource, self.source).at)

    @property
    def at_tail(self) -> bool:
        """Whether the window ends where the partition's end was when last seen."""
        return self.source.at_tail

    @property
    def is_used(self) -> bool:
        """Whether it has any reader."""
        return bool(self._for)

    @property
    def is_wanted(self) -> bool:
        """Whether a reader waits at the window's end, or a read is under way."""
        return self._reading is not None or any(not each.done() for each in self._waiting)

    def join(self, reading: Reading) -> None:
        """Read for this reader, too. A reader ahead of all others takes the window along.

        If it needs topics that were not read so far, the window is dropped, because it has no
        messages of them: all readers before the window's end then read alone.
        """
        others = bool(self._for)
        self._for.add(reading)
        topics = self._wanted_topics()
        if reading.position > self.end or not others:
            self.clear(reading.position)
        elif topics == self._topics:
            return
        elif not _has(self._topics, topics):
            self.clear(self.end)
        self._restart(topics)

    def leave(self, reading: Reading) -> None:
        """No longer read for this reader."""
        self._for.discard(reading)
        self.filters = frozenset(each.filter for each in self._for)

    async def more(self, message_id: int) -> None:
        """Wait until a message from this ID on is in memory, if the ID is the window's end.

        In any case other tasks get their turn, so a reader that asks again and again holds none up.

        Raises:
            HQueueError: the log could not be read for as long as `patience` allows.
        """
        if message_id != self.end or self._closed:
            await asyncio.sleep(0)
            return
        waiting = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        self._read_on()
        await waiting

    def passed(self, message_id: int) -> None:
        """Note that a reader continues from this ID: drop what no reader needs any more, and read
        ahead.
        """
        needed = [r.position for r in self._for if r.position >= self.start] or [self.end]
        self.trim(self._bytes_max(), min(needed), max(needed))
        if self._poller is None and self.at_tail:
            return
        if self.unread(message_id) < self._bytes_max() // 2:
            self._read_on()

    def came(self, segments: list[Segment]) -> None:
        """Add what was read after the window's end; nothing if only the reader's position changed.

        The poller gives the reader back with it.
        """
        self._polled = False
        if segments:
            self.add(segments)
            self._wake()
        elif any(not waiting.done() for waiting in self._waiting):
            self._read_on()

    def close(self) -> None:
        """End. Waiting readers are let go."""
        self._closed = True
        if self._poller is not None:
            self._poller.remove(cast(TailWaiter, self))
        if self._reading is not None:
            self._reading.add_done_callback(lambda _: self._release(self.source))
            self._reading.cancel()
        elif not self._polled:
            self._release(self.source)
        self._wake()

    def _wake(self, error: HQueueError | None = None) -> None:
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            if not each.done():
                if error is None:
                    each.set_result(None)
                else:
                    each.set_exception(error)

    def _release(self, source: Source) -> None:
        """Free what one holds that is used no more."""
        if source.holds and not self._runtime.failed.done():
            self._runtime.start(source.release())

    def _wanted_topics(self) -> frozenset[str] | None:
        self.filters = frozenset(each.filter for each in self._for)
        topics: frozenset[str] = frozenset()
        for filter_ in self.filters:
            if filter_.read_topics is None:
                return None
            topics |= filter_.read_topics
        return topics

    def _new_source(self) -> Source:
        return self._open_source(self.end, self._topics, max(1, self._bytes_max() // 4))

    def _restart(self, topics: frozenset[str] | None) -> None:
        """Continue from the window's end with another source; the old one may be in use."""
        if self._reading is None and not self._polled:
            self._release(self.source)
        self._topics = topics
        self.source = self._new_source()
        self._polled = False
        if self._poller is not None:
            self._poller.remove(cast(TailWaiter, self))
            self._poller.add(cast(TailWaiter, self))
        self._wake()

    def _read_on(self) -> None:
        if self._closed or self._reading is not None or self._polled:
            return
        if self.source.at_tail and self._poller is not None:
            self._polled = True
            self._poller.demand(cast(TailWaiter, self))
        else:
            self._reading = self._runtime.start(self._read())

    async def _read(self) -> None:
        pauses = RETRIES.pauses()
        segments: list[Segment] = []
        try:
            if self.source.at_tail:
                await self._runtime.sleep_ms(RETRIES.first_ms)
            while True:
                source = self.source
                try:
                    segments = await self._read_from(source)
                except HQueueError as exc:
                    if self._patience is not None and source is self.source:
                        self._wake(exc)
                        return
                    self._runtime.note_read(self._queue.name, exc)
                    await self._runtime.sleep_ms(next(pauses))
                else:
                    self._runtime.note_read(self._queue.name, None)
                    if source is self.source:
                        break
                finally:
                    if source is not self.source:
                        self._release(source)
        finally:
            self._reading = None
        self.came(segments)

    async def _read_from(self, source: Source) -> list[Segment]:
        """Read the next batches, and cut them into segments."""
        start, filters = self.end, self.filters
        bound = Deadline(self._runtime.clock, 0) if self._patience is None else self._patience()
        async with self._runtime.requests:
            batches = await source.read(bound)
        segments = segments_of(start, batches, source.cursor)
        await cut_for(filters, segments, self._queue, self._runtime)
        return segments


def _has(read: frozenset[str] | None, topics: frozenset[str] | None) -> bool:
    """Whether the read topics include all of others; None stands for all topics."""
    return read is None or (topics is not None and topics <= read)

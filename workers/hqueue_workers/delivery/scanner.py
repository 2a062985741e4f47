"""MessageScanner: reads a partition, for all its subscribers that are near each other."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Protocol

from hqueue import HQueueError, MessageID, PartitionReader, Queue, Scan
from hqueue.runtime.backoff import Backoff
from hqueue.runtime.clock import Deadline
from hqueue_workers.delivery.poller import Poller
from hqueue_workers.delivery.segment import Segment, SubscriptionFilter, Window, segments_of
from hqueue_workers.node.runtime import Runtime

__all__ = ["MessageScanner", "Reading"]

RETRIES = Backoff(1_000.0, 30_000.0)


class Reading(Protocol):
    """A reader for which a partition is read."""

    filter: SubscriptionFilter

    @property
    def position(self) -> int:
        """The ID from which on it still needs what is read."""


class MessageScanner:
    """Reads a partition ahead of the cursor that is furthest in it, into a window of bounded size.

    It reads when one that has come to the window's end waits, and in advance while that one has
    less than half a window to go; else it sleeps. It waits for none that is slower: what the
    window has passed, those have to read by another scanner. At the partition's end it is the
    poller that finds out when there is more.

    Used by the event loop's thread alone.

    Args:
        queue: the queue.
        partition: the partition.
        runtime: what the worker runs on.
        bytes_max: what the window may weigh now, but for one batch.
        poller: looks for what comes at the end; without one it is looked for now and then.
    """

    def __init__(
        self,
        queue: Queue,
        partition: int,
        runtime: Runtime,
        bytes_max: Callable[[], int],
        poller: Poller | None,
    ) -> None:
        self.partition = partition
        self.region_host: str | None = None
        """The host that serves the partition's region, if that is known."""
        self.filters: frozenset[SubscriptionFilter] = frozenset()
        self.ordinal: int | None = None
        """How many messages the partition had before the window's end, if that is known."""
        self._queue = queue
        self._runtime = runtime
        self._bytes_max = bytes_max
        self._poller = poller
        self._for: set[Reading] = set()
        self._window = Window(0)
        self._topics: frozenset[str] | None = frozenset()
        self.reader = self._new_reader()
        # One has the reader at a time: a task that reads, or the poller.
        self._reading: asyncio.Task[None] | None = None
        self._polled = False
        self._waiting: list[asyncio.Future[None]] = []
        self._closed = False
        if poller is not None:
            poller.add(self)

    @property
    def start(self) -> int:
        """The ID from which on the window is in memory."""
        return self._window.start

    @property
    def end(self) -> int:
        """The ID up to which it was read."""
        return self._window.end

    @property
    def at_tail(self) -> bool:
        """Whether the window ends where the partition ended when that was looked at last."""
        return self.reader.at_tail

    @property
    def is_wanted(self) -> bool:
        """Whether somebody waits for what comes at the window's end, or that is read just now."""
        return self._reading is not None or any(not each.done() for each in self._waiting)

    def join(self, reading: Reading) -> None:
        """Read for this one as well. One that is ahead of all others takes the window along.

        Where it wants topics that were not read so far, what is in memory is forgotten, for it
        would find nothing of them there: all that stand before the window's end read alone.
        """
        others = bool(self._for)
        self._for.add(reading)
        topics = self._wanted_topics()
        if reading.position > self.end or not others:
            self._window.clear(reading.position)
        elif topics == self._topics:
            return
        elif not _has(self._topics, topics):
            self._window.clear(self.end)
        self._restart(topics)

    def leave(self, reading: Reading) -> None:
        """Read for this one no more."""
        self._for.discard(reading)
        self.filters = frozenset(each.filter for each in self._for)

    def reaches(self, message_id: int) -> bool:
        """Whether what lies at an ID is in memory, or is what is read next."""
        return self.start <= message_id <= self.end

    def at(self, message_id: int) -> Segment | None:
        """What is in memory for an ID."""
        return self._window.at(message_id)

    async def more(self, message_id: int) -> None:
        """Wait until something from this ID on is in memory, if it is the window's end.

        In any case others get their turn: one that asks again and again holds none up.
        """
        if message_id != self.end or self._closed:
            await asyncio.sleep(0)
            return
        waiting = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        self._read_on()
        await waiting

    def passed(self, message_id: int) -> None:
        """One goes on from this ID: forget what nobody needs, and read in advance."""
        needed = [r.position for r in self._for if r.position >= self.start] or [self.end]
        self._window.trim(self._bytes_max(), min(needed), max(needed))
        if self._window.unread(message_id) < self._bytes_max() // 2:
            self._read_on()

    def came(self, segments: list[Segment]) -> None:
        """Take what was read beyond the window; nothing, if only the reader's place changed.

        The poller gives the reader back with it.
        """
        self._polled = False
        if segments:
            self._window.add(segments)
            self.ordinal = segments[-1].ordinal
            self._wake()
        elif any(not waiting.done() for waiting in self._waiting):
            self._read_on()

    def close(self) -> None:
        """End. Those that wait are let go."""
        self._closed = True
        if self._poller is not None:
            self._poller.remove(self)
        if self._reading is not None:
            self._reading.cancel()
        self._wake()

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            if not each.done():
                each.set_result(None)

    def _wanted_topics(self) -> frozenset[str] | None:
        self.filters = frozenset(each.filter for each in self._for)
        topics: frozenset[str] = frozenset()
        for filter_ in self.filters:
            if filter_.read_topics is None:
                return None
            topics |= filter_.read_topics
        return topics

    def _new_reader(self) -> PartitionReader:
        scan = Scan(MessageID.from_int(self.end), topics=self._topics or ())
        return self._queue.reader(self.partition, scan, max(1, self._bytes_max() // 4))

    def _restart(self, topics: frozenset[str] | None) -> None:
        """Read on from the window's end with another reader; the old one may be in use."""
        self._topics = topics
        self.reader = self._new_reader()
        self._polled = False
        if self._poller is not None:
            self._poller.remove(self)
            self._poller.add(self)
        self._wake()

    def _read_on(self) -> None:
        if self._closed or self._reading is not None or self._polled:
            return
        if self.reader.at_tail and self._poller is not None:
            self._polled = True
            self._poller.demand(self)
        else:
            self._reading = self._runtime.start(self._read())

    async def _read(self) -> None:
        pauses = RETRIES.pauses()
        segments: list[Segment] = []
        try:
            if self.reader.at_tail:
                await self._runtime.sleep_ms(RETRIES.first_ms)
            while True:
                reader = self.reader
                try:
                    segments = await self._runtime.read(self._once())
                except HQueueError as exc:
                    self._runtime.note_read(self._queue.name, exc)
                    await self._runtime.sleep_ms(next(pauses))
                else:
                    self._runtime.note_read(self._queue.name, None)
                    if reader is self.reader:
                        break
        finally:
            self._reading = None
        self.came(segments)

    def _once(self) -> Callable[[], list[Segment]]:
        """Work for a thread: read on, and cut what came. One try."""
        queue, reader, start, filters = self._queue, self.reader, self.end, self.filters
        deadline = Deadline(self._runtime.clock, 0)

        def read() -> list[Segment]:
            segments = segments_of(reader, start, reader.read(deadline))
            for segment in segments:
                for each in filters:
                    with contextlib.suppress(HQueueError):  # The cursor that needs it meets it.
                        segment.cut(queue, each)
            return segments

        return read


def _has(read: frozenset[str] | None, topics: frozenset[str] | None) -> bool:
    """Whether what was read of some topics has all of others; None for all there are."""
    return read is None or (topics is not None and topics <= read)

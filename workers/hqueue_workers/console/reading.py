"""Reads messages for a page, within bounds: rows, messages, bytes and seconds."""

from __future__ import annotations

import asyncio
import dataclasses
import heapq
from collections.abc import Collection, Mapping

from hqueue import InvalidInputError, MessageID, ReceivedMessage, Scan
from hqueue.aio import Queue, Scanner
from hqueue.runtime.clock import SYSTEM_CLOCK

__all__ = [
    "BYTES_MAX",
    "LOOKED_MAX",
    "PARTITIONS_MAX",
    "ROWS_MAX",
    "SECONDS_MAX",
    "Filter",
    "Found",
    "check_partitions",
    "read_newest",
    "read_one",
    "read_onwards",
]

ROWS_MAX = 200
LOOKED_MAX = 20_000
BYTES_MAX = 32 * 1024 * 1024
SECONDS_MAX = 5.0
PARTITIONS_MAX = 64
"""A page reads at most this many partitions at a time."""
POLL_S = 0.25
SEARCHED_FIRST = 1_000
"""A search for the newest messages first looks at so many, and then at twice as many each time."""
SCANNER_BYTES = 512 * 1024
"""About how many bytes a scanner of one partition holds."""


@dataclasses.dataclass(frozen=True)
class Filter:
    """Which messages a page shows."""

    topic: str = ""
    key: str = ""
    text: str = ""
    """A text in the key, in a header or in the value, in any case."""

    @property
    def is_empty(self) -> bool:
        """Whether it lets every message through."""
        return not (self.topic or self.key or self.text)

    def lets_through(self, message: ReceivedMessage) -> bool:
        """Whether a message is shown."""
        if self.topic and message.topic != self.topic:
            return False
        if self.key and message.key != self.key.encode():
            return False
        if not self.text:
            return True
        wanted = self.text.encode().lower()
        fields = [message.value, message.key or b"", message.topic.encode()]
        fields += [name.encode() + b"\0" + value for name, value in message.headers]
        return any(wanted in field.lower() for field in fields)


@dataclasses.dataclass
class Found:
    """What was found, and how far the search looked."""

    messages: list[ReceivedMessage] = dataclasses.field(default_factory=list)
    """In the order of IDs."""
    looked: int = 0
    """The number of messages that were read."""
    bytes: int = 0
    seconds: float = 0.0
    stopped: str = ""
    """The bound that ended the search; empty if it came to its end."""
    next: MessageID | None = None
    """Where a search onwards continues; None at the end of the queue."""
    older: MessageID | None = None
    """The ID before which a search for the newest continues; None at the beginning."""


class _Bounds:
    """Counts what a search reads."""

    def __init__(self, found: Found, rows: int) -> None:
        self.found = found
        self.rows = rows
        self._began_s = SYSTEM_CLOCK.monotonic_ms() / 1e3

    @property
    def left_s(self) -> float:
        """How many seconds are left."""
        self.found.seconds = SYSTEM_CLOCK.monotonic_ms() / 1e3 - self._began_s
        return SECONDS_MAX - self.found.seconds

    def stops(self) -> bool:
        """Whether a bound has been reached. It is noted in what was found."""
        found = self.found
        if len(found.messages) >= self.rows:
            found.stopped = "rows"
        elif found.looked >= LOOKED_MAX:
            found.stopped = "messages"
        elif found.bytes >= BYTES_MAX:
            found.stopped = "bytes"
        elif self.left_s <= 0:
            found.stopped = "seconds"
        return bool(found.stopped)

    def count(self, message: ReceivedMessage, wanted: Filter) -> None:
        """Count a message that was read, and keep it if it is wanted."""
        self.found.looked += 1
        self.found.bytes += message.size
        if wanted.lets_through(message):
            self.found.messages.append(message)


class _Merged:
    """The messages of some partitions in the order of IDs. It knows at any time how far it is."""

    def __init__(self, queue: Queue, scans: Mapping[int, Scan]) -> None:
        self._scanners = {
            partition: queue.partition_scanner(partition, scan, bytes_max=SCANNER_BYTES)
            for partition, scan in scans.items()
        }
        self._reached = {partition: scan.start for partition, scan in scans.items()}
        """The first ID of each partition that may not have been given."""
        self._waiting = set(self._scanners)
        """The partitions whose next message is not known."""
        self._heads: list[tuple[MessageID, int, ReceivedMessage]] = []

    async def head(self, left_s: float) -> MessageID | None:
        """The ID of the next message; None at the end.

        Raises:
            asyncio.TimeoutError: it did not come in time. Nothing is lost.
        """
        ends_s = SYSTEM_CLOCK.monotonic_ms() / 1e3 + left_s
        for partition in list(self._waiting):
            scanner = self._scanners[partition]
            message = await self._next(partition, scanner, ends_s)
            self._waiting.discard(partition)
            if message is None:
                del self._scanners[partition]
                await scanner.close()
            else:
                heapq.heappush(self._heads, (message.id, message.partition, message))
        return self._heads[0][0] if self._heads else None

    async def _next(
        self, partition: int, scanner: Scanner, ends_s: float
    ) -> ReceivedMessage | None:
        task = asyncio.ensure_future(scanner.next())
        seen = self._reached[partition]
        try:
            while True:
                left_s = ends_s - SYSTEM_CLOCK.monotonic_ms() / 1e3
                await asyncio.wait({task}, timeout=max(0.0, min(POLL_S, left_s)))
                if task.done():
                    return task.result()
                if left_s <= 0:
                    raise asyncio.TimeoutError
                # What had been fetched at the last look would have been given since then.
                self._reached[partition], seen = seen, int(scanner.positions()[partition])
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait({task})

    def pop(self) -> ReceivedMessage:
        """The next message, after `head` has returned its ID."""
        _, partition, message = heapq.heappop(self._heads)
        self._reached[partition] = int(message.id) + 1
        self._waiting.add(partition)
        return message

    def position(self) -> MessageID | None:
        """The first ID that was not given yet, of any partition; None at the end."""
        known = [int(head[0]) for head in self._heads]
        known += [self._reached[partition] for partition in self._waiting]
        return MessageID.from_int(min(known)) if known else None

    async def close(self) -> None:
        """Close the scanners."""
        for scanner in self._scanners.values():
            await scanner.close()


def check_partitions(queue: Queue, partition: int | None) -> Collection[int]:
    """The partitions that a page reads.

    Raises:
        InvalidInputError: there is no such partition, or there are too many for one page.
    """
    if partition is not None:
        queue.choose_partition(partition, None)
        return [partition]
    if queue.partitions > PARTITIONS_MAX:
        raise InvalidInputError(
            "the queue has more partitions than a page reads at a time: choose one",
            partitions=queue.partitions,
            partitions_max=PARTITIONS_MAX,
        )
    return range(queue.partitions)


async def read_onwards(
    queue: Queue,
    partition: int | None,
    start: MessageID,
    wanted: Filter,
    rows: int,
) -> Found:
    """Read messages from a position on, in the order of IDs.

    Raises:
        InvalidInputError: as `check_partitions`.
        HQueueError: the queue can't be read.
    """
    found = Found()
    topics = [wanted.topic] if wanted.topic else []
    partitions = check_partitions(queue, partition)
    ends = {each.partition: each.end for each in await queue.offsets([*partitions])}
    # A search ends where the queue ended when it began, however fast the queue grows.
    scans = {each: Scan(start, end, topics) for each, end in ends.items() if end > start}
    bounds = _Bounds(found, rows)
    merged = _Merged(queue, scans)
    try:
        await _read(merged, bounds, wanted)
        found.next = merged.position() if found.stopped else None
    finally:
        await merged.close()
    return found


async def _read(merged: _Merged, bounds: _Bounds, wanted: Filter) -> None:
    """Read until a bound is reached. The messages of one ID stay together, those of all partitions,
    so that a search can go on at the next ID.
    """
    found, last = bounds.found, None
    while True:
        stops = bounds.stops()
        if stops and found.stopped not in ("rows", "messages"):
            return
        try:
            head = await merged.head(max(bounds.left_s, 0.0))
        except asyncio.TimeoutError:
            found.stopped = "seconds"
            return
        if head is None:
            found.stopped = ""
            return
        if stops and head != last:
            return
        found.stopped, last = "", head
        bounds.count(merged.pop(), wanted)


async def read_newest(
    queue: Queue,
    partition: int | None,
    before: MessageID | None,
    wanted: Filter,
    rows: int,
) -> Found:
    """Read the newest messages before an ID. A search reads the newest `LOOKED_MAX` messages.

    Raises:
        InvalidInputError: as `check_partitions`.
        HQueueError: the queue can't be read.
    """
    partitions = check_partitions(queue, partition)
    found, bounds = Found(older=before), _Bounds(Found(), 0)
    window = max(1, rows if wanted.is_empty else SEARCHED_FIRST // len(partitions))
    while True:
        part, first = await _read_window(queue, partitions, found.older, wanted, window)
        found.looked, found.bytes = found.looked + part.looked, found.bytes + part.bytes
        is_late = bounds.left_s <= 0
        if part.stopped and window > 1:
            window = max(1, window // 8)  # So the newest messages are read, not the oldest.
            if not is_late:
                continue
            found.stopped = part.stopped
            break
        # Below that ID the next window continues in every partition.
        part.messages = [each for each in part.messages if first is None or each.id >= first]
        found.messages, found.older = part.messages + found.messages, first
        if first is None or len(found.messages) >= rows or wanted.is_empty:
            break
        if found.looked >= LOOKED_MAX or found.bytes >= BYTES_MAX or is_late:
            late, large = "seconds" if is_late else "messages", found.bytes >= BYTES_MAX
            found.stopped = "bytes" if large else late
            break
        window = min(window * 2, max(1, LOOKED_MAX // len(partitions)))
    found.seconds = SECONDS_MAX - bounds.left_s
    if len(found.messages) > rows:
        # The messages of one ID stay together, as in a search onwards.
        found.older = found.messages[-rows].id
        found.messages = [each for each in found.messages if each.id >= found.older]
    return found


async def _read_window(
    queue: Queue,
    partitions: Collection[int],
    before: MessageID | None,
    wanted: Filter,
    window: int,
) -> tuple[Found, MessageID | None]:
    """Read the newest messages of each partition. Also returns the ID where the window begins; None
    if no older message can be there.
    """
    found = Found()
    bounds = _Bounds(found, LOOKED_MAX + 1)
    scans: dict[int, Scan] = {}
    older: list[MessageID] = []
    for each in await queue.offsets([*partitions]):
        end, ordinal = each.end, each.end_ordinal
        if before is not None and before < end:
            end = before
            ordinal = await queue.count_before(each.partition, before)
        if ordinal <= each.beginning_ordinal or each.beginning is None:
            continue
        begin = await queue.id_at(each.partition, max(each.beginning_ordinal, ordinal - window))
        if begin < end:
            scans[each.partition] = Scan(begin, end)
        if ordinal - window > each.beginning_ordinal:
            older.append(begin)
    merged = _Merged(queue, scans)
    try:
        await _read(merged, bounds, wanted)
    finally:
        await merged.close()
    return found, max(older, default=None)


async def read_one(queue: Queue, partition: int, message_id: MessageID) -> ReceivedMessage | None:
    """Read one message; None if it is not there.

    Raises:
        InvalidInputError: there is no such partition.
        HQueueError: the queue can't be read.
    """
    queue.choose_partition(partition, None)
    scan = Scan(message_id, message_id + 1)
    async with queue.partition_scanner(partition, scan, bytes_max=SCANNER_BYTES) as scanner:
        return await asyncio.wait_for(scanner.next(), SECONDS_MAX)

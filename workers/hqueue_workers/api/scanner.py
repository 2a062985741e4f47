"""One scanner of the API: a position in a partition, and the messages that were read ahead."""

from __future__ import annotations

import dataclasses
import itertools
from collections import deque
from collections.abc import Iterator

from hqueue import HQueueError, MessageID, Outcome, ReceivedMessage, Scan, StoreUnavailableError
from hqueue.engine import Batch, LoopReader, PartitionCursor, each_message_of
from hqueue.runtime.clock import Clock, Deadline
from hqueue.runtime.loop import computed
from hqueue.settings.limits import MESSAGE_ID_MAX
from hqueue_workers.api.structs import answer_size

__all__ = ["ApiScanner"]

BATCH_OVERHEAD_BYTES = 1_000
MESSAGE_OVERHEAD_BYTES = 400
"""About how much memory a batch that was read takes beside its bodies, and each of its messages."""

ANSWER_MESSAGES_MAX = 1_000
"""The most messages of an answer, and of one step of decoding, which takes a few milliseconds:
other tasks run between steps."""

END_CHECK_MS = 5_000.0
"""How often a scanner at the end checks whether the log continues elsewhere, as after a truncation.
"""


class ApiScanner:
    """Reads a partition on behalf of a client, from call to call. It has no thread, and no task.

    Its state is the next ID; it can read everything else again. So it continues where it was when a
    request fails, and may drop what it holds at any time. One call at a time uses it.

    Args:
        reader: reads the queue.
        partition: the partition.
        scan: which of the partition's messages to read.
        bytes_max: about how many bytes of bodies one request asks for, at least one batch; and the
            bytes of an answer, at least one message.
        clock: the clock.
        queue: the queue's name.
        principal: the principal that opened it; None if callers need not prove theirs.

    Raises:
        InvalidInputError: there is no such partition.
    """

    def __init__(
        self,
        reader: LoopReader,
        partition: int,
        scan: Scan,
        bytes_max: int,
        clock: Clock,
        *,
        queue: str,
        principal: str | None = None,
    ) -> None:
        self.queue = queue
        """The queue's name."""
        self.principal = principal
        """The principal that may use it."""
        self.topics = tuple(scan.topics)
        """The topics that it reads; all if empty."""
        self.busy = False
        """Whether a call uses it."""
        self.used_ms = clock.monotonic_ms()
        """When a call last used it. Set by `ScannerTable`."""
        self.held_bytes = 0
        """About how many bytes it holds in memory."""
        self.counted_bytes = 0
        """How many of these bytes are in the count of `ScannerTable`."""
        self.closed = False
        """Whether its owner knows it no more."""
        self._reader = reader
        self._partition = partition
        self._stop = scan.stop
        self._bytes_max = bytes_max
        self._clock = clock
        self._next = scan.start
        """The first ID that was not given yet, or passed over."""
        self._cursor: PartitionCursor | None = reader.cursor(partition, scan, bytes_max)
        self._batches: deque[Batch] = deque()
        self._messages: deque[ReceivedMessage] = deque()
        self._undecoded: Iterator[ReceivedMessage] | None = None
        """Of the first batch, where some of its messages were decoded."""
        self._end_checked_ms = clock.monotonic_ms()

    async def take(self, count_max: int) -> list[ReceivedMessage]:
        """The next messages: at least one, unless the end was reached.

        Args:
            count_max: how many at most. Fewer come at the end, or where an answer is full, of bytes
                or with a thousand messages.

        Raises:
            StoreUnavailableError: HBase stayed away for ``operation_timeout_ms``, or in that time
                nothing was found yet. It stands where it stood, or further on.
            QueueStateError: the queue is disabled or is gone.
            CorruptLogError: the log is broken where it is read.
        """
        deadline = self._reader.deadline()
        taken: list[ReceivedMessage] = []
        room = self._bytes_max
        try:
            while len(taken) < min(count_max, ANSWER_MESSAGES_MAX):
                more = bool(taken)
                if not self._messages and not await self._read_on(deadline, more=more):
                    break
                room -= answer_size(self._messages[0])
                if taken and room < 0:
                    break
                message = self._messages.popleft()
                self.held_bytes -= _held(message)
                self._next = int(message.id) + 1
                taken.append(message)
        except HQueueError:
            await self.drop()
            if not taken:
                raise
        return taken

    async def drop(self) -> None:
        """Hold nothing: the next call reads on from the ID that comes next."""
        cursor, self._cursor = self._cursor, None
        self._undecoded = None
        self._batches.clear()
        self._messages.clear()
        self.held_bytes = 0
        if cursor is not None:
            await self._reader.release(cursor)

    async def release(self) -> None:
        """Hold nothing in HBase until the next call."""
        if self._cursor is not None and self._cursor.holds:
            await self._reader.release(self._cursor)

    async def _read_on(self, deadline: Deadline, *, more: bool) -> bool:
        """Have a message to give; whether there is one.

        Args:
            deadline: the bound.
            more: whether there is something to give already, so that one try is enough.
        """
        while not await self._decode():
            if self._cursor is not None:
                self._next = self._cursor.cursor
            if self._next >= min(self._stop, MESSAGE_ID_MAX):
                return False
            cursor = self._cursor = self._cursor or self._opened()
            bound = Deadline(self._clock, 0) if more else deadline
            batches = await self._reader.read_once(cursor, bound)
            if batches:
                self._batches.extend(batches)
                self.held_bytes += sum(map(_held_by_batch, batches))
                self._end_checked_ms = self._clock.monotonic_ms()
            elif more or (cursor.at_tail and not await self._goes_on(cursor, deadline)):
                return False
            elif deadline.expired:
                raise StoreUnavailableError(
                    "no matching message was found yet: call again to continue the scan",
                    outcome=Outcome.NOT_APPLIED,
                )
        return True

    async def _decode(self) -> bool:
        """Have the next messages of what was read; whether there are any."""
        while self._batches and not self._messages:
            # Cancelled here, it goes on from the batch and the ID that comes next.
            undecoded, self._undecoded = self._undecoded, None
            if undecoded is not None:
                messages = await computed(_some, undecoded)
            else:
                batch = self._batches[0]
                left = dataclasses.replace(batch, start=max(batch.start, self._next))
                messages, undecoded = await self._reader.decoded(left, _begun)
            if len(messages) == ANSWER_MESSAGES_MAX:
                self._undecoded = undecoded
            else:
                self.held_bytes -= _held_by_batch(self._batches.popleft())
            self._messages.extend(messages)
            self.held_bytes += sum(map(_held, messages))
        return bool(self._messages)

    async def _goes_on(self, cursor: PartitionCursor, deadline: Deadline) -> bool:
        """At the end, now and then: whether the log goes on elsewhere."""
        now_ms = self._clock.monotonic_ms()
        if cursor.finished or now_ms < self._end_checked_ms + END_CHECK_MS:
            return False
        self._end_checked_ms = now_ms
        await self._reader.check_tail(cursor, deadline)
        return not cursor.at_tail

    def _opened(self) -> PartitionCursor:
        stop = None if self._stop > MESSAGE_ID_MAX else MessageID.from_int(self._stop)
        scan = Scan(MessageID.from_int(self._next), stop, self.topics)
        return self._reader.cursor(self._partition, scan, self._bytes_max)


def _begun(batch: Batch) -> tuple[list[ReceivedMessage], Iterator[ReceivedMessage]]:
    """The first messages of a batch, and what gives the others."""
    messages = iter(each_message_of(batch))
    return _some(messages), messages


def _some(messages: Iterator[ReceivedMessage]) -> list[ReceivedMessage]:
    return list(itertools.islice(messages, ANSWER_MESSAGES_MAX))


def _held(message: ReceivedMessage) -> int:
    """What a message takes in memory, about."""
    return MESSAGE_OVERHEAD_BYTES + message.size


def _held_by_batch(batch: Batch) -> int:
    return BATCH_OVERHEAD_BYTES + sum(len(cell) for _, cell in batch.cells)

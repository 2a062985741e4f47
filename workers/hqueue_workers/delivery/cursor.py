"""What one subscriber gets next of a partition, as calls."""

from __future__ import annotations

import bisect
from collections.abc import Callable
from operator import attrgetter

from hqueue import Queue
from hqueue.settings.limits import CALL_HEADERS_MAX
from hqueue_workers.delivery.scanner import MessageScanner
from hqueue_workers.delivery.segment import EncodedSlice, Segment, SubscriptionFilter
from hqueue_workers.delivery.wire import Call
from hqueue_workers.node.runtime import Runtime

__all__ = ["SubscriberCursor"]


class SubscriberCursor:
    """Where one subscriber stands in a partition, and what comes next for it.

    It reads what the partition's scanner holds for all, as long as that is near, and by a scanner
    of its own where it fell behind. It holds nothing itself: what it needs stays in a window from
    `position` on, or is read again.

    Args:
        queue: the queue.
        filter_: what the subscriber wants.
        position: the first ID that it did not get yet.
        shared: the scanner that all the partition's subscribers share.
        alone: makes a scanner for this one alone.
        runtime: what the worker runs on.
    """

    def __init__(
        self,
        queue: Queue,
        filter_: SubscriptionFilter,
        position: int,
        *,
        shared: MessageScanner,
        alone: Callable[[], MessageScanner],
        runtime: Runtime,
    ) -> None:
        self.filter = filter_
        self.position = position
        self._queue = queue
        self._shared = shared
        self._alone = alone
        self._runtime = runtime
        self._own: MessageScanner | None = None
        self._own_until = 0
        shared.join(self)

    @property
    def at_end(self) -> bool:
        """Whether it has all that the partition had when that was looked at last."""
        return self.position >= self._shared.end and self._shared.at_tail

    def close(self) -> None:
        """Need nothing more."""
        self._shared.leave(self)
        self._drop_own()

    async def ready(self) -> int:
        """Wait until something comes next; the ID of its first message, or where it ends.

        Raises:
            HQueueError: the original of a message that is put back can't be read now.
        """
        while True:
            scanner = self._scanner()
            segment = scanner.at(self.position)
            if segment is None:
                await scanner.more(self.position)
                continue
            encoded = _slice_at(await self._slices(segment), self.position)
            if encoded is not None:
                return encoded.first
            self._own_until = segment.end  # It begins in the middle of what others are sent.

    async def take(self, until: int | None, may_have: Callable[[int], bool]) -> Call | None:
        """What comes next, as much as one call may have; None if nothing may be had yet.

        Nothing is taken away: the next call is given only after `advance`.

        Args:
            until: where a call ended that is to be made once more, with the same messages.
            may_have: whether a message may be had, by its ID.
        """
        message_id, first, ordinal, count, size, headers = self.position, 0, 0, 0, 0, 0
        parts: list[bytes] = []
        while until is None or message_id < until:
            scanner = self._scanner()
            if not scanner.reaches(message_id):
                # The one whose window it was went on while this one waited for more.
                message_id, first, ordinal, count, size, headers = self.position, 0, 0, 0, 0, 0
                parts.clear()
            segment = scanner.at(message_id)
            if segment is None and until is not None and message_id > self.position:
                await scanner.more(message_id)
                continue
            if segment is None:
                break
            encoded = _slice_at(await self._slices(segment), message_id)
            if encoded is None:
                break
            if encoded.count:
                full = (
                    count + encoded.count > self.filter.messages_max
                    or headers + encoded.headers > CALL_HEADERS_MAX
                )
                if count and (full or size + len(encoded.data) > self.filter.bytes_max):
                    break
                if until is None and not may_have(encoded.first):
                    break
                first = first or encoded.first
                parts.append(encoded.data)
            count, size = count + encoded.count, size + len(encoded.data)
            headers += encoded.headers
            message_id, ordinal = encoded.end, encoded.ordinal
        if message_id == self.position:
            return None
        self._scanner().passed(message_id)
        return Call(self.position, message_id, first, ordinal, count, tuple(parts))

    def advance(self, message_id: int) -> None:
        """Everything below this ID is done with."""
        self.position = message_id
        self._scanner().passed(message_id)

    def _scanner(self) -> MessageScanner:
        """One that has what comes next, or reads it next: the shared one if that does."""
        if self.position > self._shared.end and not self._shared.is_wanted:
            self._shared.join(self)  # It went past the window alone: it takes that along.
        if self._shared.reaches(self.position) and self.position >= self._own_until:
            self._drop_own()
            return self._shared
        if self._own is None or not self._own.reaches(self.position):
            self._drop_own()
            self._own = self._alone()
            self._own.join(self)
        return self._own

    def _drop_own(self) -> None:
        if self._own is not None:
            self._own.close()
            self._own = None

    async def _slices(self, segment: Segment) -> tuple[EncodedSlice, ...]:
        slices = segment.slices(self.filter)
        if slices is None:
            slices = await self._runtime.read(lambda: segment.cut(self._queue, self.filter))
        return slices


def _slice_at(slices: tuple[EncodedSlice, ...], message_id: int) -> EncodedSlice | None:
    """The slice with which a cursor at this ID goes on."""
    index = bisect.bisect_left(slices, message_id, key=attrgetter("first"))
    if index < len(slices) and slices[index].start <= message_id:
        return slices[index]
    return None

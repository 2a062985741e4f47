"""What one subscriber gets next of a log, as calls."""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable
from operator import attrgetter

from hqueue import HQueueError, Queue
from hqueue.metadata.delays import Delayed
from hqueue.settings.limits import CALL_HEADERS_MAX, MESSAGE_ID_MAX
from hqueue_workers.delivery.scanner import MessageScanner
from hqueue_workers.delivery.segment import EncodedSlice, Segment, SubscriptionFilter, Window
from hqueue_workers.delivery.wire import Call
from hqueue_workers.node.runtime import Runtime

__all__ = ["Cursor", "SubscriberCursor"]


class _Taking:
    """What one call gets.

    Args:
        filter_: what the subscriber wants.
        messages_max: as `Cursor.take` takes it.
        delayed_max: as `Cursor.take` takes it.
    """

    def __init__(self, filter_: SubscriptionFilter, messages_max: int, delayed_max: int) -> None:
        self.messages_max = min(messages_max, filter_.messages_max)
        self.taken: list[EncodedSlice] = []
        self.delayed: list[Delayed] = []
        self._bytes_max = filter_.bytes_max
        self._delayed_max = delayed_max
        self._messages = self._bytes = self._headers = 0

    def delays(self, message: Delayed) -> bool:
        """Leave a message out; False if there is no room for it."""
        if len(self.delayed) >= self._delayed_max:
            return False
        self.delayed.append(message)
        return True

    def takes(self, encoded: EncodedSlice) -> bool:
        """Take messages; False if the call must end before them."""
        messages = self._messages + len(encoded.ids)
        size, headers = self._bytes + len(encoded.data), self._headers + encoded.headers
        full = messages > self.messages_max or headers > CALL_HEADERS_MAX
        if encoded.ids and self._messages and (full or size > self._bytes_max):
            return False
        if encoded.ids and self.delayed and not self.taken:
            return False
        if encoded.ids:
            self.taken.append(encoded)
        self._messages, self._bytes, self._headers = messages, size, headers
        return True


class Cursor:
    """Where a subscriber stands in what is held of a log, and what comes next for it.

    It holds nothing itself.

    Args:
        queue: the queue.
        filter_: what the subscriber wants.
        position: the first ID that it did not get yet.
        held: what is in memory.
        runtime: what it runs on.
    """

    def __init__(
        self,
        queue: Queue,
        filter_: SubscriptionFilter,
        position: int,
        held: Window,
        runtime: Runtime,
    ) -> None:
        self.filter = filter_
        self.position = position
        self._queue = queue
        self._held = held
        self._runtime = runtime

    async def take(
        self,
        until: int | None,
        may_have: Callable[[int], bool] = lambda _: True,
        messages_max: int = MESSAGE_ID_MAX,
        now_ms: float = math.inf,
        delayed_max: int = 0,
    ) -> Call | None:
        """What comes next, as much as one call may have; None if nothing may be had yet.

        Nothing is taken away: the next call is given only from a position after this one.

        Args:
            until: where a call ended that must be made once more, with the same messages.
            may_have: whether a message may be had, by its ID.
            messages_max: messages of the call, if that is less than the subscriber takes.
            now_ms: the time: messages that are due later are left out of the call. If delayed
                messages come first, the call has no messages, and covers only these.
            delayed_max: how many messages may be left out; the call ends before the next such one.
        """
        stop = MESSAGE_ID_MAX + 1 if until is None else until
        message_id = self.position
        taking = _Taking(self.filter, messages_max, delayed_max)
        while message_id < stop:
            held = self._here()
            if not held.reaches(message_id):
                # The one whose window it was went on while this one waited for more.
                if not held.reaches(self.position):
                    return None
                message_id = self.position
                taking = _Taking(self.filter, messages_max, delayed_max)
            segment = held.at(message_id)
            if segment is None and until is not None and message_id > self.position:
                await held.more(message_id)
                continue
            if segment is None:
                break
            try:
                found = _slice_at(await self._slices(segment), message_id)
            except HQueueError:
                if not taking.taken:
                    raise
                break  # What lies before it can be had.
            later = found.delayed(message_id, stop, now_ms)
            if later is not None and found.first(message_id) == later.id:
                if not taking.delays(later):
                    break
                message_id = later.id + 1
                continue
            encoded = found.part(
                message_id, stop if later is None else later.id, taking.messages_max
            )
            if encoded.ids and until is None and not may_have(encoded.ids[0]):
                break
            if not taking.takes(encoded):
                break
            message_id = encoded.end
        if message_id == self.position:
            return None
        self._here().passed(message_id)
        return Call(
            self.position,
            message_id,
            tuple([each.data for each in taking.taken]),
            tuple([each.ids for each in taking.taken]),
            tuple(taking.delayed),
        )

    def _here(self) -> Window:
        """What has what comes next."""
        return self._held

    async def _slices(self, segment: Segment) -> tuple[EncodedSlice, ...]:
        slices = segment.slices(self.filter)
        if slices is None:
            slices = await self._runtime.read(lambda: segment.cut(self._queue, self.filter))
        return slices


class SubscriberCursor(Cursor):
    """Where one subscriber stands in a log that is read for it, and what comes next.

    It reads what the scanner holds that is for all, as long as that is near, and by a scanner of
    its own where it fell behind. What it needs stays in a window from `position` on, or is read
    again.

    Args:
        queue: the queue.
        filter_: what the subscriber wants.
        position: the first ID that it did not get yet.
        shared: the scanner that all subscribers share.
        alone: makes a scanner for this one alone.
        runtime: what it runs on.
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
        super().__init__(queue, filter_, position, shared, runtime)
        self._shared = shared
        self._alone = alone
        self._own: MessageScanner | None = None
        shared.join(self)

    @property
    def at_end(self) -> bool:
        """Whether it has all that the partition had when that was looked at last."""
        return self.position >= self._shared.end and self._shared.at_tail

    @property
    def size(self) -> int:
        """Bytes in memory that are read for it alone, about."""
        return 0 if self._own is None else self._own.size

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
            scanner = self._here()
            segment = scanner.at(self.position)
            if segment is not None:
                return _slice_at(await self._slices(segment), self.position).first(self.position)
            await scanner.more(self.position)

    def advance(self, message_id: int) -> None:
        """Everything below this ID is done with."""
        self.position = message_id
        self._here().passed(message_id)

    def _here(self) -> MessageScanner:
        """One that has what comes next, or reads it next: the shared one if that does."""
        if self.position > self._shared.end and not self._shared.is_wanted:
            self._shared.join(self)  # It went past the window alone: it takes that along.
        if self._shared.reaches(self.position):
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


def _slice_at(slices: tuple[EncodedSlice, ...], message_id: int) -> EncodedSlice:
    """The slice that covers an ID."""
    return slices[bisect.bisect_right(slices, message_id, key=attrgetter("start")) - 1]

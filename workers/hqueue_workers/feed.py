"""What one subscriber gets next of a partition, as calls."""

from __future__ import annotations

import bisect
import dataclasses
from collections.abc import Callable
from operator import attrgetter

from hqueue import Queue
from hqueue_workers.runtime import Runtime
from hqueue_workers.scanner import MessageScanner
from hqueue_workers.stretch import Portion, Stretch, Wanted

__all__ = ["Call", "Feed"]


@dataclasses.dataclass(frozen=True, slots=True)
class Call:
    """Messages for one call, encoded. IDs as integers.

    It covers the IDs ``[start, end)``; without messages it only says that nothing wanted lies
    there.
    """

    start: int
    end: int
    first: int
    """The ID of its first message."""
    ordinal: int
    """How many messages the partition had before `end`."""
    count: int
    parts: tuple[bytes, ...]


class Feed:
    """Where one subscriber stands in a partition, and what comes next for it.

    It reads what the partition's scanner holds for all, as long as that is near, and by a scanner
    of its own where it fell behind. It holds nothing itself: what it needs stays in a window from
    `position` on, or is read again.

    Args:
        queue: the queue.
        wanted: what the subscriber wants.
        position: the first ID that it did not get yet.
        shared: the scanner that all the partition's subscribers share.
        alone: makes a scanner for this one alone.
        runtime: what the worker runs on.
    """

    def __init__(
        self,
        queue: Queue,
        wanted: Wanted,
        position: int,
        *,
        shared: MessageScanner,
        alone: Callable[[], MessageScanner],
        runtime: Runtime,
    ) -> None:
        self.wanted = wanted
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
            stretch = scanner.at(self.position)
            if stretch is None:
                await scanner.more(self.position)
                continue
            portion = _portion_at(await self._portions(stretch), self.position)
            if portion is not None:
                return portion.first
            self._own_until = stretch.end  # It begins in the middle of what others are sent.

    async def take(self, until: int | None, may_have: Callable[[int], bool]) -> Call | None:
        """What comes next, as much as one call may have; None if nothing may be had yet.

        Nothing is taken away: the next call is given only after `advance`.

        Args:
            until: where a call ended that is to be made once more, with the same messages.
            may_have: whether a message may be had, by its ID.
        """
        place, first, ordinal, count, size = self.position, 0, 0, 0, 0
        parts: list[bytes] = []
        while until is None or place < until:
            scanner = self._scanner()
            if not scanner.reaches(place):
                # The one whose window it was went on while this one waited for more.
                place, first, ordinal, count, size = self.position, 0, 0, 0, 0
                parts.clear()
            stretch = scanner.at(place)
            if stretch is None and until is not None and place > self.position:
                await scanner.more(place)
                continue
            if stretch is None:
                break
            portion = _portion_at(await self._portions(stretch), place)
            if portion is None:
                break
            if portion.count:
                full = count + portion.count > self.wanted.messages_max
                if count and (full or size + len(portion.data) > self.wanted.bytes_max):
                    break
                if until is None and not may_have(portion.first):
                    break
                first = first or portion.first
                parts.append(portion.data)
            count, size = count + portion.count, size + len(portion.data)
            place, ordinal = portion.end, portion.ordinal
        if place == self.position:
            return None
        self._scanner().passed(place)
        return Call(self.position, place, first, ordinal, count, tuple(parts))

    def advance(self, place: int) -> None:
        """Everything below this ID is done with."""
        self.position = place
        self._scanner().passed(place)

    def _scanner(self) -> MessageScanner:
        """One that has what comes next, or reads it next: the shared one if that does."""
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

    async def _portions(self, stretch: Stretch) -> tuple[Portion, ...]:
        portions = stretch.portions(self.wanted)
        if portions is None:
            portions = await self._runtime.read(lambda: stretch.cut(self._queue, self.wanted))
        return portions


def _portion_at(portions: tuple[Portion, ...], place: int) -> Portion | None:
    """The portion with which one goes on who stands at this ID."""
    index = bisect.bisect_left(portions, place, key=attrgetter("first"))
    if index < len(portions) and portions[index].start <= place:
        return portions[index]
    return None

"""Up to where topics have messages, learned from headers: each is read once for all that ask."""

from __future__ import annotations

from collections.abc import Iterable

from hqueue.errors import CorruptLogError
from hqueue.format.header import SCATTERED, Header
from hqueue.log.steps import Work
from hqueue.log.tail import LogPosition
from hqueue.log.walk import BrokenOffError, HeaderWalk, walk_from
from hqueue.runtime.clock import Deadline

__all__ = ["NewestMessages"]

PAGES_MAX = 40
"""For more than this a scan is better."""
TOPICS_MAX = 1 << 18


class NewestMessages:
    """Up to where each topic has messages, in one part of a partition's log. Not thread-safe.

    A scan for one topic passes every batch that lies in between, of all topics: for thousands of
    topics that share a partition it is the same batches each time. This reads their headers once.
    It grows at both ends, as it is asked; what it has seen it keeps.

    It says *yes* where it does not know: because it would take too many headers, has too many
    topics, or can't follow the log. False is certain.

    Args:
        partition: the partition.
        pages_max: this many pages of headers are read for one question, or twice as many.
        topics_max: this many topics are kept in mind.
    """

    def __init__(
        self,
        partition: int,
        *,
        pages_max: int = PAGES_MAX,
        topics_max: int = TOPICS_MAX,
    ) -> None:
        self._partition = partition
        self._pages_max = pages_max
        self._topics_max = topics_max
        self._first: int | None = None
        """All headers from the batch that covers this ID on were seen; None if none was."""
        self._walk = HeaderWalk(partition, LogPosition(0, 0))
        self._newest: dict[str, int] = {}
        self._too_far = 0
        """Behind IDs below this one lie too many headers."""

    def __len__(self) -> int:
        """The topics that are kept in mind."""
        return len(self._newest)

    def may_have(self, topic: str, start: int, stop: int, deadline: Deadline) -> Work[bool]:
        """Whether a topic may have messages with IDs in ``[start, stop)``, all of which are
        appended already, if they ever will be.

        Raises:
            StoreUnavailableError: the store stayed away until the deadline.
        """
        try:
            is_known = start >= self._too_far and (yield from self._learn(start, stop, deadline))
        except (BrokenOffError, CorruptLogError):
            self._invalidate()  # Truncated, or collected up to here; or a scan meets it, too.
            return True
        if len(self._newest) > self._topics_max:
            self._invalidate(too_far=stop)
            return True
        return not is_known or self._newest.get(topic, -1) >= start

    def _learn(self, start: int, stop: int, deadline: Deadline) -> Work[bool]:
        """Note the headers of a part of the log. Returns whether it has seen all of them."""
        if self._first is None:
            self._walk = yield from walk_from(self._partition, start, deadline)
            self._first = start
        elif start < self._first:
            earlier = yield from walk_from(self._partition, start, deadline)
            if not (yield from self._go_on(earlier, self._first, deadline)):
                self._too_far = earlier.end.slot
                return False
            self._first = start
        if (yield from self._go_on(self._walk, stop, deadline)):
            return True
        self._invalidate(too_far=self._walk.end.slot)
        return False

    def _go_on(self, walk: HeaderWalk, stop: int, deadline: Deadline) -> Work[bool]:
        """Walk up to an ID. Returns whether the walk came so far."""
        for _ in range(self._pages_max):
            if walk.end.slot >= stop:
                break
            page = yield from deadline.insist(walk.page)
            if not page:
                break
            self._see(header for _, header in page)
        return walk.end.slot >= stop

    def _see(self, headers: Iterable[Header]) -> None:
        newest = self._newest
        for header in headers:
            for entry in header.topics:
                last = header.end - 1
                if entry.layout != SCATTERED:
                    last = header.base + entry.first + entry.count - 1
                if newest.get(entry.topic, -1) < last:
                    newest[entry.topic] = last

    def _invalidate(self, *, too_far: int = 0) -> None:
        self._first = None
        self._newest = {}
        self._too_far = max(self._too_far, too_far)

"""How far readers of one topic are behind, by headers: no message is read."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial

from hqueue.format.control import owners_of
from hqueue.format.header import SCATTERED, Header, TopicEntry
from hqueue.log.offsets import count_before
from hqueue.log.ports import Row
from hqueue.log.steps import Work, operation
from hqueue.log.walk import WALKED_HEADERS, BrokenOffError, walk_from
from hqueue.runtime.clock import Deadline
from hqueue.settings.limits import MESSAGE_ID_MAX

__all__ = ["PAGES_MAX", "CountedPart", "TopicCounter", "TopicLag"]

PAGES_MAX = 16
"""Pages of headers that are read to count the messages of one topic. What lies beyond them is
counted by ordinals, with the messages of other topics."""


@dataclasses.dataclass(frozen=True, slots=True)
class TopicLag:
    """The lag of a reader of a topic with an owner: the topic's messages from an ID on.

    Args:
        messages: how many messages follow; an upper bound if the lag is not `exact`.
        exact: whether every batch that may have some was examined. Otherwise there were too many
            batches, and messages of other topics between them are counted, too.
        age_ms: how long ago the first of them was written, as in `PartitionLag`; an upper bound if
            the lag is not `exact`.
    """

    messages: int
    exact: bool
    age_ms: int


@dataclasses.dataclass(frozen=True, slots=True)
class CountedPart:
    """What a topic has in a part of a partition's log.

    Args:
        messages: its messages, or at most this many.
        exact: which of the two.
        first: the ID of the first one; None if none was seen.
    """

    messages: int
    exact: bool
    first: int | None


class TopicCounter:
    """Counts a topic's messages in parts of logs, `PAGES_MAX` pages of headers in all. Not
    thread-safe.

    Args:
        topic: the topic.
        deadline: gives the bound of each request with its repetitions.
        pages_max: the pages.
    """

    def __init__(
        self,
        topic: str,
        deadline: Callable[[], Deadline],
        *,
        pages_max: int = PAGES_MAX,
    ) -> None:
        self._topic = topic
        self._deadline = deadline
        self._pages = pages_max
        self.newest = 0
        """The greatest ID of the topic that was seen."""

    def count(
        self, partition: int, start: int, stop: int, owner_epoch: int | None = None
    ) -> Work[CountedPart]:
        """Count the messages with IDs in ``[start, stop)``.

        Args:
            partition: the partition.
            start, stop: where the part begins and ends.
            owner_epoch: only those that the topic's owner of this epoch appended.

        Raises:
            StoreUnavailableError: the store stayed away.
            CorruptLogError, UnsupportedFormatError: a header can't be read.
        """
        messages, exact, first, at = 0, True, None, start
        try:
            if self._pages > 0:
                walk = yield from operation(self._deadline, partial(walk_from, partition, start))
            while self._pages > 0:
                self._pages -= 1
                page = yield from operation(
                    self._deadline, lambda deadline: deadline.insist(walk.page)
                )
                for row, header in page:
                    if header.base >= stop:
                        break
                    entry = self._entry(row, header, owner_epoch)
                    if entry is None:
                        continue
                    low, count, is_known = _within(header, entry, start, stop)
                    exact = exact and is_known
                    messages += count
                    if count and first is None:
                        first = low
                    self.newest = max(self.newest, low if count else 0)
                at = walk.end.slot
                if len(page) < WALKED_HEADERS or at >= stop:
                    return CountedPart(messages, exact, first)
        except BrokenOffError:
            messages, at = 0, start  # It was truncated, or collected up to here.
        messages += yield from self._at_most(partition, max(at, start), min(stop, MESSAGE_ID_MAX))
        return CountedPart(messages, False, first)

    def _entry(self, row: Row, header: Header, owner_epoch: int | None) -> TopicEntry | None:
        found = next((entry for entry in header.topics if entry.topic == self._topic), None)
        if found is None or owner_epoch is None:
            return found
        return found if owners_of(row.key, header).get(self._topic) == owner_epoch else None

    def _at_most(self, partition: int, start: int, stop: int) -> Work[int]:
        """The messages of all topics in a part, by ordinals."""
        if start >= stop:
            return 0
        before = yield from operation(self._deadline, partial(count_before, partition, start))
        behind = yield from operation(self._deadline, partial(count_before, partition, stop))
        return max(0, behind - before)


def _within(header: Header, entry: TopicEntry, start: int, stop: int) -> tuple[int, int, bool]:
    """Of a topic's messages in a batch those with IDs in ``[start, stop)``: the first's ID, how
    many, and whether that is certain.
    """
    if entry.layout == SCATTERED:
        low, high = max(header.base + entry.first, start), min(header.end, stop)
        is_whole = start <= header.base + entry.first and header.end <= stop
        return low, max(0, min(entry.count, high - low)), is_whole
    first = header.base + entry.first
    low, high = max(first, start), min(first + entry.count, stop)
    return low, max(0, high - low), True

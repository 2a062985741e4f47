"""Whether a partition's log agrees with where topics that have an owner are said to lie."""

from __future__ import annotations

import bisect
import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from hqueue.format import rowkey
from hqueue.format.header import CONTROL, Header
from hqueue.message_id import MessageID

__all__ = ["OwnedRange", "RangeCheck", "Verdict", "contradictions"]


class OwnedRange(Protocol):
    """A range of a topic, as `hqueue.metadata.managers.LogRange` is one."""

    @property
    def partition(self) -> int: ...

    @property
    def first(self) -> MessageID: ...

    @property
    def last(self) -> MessageID | None: ...

    @property
    def epoch(self) -> int: ...

    @property
    def marked(self) -> bool: ...


@dataclasses.dataclass(frozen=True, slots=True)
class Verdict:
    """What is to be said of a topic's range, and the row where."""

    topic: str
    row: bytes
    problem: str
    damage: bool = True
    """Otherwise it is to be finished by the topic's next owner."""


@dataclasses.dataclass(slots=True)
class _Place:
    """One range, and what the log has of it."""

    topic: str
    range: OwnedRange
    closed: bool = False
    """Whether there is a control record where it ends."""
    fence: bytes | None = None
    """The row of the first control record in it that names a later owner."""
    late: bytes | None = None
    """The row of the first message of the topic behind that record."""
    foreign: bytes | None = None
    """The row of the first message of the topic that another owner than the range's appended."""

    @property
    def first(self) -> int:
        return int(self.range.first)

    def holds(self, message_id: int) -> bool:
        last = self.range.last
        return self.first <= message_id and (last is None or message_id <= last)


class RangeCheck:
    """Compares a partition's headers, seen one after the other, with topics' ranges.

    Held is a little for each range in this partition, and the name of each topic.

    Args:
        partition: the partition.
        ranges: topics, and all their ranges, in their order; those in other partitions too.
    """

    def __init__(self, partition: int, ranges: Mapping[str, Sequence[OwnedRange]]) -> None:
        self.outside = 0
        """Messages of these topics, behind the first ID that a hub gave, in none of the ranges, or
        by none of the owners."""
        self._partition = partition
        self._ranges = ranges
        self._beginning: int | None = None
        self._places: dict[str, list[_Place]] = {}
        self._ends: dict[int, list[_Place]] = {}
        for topic, each in ranges.items():
            here = [_Place(topic, one) for one in each if one.partition == partition]
            if here:
                self._places[topic] = sorted(here, key=lambda place: place.first)
            for place in here:
                if place.range.last is not None:
                    self._ends.setdefault(int(place.range.last), []).append(place)

    def see(self, row: bytes, header: Header, epochs: Mapping[str, int]) -> None:
        """Take the next header; `epochs` is what it says: of a control record, of the owners from
        there on; of a batch of messages, of those that appended it.
        """
        if self._beginning is None:
            self._beginning = header.base
        if header.kind == CONTROL:
            for topic, epoch in epochs.items():
                place = self._place(topic, header.base)
                if place is not None and place.fence is None and epoch > place.range.epoch:
                    place.fence = row
            for place in self._ends.get(header.base, ()):
                place.closed = True
        for entry in header.topics:
            place, epoch_of = self._place(entry.topic, header.base), epochs.get(entry.topic)
            if place is None or (place.range.marked and epoch_of is None):
                known = self._ranges.get(entry.topic)
                if known and header.base >= known[0].first:
                    self.outside += entry.count
                continue
            if place.fence is not None and place.late is None:
                place.late = row
            if epoch_of not in (None, place.range.epoch) and place.foreign is None:
                place.foreign = row

    def verdicts(self) -> Iterator[Verdict]:
        """What is to be said at the end of the log. Of what was collected, or truncated away, the
        log says nothing.
        """
        for topic in self._places:
            yield from self._contradictions(topic)
        if self._beginning is None:
            return
        for place in itertools.chain.from_iterable(self._places.values()):
            yield from self._judged(place, self._beginning)

    def _contradictions(self, topic: str) -> Iterator[Verdict]:
        for each, problem in contradictions(self._ranges[topic]):
            if each.partition == self._partition:
                yield Verdict(topic, self._row(int(each.first)), problem)

    def _judged(self, place: _Place, beginning: int) -> Iterator[Verdict]:
        last = place.range.last
        if last is not None and last >= beginning:
            if not place.closed:
                yield Verdict(
                    place.topic, self._row(int(last)), "a range ends where no control record lies"
                )
            elif place.fence is None and place.first >= beginning:
                yield Verdict(
                    place.topic,
                    self._row(int(last)),
                    "a range ends where no control record names a later owner",
                )
        if place.foreign is not None:
            yield Verdict(
                place.topic, place.foreign, "a message in a range is another owner's than the range"
            )
        if place.late is not None:
            yield Verdict(
                place.topic,
                place.late,
                "a message lies behind the control record that ended its owner's range",
            )
        elif last is None and place.fence is not None:
            yield Verdict(
                place.topic,
                place.fence,
                "a range that this control record ended is still said to be open",
                damage=False,
            )

    def _place(self, topic: str, message_id: int) -> _Place | None:
        """The range of a topic that an ID lies in."""
        places = self._places.get(topic)
        if places is None:
            return None
        at = bisect.bisect_right(places, message_id, key=lambda place: place.first)
        return places[at - 1] if at and places[at - 1].holds(message_id) else None

    def _row(self, message_id: int) -> bytes:
        return rowkey.encode(self._partition, message_id)


def contradictions(ranges: Sequence[OwnedRange]) -> Iterator[tuple[OwnedRange, str]]:
    """Ranges of a topic that can't be, by what is said of the ones before; and why."""
    for before, each in itertools.pairwise(ranges):
        if before.last is None:
            yield each, "a range begins while the one before is open"
        elif each.first <= before.last:
            yield each, "a range begins before the one before ends"
        if each.epoch <= before.epoch:
            yield each, "a range's epoch is not above that of the one before"

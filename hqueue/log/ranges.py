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

__all__ = ["OwnedRange", "RangeVerifier", "Verdict", "contradictions"]


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
    """What a check found about a topic's range, and the row where."""

    topic: str
    row: bytes
    problem: str
    damage: bool = True
    """Otherwise the topic's next owner finishes it."""


@dataclasses.dataclass(slots=True)
class _CheckedRange:
    """One range, and what the log has of it."""

    topic: str
    range: OwnedRange
    closed: bool = False
    """Whether there is a control record where it ends."""
    fence: bytes | None = None
    """The row of the first control record in it that names a later owner."""
    late: bytes | None = None
    """The row of the first message of the topic after that record."""
    foreign: bytes | None = None
    """The row of the first message of the topic that an owner other than the range's appended."""

    @property
    def first(self) -> int:
        return int(self.range.first)

    def holds(self, message_id: int) -> bool:
        last = self.range.last
        return self.first <= message_id and (last is None or message_id <= last)


class RangeVerifier:
    """Compares a partition's headers, seen one after the other, with topics' ranges.

    Held is a little for each range in this partition, and the name of each topic.

    Args:
        partition: the partition.
        ranges: topics, and all their ranges, in their order; those in other partitions too.
    """

    def __init__(self, partition: int, ranges: Mapping[str, Sequence[OwnedRange]]) -> None:
        self.outside = 0
        """Messages of these topics, from the first ID that a hub gave on, in none of the ranges, or
        by none of the owners."""
        self._partition = partition
        self._ranges = ranges
        self._beginning: int | None = None
        self._checked: dict[str, list[_CheckedRange]] = {}
        self._ends: dict[int, list[_CheckedRange]] = {}
        for topic, each in ranges.items():
            here = [_CheckedRange(topic, one) for one in each if one.partition == partition]
            if here:
                self._checked[topic] = sorted(here, key=lambda checked: checked.first)
            for checked in here:
                if checked.range.last is not None:
                    self._ends.setdefault(int(checked.range.last), []).append(checked)

    def see(self, row: bytes, header: Header, epochs: Mapping[str, int]) -> None:
        """Take the next header; `epochs` is what it says: of a control record, of the owners from
        there on; of a batch of messages, of those that appended it.
        """
        if self._beginning is None:
            self._beginning = header.base
        if header.kind == CONTROL:
            for topic, epoch in epochs.items():
                checked = self._range_of(topic, header.base)
                if checked is not None and checked.fence is None and epoch > checked.range.epoch:
                    checked.fence = row
            for checked in self._ends.get(header.base, ()):
                checked.closed = True
        for entry in header.topics:
            checked, epoch_of = self._range_of(entry.topic, header.base), epochs.get(entry.topic)
            if checked is None or (checked.range.marked and epoch_of is None):
                known = self._ranges.get(entry.topic)
                if known and header.base >= known[0].first:
                    self.outside += entry.count
                continue
            if checked.fence is not None and checked.late is None:
                checked.late = row
            if epoch_of not in (None, checked.range.epoch) and checked.foreign is None:
                checked.foreign = row

    def verdicts(self) -> Iterator[Verdict]:
        """What the check found, at the end of the log. The log says nothing of messages that were
        collected or truncated.
        """
        for topic in self._checked:
            yield from self._contradictions(topic)
        if self._beginning is None:
            return
        for checked in itertools.chain.from_iterable(self._checked.values()):
            yield from self._judged(checked, self._beginning)

    def _contradictions(self, topic: str) -> Iterator[Verdict]:
        for each, problem in contradictions(self._ranges[topic]):
            if each.partition == self._partition:
                yield Verdict(topic, self._row(int(each.first)), problem)

    def _judged(self, checked: _CheckedRange, beginning: int) -> Iterator[Verdict]:
        last = checked.range.last
        if last is not None and last >= beginning:
            if not checked.closed:
                yield Verdict(
                    checked.topic, self._row(int(last)), "a range ends where no control record lies"
                )
            elif checked.fence is None and checked.first >= beginning:
                yield Verdict(
                    checked.topic,
                    self._row(int(last)),
                    "a range ends where no control record names a later owner",
                )
        if checked.foreign is not None:
            yield Verdict(
                checked.topic,
                checked.foreign,
                "a message in a range is from an owner other than the range's",
            )
        if checked.late is not None:
            yield Verdict(
                checked.topic,
                checked.late,
                "a message lies after the control record that ended its owner's range",
            )
        elif last is None and checked.fence is not None:
            yield Verdict(
                checked.topic,
                checked.fence,
                "a range that this control record ended is still said to be open",
                damage=False,
            )

    def _range_of(self, topic: str, message_id: int) -> _CheckedRange | None:
        """The range of a topic that an ID lies in."""
        owned = self._checked.get(topic)
        if owned is None:
            return None
        at = bisect.bisect_right(owned, message_id, key=lambda checked: checked.first)
        return owned[at - 1] if at and owned[at - 1].holds(message_id) else None

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

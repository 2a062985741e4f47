"""The window of a share group: the fates of a partition's messages."""

from __future__ import annotations

import enum
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from hqueue.metadata.delays import Delay

__all__ = ["DONE", "NO_KEY", "Fate", "LetterCounts", "Mark", "Move", "Span", "Window", "split"]


NO_KEY = -1
"""The slot of a message without a key, which waits for no other."""


class Fate(enum.IntEnum):
    """The state of a message in a share group. The numbers are on disk."""

    AVAILABLE = 0
    """No consumer has the message."""
    ACQUIRED = 1
    """A consumer has the message, until its lock lapses."""
    DONE = 2
    """The message was processed, or is a dead letter."""


class Mark(NamedTuple):
    """The fate of a message, its deliveries, and its lock."""

    fate: Fate
    deliveries: int = 0
    """How often the message was delivered, the current delivery included."""
    holder: str = ""
    """The ID of the consumer that has an acquired message. No other consumer ever has that ID."""
    stamp: int = 0
    """The number of the holder's write that acquired the message, or renewed its lock."""
    lock_ms: int = 0
    """How long the holder has the message, from that write on."""

    def released(self, *, delivered: bool) -> Mark:
        """The mark of a message that its holder gives back.

        Args:
            delivered: whether the program got the message. If not, this delivery does not count.
        """
        return Mark(Fate.AVAILABLE, self.deliveries if delivered else max(0, self.deliveries - 1))


DONE = Mark(Fate.DONE)


class Span(NamedTuple):
    """Messages of a partition that follow one another, and have the same mark."""

    begin: int
    """The first ID. It need not be that of a message."""
    end: int
    """The first ID after the messages. It need not be that of a message."""
    messages: int
    """How many messages of the group's topics the span has."""
    mark: Mark
    slots: frozenset[int] = frozenset()
    """Where keys are kept in order: the slots of these messages' keys, and perhaps of others."""

    @property
    def is_done(self) -> bool:
        return self.mark.fate is Fate.DONE


class Move(NamedTuple):
    """How far messages were moved from a record of delays into the window. Both may still have
    these messages.
    """

    name: str
    due_ms: int
    """When the last one that was moved is due."""
    id: int
    """The ID of the last one that was moved, in the order of times and then of IDs."""


class LetterCounts(NamedTuple):
    """How many messages became dead letters since the record began. The write that makes a message
    done also counts it, so each counts once.
    """

    rejected: int = 0
    """Messages that programs rejected."""
    exhausted: int = 0
    """Messages that were delivered too often."""


class Window(NamedTuple):
    """The fates of a partition's messages. All messages before `begin` are done, no consumer has
    had any from `end` on, and each ID in between lies in one span. In the spans a delayed message
    counts as done: it lies in a record of delays, or among the `late`.
    """

    begin: int
    spans: tuple[Span, ...] = ()
    late: tuple[Span, ...] = ()
    """Delayed messages that are due now, and not done. Each has its own span."""
    delays: tuple[Delay, ...] = ()
    """The records of delays."""
    moves: tuple[Move, ...] = ()
    dead_letters: LetterCounts = LetterCounts()

    @classmethod
    def of(cls, begin: int, spans: Iterable[Span], late: Iterable[Span] = ()) -> Window:
        """The window with these spans, which follow one another from `begin` on."""
        left = list(_merged(span for span in spans if span.end > span.begin))
        first = next((number for number, span in enumerate(left) if not span.is_done), len(left))
        for span in left[:first]:
            begin = span.end
        waiting = sorted(span for span in late if not span.is_done)
        return cls(begin, tuple(left[first:]), tuple(waiting))

    @property
    def each(self) -> tuple[Span, ...]:
        """All spans, the late ones first."""
        return (*self.late, *self.spans)

    @property
    def end(self) -> int:
        """The first ID that no consumer has had."""
        return self.spans[-1].end if self.spans else self.begin

    @property
    def unfinished(self) -> int:
        """How many messages of the window are not done."""
        return sum(span.messages for span in self.each if not span.is_done)

    @property
    def acquired(self) -> int:
        """How many messages of the window consumers have."""
        return sum(span.messages for span in self.each if span.mark.fate is Fate.ACQUIRED)

    @property
    def done(self) -> int:
        """How many messages of the window are done although an earlier one is not."""
        return sum(span.messages for span in self.spans if span.is_done)

    def changed(self, parts: Mapping[Span, Sequence[Span]], more: Sequence[Span] = ()) -> Window:
        """The window with some spans replaced by others, and with more spans at its end."""
        if not parts and not more:
            return self
        kept: Iterable[Span] = self.spans
        late: Iterable[Span] = self.late
        if parts:  # Looking spans up takes long where there are thousands.
            kept = itertools.chain.from_iterable(parts.get(span, (span,)) for span in kept)
            late = itertools.chain.from_iterable(parts.get(span, (span,)) for span in late)
        changed = Window.of(self.begin, [*kept, *more], late)
        return self._replace(begin=changed.begin, spans=changed.spans, late=changed.late)


def split(
    span: Span,
    ids: Sequence[int],
    marks: Sequence[Mark],
    slots: Sequence[int] | None = None,
    *,
    whole: bool,
) -> list[Span]:
    """The spans that replace a span when its messages get new marks.

    Args:
        span: the span to split.
        ids: the IDs of its messages in ascending order: all of them, or the first ones.
        marks: the new mark of each of these messages.
        slots: the slots of their keys, where keys are kept in order.
        whole: whether these are all messages of the span, and not only the first ones. They are
            fewer than the span says if some have expired.
    """
    parts: list[Span] = []
    begin = span.begin
    numbered = range(len(ids))
    for mark, group in itertools.groupby(numbered, marks.__getitem__):
        members = list(group)
        following = members[-1] + 1
        end = ids[following] if following < len(ids) else ids[-1] + 1
        keys: set[int] = set()
        if slots is not None and mark.fate is not Fate.DONE:
            keys = {slots[number] for number in members} - {NO_KEY}
        parts.append(Span(begin, end, len(members), mark, frozenset(keys)))
        begin = end
    if not whole:
        left = max(0, span.messages - len(ids))
        parts.append(span._replace(begin=begin, messages=left))
    elif parts:
        parts[-1] = parts[-1]._replace(end=span.end)
    else:
        parts.append(Span(span.begin, span.end, 0, DONE))  # The messages have expired.
    return parts


def _merged(spans: Iterable[Span]) -> Iterator[Span]:
    last: Span | None = None
    for span in spans:
        if last is not None and last.mark == span.mark:
            messages = last.messages + span.messages
            last = Span(last.begin, span.end, messages, span.mark, last.slots | span.slots)
            continue
        if last is not None:
            yield last
        last = span
    if last is not None:
        yield last

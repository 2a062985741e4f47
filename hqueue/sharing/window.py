"""What has become of each message of a partition, for one share group."""

from __future__ import annotations

import enum
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

__all__ = ["DONE", "NO_KEY", "Delay", "Fate", "Mark", "Move", "Span", "Window", "split"]


NO_KEY = -1
"""The slot of a message without a key, which waits for no other."""


class Fate(enum.IntEnum):
    """What has become of a message. The numbers are on disk."""

    AVAILABLE = 0
    """Nobody has it."""
    ACQUIRED = 1
    """A consumer has it, until its lock lapses."""
    DONE = 2
    """It was processed, or is a dead letter."""


class Mark(NamedTuple):
    """The fate of a message, with what belongs to it."""

    fate: Fate
    deliveries: int = 0
    """How often it was handed out, this time included."""
    holder: str = ""
    """The ID of the consumer that has it, if it is acquired. No other consumer ever has that ID."""
    stamp: int = 0
    """The number of the holder's write that acquired it, or renewed its lock."""
    lock_ms: int = 0
    """How long the holder has it, from that write on."""

    def released(self, *, delivered: bool) -> Mark:
        """The fate of a message that its holder gives back.

        Args:
            delivered: whether the program got it. If not, this time counts as no delivery.
        """
        return Mark(Fate.AVAILABLE, self.deliveries if delivered else max(0, self.deliveries - 1))


DONE = Mark(Fate.DONE)


class Span(NamedTuple):
    """Messages of a partition that follow one another, and have the same fate."""

    begin: int
    """From this ID on; it need not be that of a message."""
    end: int
    """The first ID after them; it need not be that of a message."""
    messages: int
    """How many, of the topics that the group reads."""
    mark: Mark
    slots: frozenset[int] = frozenset()
    """Where keys are kept in order: those of the keys of these messages, and perhaps of others."""

    @property
    def is_done(self) -> bool:
        return self.mark.fate is Fate.DONE


class Delay(NamedTuple):
    """A record of messages that wait for their time."""

    name: str
    """Where it lies, below the window's record."""
    due_ms: int
    """When the first of them is due, in milliseconds since the epoch."""


class Move(NamedTuple):
    """What was moved from such a record into the window, and may still lie in both."""

    name: str
    due_ms: int
    id: int
    """All up to this message of this time, in the order of times and IDs."""


class Window(NamedTuple):
    """What has become of the messages of a partition. All before `begin` are done, and nobody has
    had any from `end` on; in between each ID lies in one span. A message that waits, or has waited,
    for its time counts as done there: it lies in a record of delays, or among the `late`.
    """

    begin: int
    spans: tuple[Span, ...] = ()
    late: tuple[Span, ...] = ()
    """Messages whose time has come, and that are not done: each has a span of its own."""
    delays: tuple[Delay, ...] = ()
    """The records of delays."""
    moves: tuple[Move, ...] = ()

    @classmethod
    def of(
        cls,
        begin: int,
        spans: Iterable[Span],
        late: Iterable[Span] = (),
        delays: Iterable[Delay] = (),
        moves: Iterable[Move] = (),
    ) -> Window:
        """The window of these spans, which follow one another from `begin` on."""
        left = list(_merged(span for span in spans if span.end > span.begin))
        first = next((number for number, span in enumerate(left) if not span.is_done), len(left))
        for span in left[:first]:
            begin = span.end
        waiting = sorted(span for span in late if not span.is_done)
        return cls(begin, tuple(left[first:]), tuple(waiting), tuple(delays), tuple(moves))

    @property
    def each(self) -> tuple[Span, ...]:
        """All spans, the late ones first."""
        return (*self.late, *self.spans)

    @property
    def end(self) -> int:
        """The first ID that nobody has had."""
        return self.spans[-1].end if self.spans else self.begin

    @property
    def unfinished(self) -> int:
        """How many messages of it are not done."""
        return sum(span.messages for span in self.each if not span.is_done)

    @property
    def acquired(self) -> int:
        """How many messages of it consumers have."""
        return sum(span.messages for span in self.each if span.mark.fate is Fate.ACQUIRED)

    @property
    def done(self) -> int:
        """How many messages of it are done although one before them is not."""
        return sum(span.messages for span in self.spans if span.is_done)

    def changed(self, parts: Mapping[Span, Sequence[Span]], more: Sequence[Span] = ()) -> Window:
        """The window with other spans in the place of some of its own, and with more at its end."""
        if not parts and not more:
            return self
        kept: Iterable[Span] = self.spans
        late: Iterable[Span] = self.late
        if parts:  # Looking spans up takes long where there are thousands.
            kept = itertools.chain.from_iterable(parts.get(span, (span,)) for span in kept)
            late = itertools.chain.from_iterable(parts.get(span, (span,)) for span in late)
        return Window.of(self.begin, [*kept, *more], late, self.delays, self.moves)


def split(
    span: Span,
    ids: Sequence[int],
    marks: Sequence[Mark],
    slots: Sequence[int] | None = None,
    *,
    whole: bool,
) -> list[Span]:
    """The spans that a span becomes.

    Args:
        span: what is split.
        ids: its messages in their order: all of them, or the first ones.
        marks: what becomes of each of these.
        slots: the slot of each one's key, where keys are kept in order.
        whole: whether these are all messages that it has, and not only the first ones. If one or
            another has expired, they are fewer than the span says.
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
        parts.append(Span(span.begin, span.end, 0, DONE))  # They have expired.
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

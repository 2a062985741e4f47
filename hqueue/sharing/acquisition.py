"""Decides how a window changes when a consumer takes messages or answers for them."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import repeat
from typing import NamedTuple

from hqueue.metadata.delays import DELAYED_TOGETHER_MAX, Delayed
from hqueue.sharing.held import Answer
from hqueue.sharing.window import DONE, NO_KEY, Fate, LetterCounts, Mark, Span, Window, split
from hqueue.sharing.window_record import WINDOW_MESSAGES_MAX

__all__ = ["Acquired", "Part", "Taken", "acquire", "answered", "wanted"]


class Part(NamedTuple):
    """A part of the log that was read."""

    begin: int
    """The first ID."""
    end: int
    """The ID after the last one."""
    ids: Sequence[int]
    """The IDs of the messages in it that belong to the group's topics."""
    slots: Sequence[int] | None = None
    """The slots of these messages' keys, where keys are kept in order."""
    dues_ms: Mapping[int, int] = {}
    """When its delayed messages are due, by their IDs, in milliseconds since the epoch."""

    def between(self, begin: int, end: int) -> Part:
        """What this part has between two IDs."""
        first, last = bisect_left(self.ids, begin), bisect_left(self.ids, end)
        return self._replace(
            begin=max(begin, self.begin),
            end=min(end, self.end),
            ids=self.ids[first:last],
            slots=None if self.slots is None else self.slots[first:last],
        )


class Taken(NamedTuple):
    """A message that a consumer has acquired."""

    id: int
    deliveries: int


class Acquired(NamedTuple):
    """The result of `acquire`."""

    window: Window
    taken: list[Taken]
    """The acquired messages: first the late ones, then the others, each in the order of IDs."""
    delayed: list[Delayed]
    """Messages that are not due yet. The window counts them as done, so a record of delays must
    have them."""


def wanted(window: Window, is_free: Callable[[Span], bool], messages: int) -> list[Span]:
    """The spans before the window's end that a consumer can take, the late ones first, until they
    have so many messages.
    """
    spans: list[Span] = []
    blocked: set[int] = set()
    for span in window.each:
        if span.is_done:
            continue
        if messages > 0 and is_free(span) and not (span.slots and span.slots <= blocked):
            spans.append(span)
            messages -= span.messages
        else:
            blocked |= span.slots
    return spans


def acquire(
    window: Window,
    parts: Sequence[Part],
    own: Mark,
    is_free: Callable[[Span], bool],
    *,
    messages_max: int,
    now_ms: int = 0,
    delayed_max: int = DELAYED_TOGETHER_MAX,
) -> Acquired:
    """Take messages: those before the window's end first, and then those that nobody has had.

    Args:
        window: the group's window of the partition.
        parts: the parts of the log that were read. One may begin at the window's end.
        own: the mark of a message that is taken now, without its deliveries.
        is_free: whether the messages of a span may be taken.
        messages_max: how many messages to take at most.
        now_ms: the current time, in milliseconds since the epoch.
        delayed_max: how many delayed messages may be put aside. Messages after the first one too
            many are not taken.
    """
    taking = _Taking(own, messages_max, now_ms, delayed_max)
    changed: dict[Span, list[Span]] = {}
    late = frozenset(window.late)
    for span in window.each:
        if span.is_done:
            continue
        part = None
        if not taking.is_full and is_free(span):
            part = next((each for each in parts if each.begin <= span.begin < each.end), None)
        if part is None:
            taking.blocked |= span.slots
            continue
        part = part.between(span.begin, span.end)
        # A late message is due, by the clock of the consumer that moved it here.
        changed[span] = taking.take(span, part._replace(dues_ms={}) if span in late else part)
    more: list[Span] = []
    room = WINDOW_MESSAGES_MAX - window.unfinished
    last = next((each for each in parts if each.begin <= window.end < each.end), None)
    if last is not None and not taking.is_full and room > 0:
        fresh = last.between(window.end, last.end)
        if len(fresh.ids) > room:
            fresh = fresh.between(fresh.begin, fresh.ids[room])
        more = taking.take_fresh(fresh)
    return Acquired(window.changed(changed, more), taking.taken, taking.delayed)


class _Taking:
    def __init__(self, own: Mark, messages_max: int, now_ms: int, delayed_max: int) -> None:
        self._own = own
        self._messages_max = messages_max
        self._now_ms = now_ms
        self._delayed_max = delayed_max
        self.taken: list[Taken] = []
        self.delayed: list[Delayed] = []
        self.blocked: set[int] = set()
        """Slots that an earlier unfinished message has: later messages of their keys wait."""

    @property
    def is_full(self) -> bool:
        return len(self.taken) >= self._messages_max

    def take(self, span: Span, part: Part) -> list[Span]:
        """The spans that replace a free span when the messages of a part of it are taken."""
        marks = self._marks(span.mark, part)
        whole = len(marks) == len(part.ids) and part.end >= span.end
        if not whole:
            self.blocked |= span.slots
        slots = None if part.slots is None else part.slots[: len(marks)]
        return split(span, part.ids[: len(marks)], marks, slots, whole=whole)

    def take_fresh(self, part: Part) -> list[Span]:
        """The spans of a part of the log that no consumer has had before."""
        marks = self._marks(Mark(Fate.AVAILABLE), part)
        if len(marks) < len(part.ids):
            part = part.between(part.begin, part.ids[len(marks)])
        span = Span(part.begin, part.end, len(part.ids), DONE)
        return split(span, part.ids, marks, part.slots, whole=True)

    def _marks(self, before: Mark, part: Part) -> list[Mark]:
        """The new marks of the first messages of a part, up to the last one that is taken."""
        deliveries = before.deliveries + 1
        own = self._own._replace(deliveries=deliveries)
        if part.slots is None and not part.dues_ms:
            ids = part.ids[: self._messages_max - len(self.taken)]
            self.taken += [Taken(each, deliveries) for each in ids]
            return [own] * len(ids)
        marks: list[Mark] = []
        for each, slot in zip(part.ids, part.slots or repeat(NO_KEY), strict=False):
            due_ms = part.dues_ms.get(each, 0)
            delays = due_ms > self._now_ms
            if self.is_full or (delays and len(self.delayed) >= self._delayed_max):
                break
            if delays:
                marks.append(DONE)
                self.delayed.append(Delayed(due_ms, each, before.deliveries))
            elif slot in self.blocked:
                marks.append(before)
            else:
                marks.append(own)
                self.taken.append(Taken(each, deliveries))
        return marks


def answered(
    window: Window,
    holder: str,
    held: Sequence[int],
    marks: Mapping[int, Mark],
    slots: Mapping[int, int] | None = None,
    *,
    answers: Mapping[int, Answer] | None = None,
) -> Window:
    """The window after a consumer's answers.

    Messages that the consumer has by the record, but does not hold, were acquired by a write that
    got no answer. They were never handed out, so they are available again.

    Args:
        window: the group's window of the partition.
        holder: the consumer's ID.
        held: the IDs of the messages that the consumer holds, in ascending order.
        marks: the new marks of the messages that change.
        slots: the slots of the messages' keys, where keys are kept in order.
        answers: the answers that gave the messages their marks. Dead letters among them are
            counted.
    """
    counts: Counter[Answer | None] = Counter()
    changed: dict[Span, list[Span]] = {}
    for span in window.each:
        if span.mark.holder != holder:
            continue
        ids = held[bisect_left(held, span.begin) : bisect_left(held, span.end)]
        if not ids:
            changed[span] = [span._replace(mark=span.mark.released(delivered=False))]
        elif len(ids) == span.messages and any(each in marks for each in ids):
            keys = None if slots is None else [slots[each] for each in ids]
            become = [marks.get(each, span.mark) for each in ids]
            changed[span] = split(span, ids, become, keys, whole=True)
            if answers is not None:
                counts.update(map(answers.get, ids))
    rejected, exhausted = window.dead_letters
    letters = LetterCounts(rejected + counts[Answer.REJECTED], exhausted + counts[Answer.EXHAUSTED])
    return window.changed(changed)._replace(dead_letters=letters)

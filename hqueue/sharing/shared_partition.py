"""Consumes a partition for a share group: each consumer changes the group's record by
compare-and-set of its version.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from typing import NamedTuple

from hqueue.consume.near import near
from hqueue.errors import Outcome, StoreUnavailableError
from hqueue.groups.positions import BEGINNING
from hqueue.metadata import MetadataStore
from hqueue.metadata.delay_records import Addition
from hqueue.metadata.delays import DELAYED_TOGETHER_MAX, Delayed
from hqueue.metadata.ports import Change, Record, Version
from hqueue.metadata.steps import Create, OnStore, Read, Work, Write
from hqueue.runtime.clock import SYSTEM_CLOCK, Clock, Deadline
from hqueue.runtime.steps import Pause
from hqueue.runtime.stepwise import stepwise
from hqueue.sharing.acquisition import Acquired, Part, Taken, acquire, answered, wanted
from hqueue.sharing.delays import WindowDelays, takes_delays
from hqueue.sharing.held import Answer, Held
from hqueue.sharing.partition_reading import PartitionReading
from hqueue.sharing.window import DONE, NO_KEY, Fate, Mark, Span, Window
from hqueue.sharing.window_record import decode_window, encode_window

__all__ = ["SharedPartition"]

CLOCKS_DIFFER_BY = 1.05
"""Two clocks that measure the same time differ by less than this factor, so other consumers wait
this much longer for a lock to lapse."""

CONFLICT_MS = 4.0
CONFLICT_MS_MAX = 64.0


class _Known(NamedTuple):
    """The group's record, as the consumer knows it."""

    window: Window
    version: Version
    strays: bool = False
    """Whether the consumer has messages by the record that it does not hold."""


class SharedPartition(OnStore):
    """Acquires messages of a partition for one consumer, and writes the consumer's answers. One
    thread or task at a time uses it.

    **One holder at a time**: a consumer has a message for `lock_ms` by its own clock, counted from
    before it sends the write that acquires the message. Another consumer takes the message only
    after it has itself seen that very write unchanged for as long, by its own clock. So no consumer
    needs the time of another one.

    **Fencing**: each write names the version that it changes. A consumer that stood still meanwhile
    learns what others took before it changes anything. A late answer counts only for messages that
    nobody else took.

    **A write without an answer** may still take effect. The messages that it acquired were not
    handed out, and are given back as soon as the consumer sees them. Its answers are written again.

    Args:
        store: keeps the record.
        path: the record's path.
        reading: reads the log.
        holder: the consumer's ID, which no other consumer has or had.
        lock_ms: how long the consumer has what it acquires.
        begin: work that returns the position at which a group without a record begins.
        deadline: makes the deadline of one operation.
        clock: measures locks.
    """

    def __init__(
        self,
        store: MetadataStore,
        path: str,
        reading: PartitionReading,
        *,
        holder: str,
        lock_ms: int,
        begin: Callable[[], Work[int]],
        deadline: Callable[[], Deadline],
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        super().__init__(store, clock)
        self.path = path
        self.reading = reading
        self.held: dict[int, Held] = {}
        """The messages that the consumer holds, by their IDs."""
        self.lapsed: list[int] = []
        """The IDs of messages whose locks lapsed, so that other consumers may have them, or had
        them. The consumer may have answered for some of them. The caller that reports them empties
        this list."""
        self._holder = holder
        self._lock_ms = lock_ms
        self._begin = begin
        self._deadline = deadline
        self.delayed = 0
        """How many messages the last exchange met that are not due yet."""
        self.takes_delays = True
        """Whether the group had room for more delayed messages when its record was seen last."""
        self._delays = WindowDelays(store, path, clock)
        self._stamp = 0
        self._known: _Known | None = None
        self._short_until: Deadline | None = None
        """When a log that is too short is taken for another one; None while the log isn't short."""
        self._seen: dict[tuple[str, int], float] = {}
        """When this consumer first saw other holders' writes, by its own clock."""

    @property
    def window(self) -> Window | None:
        """The group's window of the partition, as it is known here; None if it must be read."""
        return None if self._known is None else self._known.window

    @property
    def answers(self) -> bool:
        """Whether there are answers to write. A lock that lapsed counts as an answer."""
        now_ms = self._clock.monotonic_ms()
        held = list(self.held.values())
        return any(each.answer is not None or each.until_ms <= now_ms for each in held)

    @property
    def offers(self) -> bool:
        """Whether there may be messages to take before the window's end."""
        if self._known is None or self._known.strays:
            return True
        window, now_ms = self._known.window, self._clock.wall_ms()
        due = any(each.due_ms <= now_ms for each in window.delays)
        return due or bool(wanted(window, self._is_free(), 1))

    def see(self, record: Record | None) -> None:
        """Note the record that was read just now. None means that the store has no record."""
        self._known = None
        if record is None:
            return
        window = decode_window(record.value, self.path)
        now_ms = self._clock.monotonic_ms()
        pairs = {
            (span.mark.holder, span.mark.stamp)
            for span in window.each
            if self._is_others(span.mark)
        }
        self._seen = {pair: self._seen.get(pair, now_ms) for pair in pairs}
        self._drop_lapsed(window)
        strays = answered(window, self._holder, sorted(self.held), {}) != window
        self._known = _Known(window, record.version, strays)
        self.takes_delays = takes_delays(window)

    @property
    def is_short(self) -> bool:
        """Whether the log ended, a moment ago, before the end of the group's window."""
        window = self.window
        if window is None or window.end <= BEGINNING.next or not self.reading.is_short(window.end):
            self._short_until = None
            return False
        return True

    @stepwise
    def begin_again(self) -> Work[bool]:
        """Start over with the first message of the log, if the log `is_short` for as long as an
        operation may take: it is another log, since the queue was truncated, or was deleted and
        created again. Its dead letters are counted with the earlier ones. Returns whether that
        was so.
        """
        known = self._known
        self._short_until = self._short_until or self._deadline()
        if known is None or not self._short_until.expired:
            return False
        self._known = self._short_until = None
        self._stamp += 1
        window = Window(int(BEGINNING.next), dead_letters=known.window.dead_letters)
        value = encode_window(window, f"{self._holder}/{self._stamp}")
        written = yield Write({self.path: Change(value, known.version)})
        yield from self.reading.release()
        if written[self.path] is not None:
            yield from self._delays.drop.steps(each.name for each in known.window.delays)
        return True

    @stepwise
    def exchange(self, messages_max: int, renewed: Collection[int] = ()) -> Work[list[Taken]]:
        """Write the answers, and take messages, in one write if no other consumer writes meanwhile.

        Args:
            messages_max: how many messages to take at most; 0 to write answers only.
            renewed: messages whose locks are renewed, unless they have an answer.

        Returns:
            The messages that were taken: first the late ones, then the others, each in the order of
            IDs. They are `held` now. The list is empty if other consumers were always faster.

        Raises:
            StoreUnavailableError: the store was unavailable, or other consumers kept changing the
                record so that answers could not be written. The error's outcome is that of the
                answers.
            UnsupportedFormatError: the record can't be read.
        """
        deadline, pause_ms = self._deadline(), CONFLICT_MS
        while True:
            known = self._known or (yield from self._read())
            self._give_up_lapsed()
            answers = self._answers(renewed)
            # A write that renews or gives back acquires nothing: if its answer got lost, the
            # messages that it acquired would look like those that it renewed.
            only_done = all(each.is_done for each in answers.values())
            taken = yield from self._try(known, answers, messages_max if only_done else 0)
            if taken is not None and (only_done or not messages_max or deadline.expired):
                return taken
            if taken is not None:
                continue
            if deadline.expired and self.answers:
                raise StoreUnavailableError(
                    "other consumers of the group keep changing its record: try again",
                    outcome=Outcome.NOT_APPLIED,
                    path=self.path,
                )
            if deadline.expired:
                return []
            yield Pause(random.uniform(0, pause_ms))
            pause_ms = min(2 * pause_ms, CONFLICT_MS_MAX)

    def _answers(self, renewed: Collection[int]) -> dict[int, Answer]:
        answers = {each: Answer.RENEW for each in renewed if each in self.held}
        return answers | {
            each: held.answer for each, held in self.held.items() if held.answer is not None
        }

    def _try(
        self, known: _Known, answers: Mapping[int, Answer], messages_max: int
    ) -> Work[list[Taken] | None]:
        """Try an `exchange` once. Returns None if another consumer was faster."""
        self._stamp += 1
        own = Mark(Fate.ACQUIRED, 0, self._holder, self._stamp, self._lock_ms)
        ids = sorted(self.held)
        delayed = self._delayed(known.window, answers)
        marks = {
            each: DONE if each in delayed else self.held[each].mark(answer, own)
            for each, answer in answers.items()
        }
        slots = {each: self.held[each].slot for each in ids} if self.reading.by_key else None
        settled = yield from self._delays.brought_in.steps(known.window, more=messages_max > 0)
        if settled is None:
            self._known = None
            return None
        window = answered(settled, self._holder, ids, marks, slots, answers=answers)
        acquired = Acquired(window, [], [])
        parts: list[Part] = []
        if messages_max > 0:
            parts = yield from self._parts(window, messages_max)
            now_ms = self._clock.wall_ms()
            acquired = acquire(
                window,
                parts,
                own,
                self._is_free(),
                messages_max=messages_max,
                now_ms=now_ms,
                delayed_max=DELAYED_TOGETHER_MAX if takes_delays(window) else 0,
            )
        window = acquired.window
        self.delayed = len(acquired.delayed)
        waiting = [*acquired.delayed, *delayed.values()]
        added = Addition()
        if waiting:
            added = yield from self._delays.add.steps(window.delays, waiting)
            window = window._replace(delays=added.delays)
        if window == known.window:
            self._confirm(answers, 0.0)
            return []
        sent_ms = self._clock.monotonic_ms()
        self._known = None  # Until the write's answer has come.
        value = encode_window(window, f"{self._holder}/{self._stamp}")
        written = yield Write({self.path: Change(value, known.version)})
        version = written[self.path]
        if version is None:
            yield from self._delays.refused.steps(added.made)
            return None
        self._known = _Known(window, version)
        self.takes_delays = takes_delays(window)
        self._confirm(answers, sent_ms + self._lock_ms)
        slot_of = _slots(parts)
        for message_id, deliveries in acquired.taken:
            until_ms = sent_ms + self._lock_ms
            slot = slot_of.get(message_id, NO_KEY)
            self.held[message_id] = Held(deliveries, until_ms, slot)
        yield from self._delays.written.steps(each[0] for each in (*window.delays, *window.moves))
        return acquired.taken

    def _delayed(self, window: Window, answers: Mapping[int, Answer]) -> dict[int, Delayed]:
        """The messages that are released for later, and that the consumer has by the record, by
        their IDs. Other threads may change the answers meanwhile.
        """
        later = {
            each: Delayed(held.due_ms, each, held.deliveries)
            for each, answer in answers.items()
            if answer is Answer.RELEASE and (held := self.held[each]).due_ms is not None
        }
        if not later:  # There may be thousands of spans.
            return {}
        own = [span for span in window.each if span.mark.holder == self._holder]
        return {
            each: delayed
            for each, delayed in later.items()
            if any(span.begin <= each < span.end for span in own)
        }

    def _give_up_lapsed(self) -> None:
        """Give back the messages whose locks lapsed without an answer."""
        now_ms = self._clock.monotonic_ms()
        for each, held in list(self.held.items()):
            if held.answer is None and held.until_ms <= now_ms:
                held.answer = Answer.RELEASE if held.delivered else Answer.RETURN
                self.lapsed.append(each)

    def _parts(self, window: Window, messages_max: int) -> Work[list[Part]]:
        """Read the parts of the log that have messages to take."""
        parts: list[Part] = []
        self.reading.forget_between()
        spans = wanted(window, self._is_free(), messages_max)
        for begin, end in near((span.begin, span.end) for span in spans):
            parts.append((yield from self.reading.between(begin, end, messages_max)))
        left = messages_max - sum(span.messages for span in spans)
        if left > 0 and self.delayed:
            left = DELAYED_TOGETHER_MAX  # So that many delayed messages share a record.
        if left > 0:
            parts.append((yield from self.reading.ahead(window.end, left)))
        return parts

    def _read(self) -> Work[_Known]:
        while True:
            found = yield Read([self.path])
            if self.path not in found:
                begin = yield from self._begin()
                value = encode_window(Window(begin), f"{self._holder}/0")
                found = yield Create({self.path: value})
            self.see(found.get(self.path))
            if self._known is not None:
                return self._known

    def _confirm(self, answers: Mapping[int, Answer], until_ms: float) -> None:
        """Note that these answers are written. Threads may have given later ones meanwhile."""
        for each, answer in answers.items():
            held = self.held[each]
            if answer is not Answer.RENEW:
                del self.held[each]
                continue
            held.until_ms = until_ms
            if held.answer is answer:
                held.answer = None

    def _drop_lapsed(self, window: Window) -> None:
        """Drop the messages that other consumers have taken, and those that this consumer's own
        answers have ended by a write that got no answer.
        """
        late = {span.begin: span for span in window.late}
        ends = [span.end for span in window.spans]
        for each in list(self.held):
            span = late.get(each)
            if span is None and window.begin <= each < window.end:
                span = window.spans[bisect_right(ends, each)]
            if span is None or span.mark.holder != self._holder:
                self.lapsed.append(each)
                del self.held[each]

    def _is_others(self, mark: Mark) -> bool:
        return mark.fate is Fate.ACQUIRED and mark.holder != self._holder

    def _lapses_at_ms(self, mark: Mark) -> float:
        since_ms = self._seen.get((mark.holder, mark.stamp), self._clock.monotonic_ms())
        return since_ms + mark.lock_ms * CLOCKS_DIFFER_BY

    def _is_free(self) -> Callable[[Span], bool]:
        """Makes a function that says whether the messages of a span may be taken now. It checks
        each mark once, since many spans have the same one.
        """
        now_ms = self._clock.monotonic_ms()

        @cache
        def is_free(mark: Mark) -> bool:
            if mark.fate is Fate.AVAILABLE:
                return True
            return self._is_others(mark) and self._lapses_at_ms(mark) <= now_ms

        return lambda span: is_free(span.mark)


def _slots(parts: Sequence[Part]) -> dict[int, int]:
    slots: dict[int, int] = {}
    for part in parts:
        if part.slots is not None:
            slots.update(zip(part.ids, part.slots, strict=True))
    return slots

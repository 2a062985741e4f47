"""A partition as a consumer of a share group has it, which changes the group's record by its
version.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import NamedTuple

from hqueue.errors import Outcome, StoreUnavailableError
from hqueue.groups.positions import BEGINNING
from hqueue.metadata import MetadataStore
from hqueue.metadata.ports import Change, Record, Version
from hqueue.metadata.steps import Create, OnStore, Read, Work, Write
from hqueue.runtime.clock import SYSTEM_CLOCK, Clock, Deadline
from hqueue.runtime.steps import Pause
from hqueue.runtime.stepwise import stepwise
from hqueue.sharing.acquisition import Acquired, Part, Taken, acquire, answered, near, wanted
from hqueue.sharing.delays import DELAYED_TOGETHER_MAX, Delayed, DelayRecords
from hqueue.sharing.held import Answer, Held
from hqueue.sharing.partition_reading import PartitionReading
from hqueue.sharing.window import DONE, NO_KEY, Delay, Fate, Mark, Span, Window
from hqueue.sharing.window_record import WINDOW_MESSAGES_MAX, decode_window, encode_window

__all__ = ["ShareRecords", "SharedPartition"]

CLOCKS_DIFFER_BY = 1.05
"""Two clocks differ by less in one span of time: so much longer do others wait for a lock."""

CONFLICT_MS = 4.0
CONFLICT_MS_MAX = 64.0


class _Known(NamedTuple):
    """The group's record, as it is known."""

    window: Window
    version: Version
    strays: bool = False
    """Whether the consumer has something by it that it does not have in its hands."""


class ShareRecords(OnStore):
    """The records of a group's partitions. Thread-safe."""

    @stepwise
    def read(self, partitions: Sequence[SharedPartition]) -> Work[None]:
        """Let partitions see their records, in one round trip or a few."""
        found = yield Read([each.path for each in partitions])
        for each in partitions:
            each.see(found.get(each.path))


class SharedPartition(OnStore):
    """What one consumer does with a partition. One thread or task at a time uses it.

    **One holder at a time**: a consumer has a message from before it sent the write that acquired
    it, for `lock_ms`, by its own clock. Another one takes the message only when it has itself seen
    that very write unchanged for as long, by its own. So neither needs the other's time.

    **Fencing**: each write names the version that it changes. A consumer that stood still meanwhile
    learns what others took before it changes anything; a late answer counts for what nobody took.

    **A write without an answer** may be made yet. What it acquired was not handed out, and is given
    back as soon as it is seen; its answers are written again.

    Args:
        store: has the record.
        path: where it lies.
        reading: reads the log.
        holder: an ID that no other consumer has, and none had.
        lock_ms: how long it has what it acquires.
        begin: work that says where a group begins that has no record yet.
        deadline: the bound on one operation.
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
        """What it has, by the messages' IDs."""
        self.lapsed: list[int] = []
        """Messages that it had for too long, and others may have, or had; among them are some that
        it has answered. Who reports them empties this."""
        self._holder = holder
        self._lock_ms = lock_ms
        self._begin = begin
        self._deadline = deadline
        self.delayed = 0
        """How many messages the last exchange met whose time is to come."""
        self._delays = DelayRecords(store, path, clock)
        self._doubtful_delays: list[Delay] = []
        """Records of delays that the window may name, by a write that had no answer yet."""
        self._stamp = 0
        self._known: _Known | None = None
        self._short_until: Deadline | None = None
        """When a log that is short is taken for another one; None while it is not."""
        self._seen: dict[tuple[str, int], float] = {}
        """Since when other holders' writes have been seen, on the clock."""

    @property
    def window(self) -> Window | None:
        """What the group has of the partition, as it is known here; None if it must be read."""
        return None if self._known is None else self._known.window

    @property
    def answers(self) -> bool:
        """Whether there are answers to write: also that of a program which took too long."""
        now_ms = self._clock.monotonic_ms()
        held = list(self.held.values())
        return any(each.answer is not None or each.until_ms <= now_ms for each in held)

    @property
    def offers(self) -> bool:
        """Whether the record may have something to take before the window's end."""
        if self._known is None or self._known.strays:
            return True
        window, now_ms = self._known.window, self._clock.wall_ms()
        due = any(each.due_ms <= now_ms for each in window.delays)
        return due or bool(wanted(window, self._is_free(), 1))

    def see(self, record: Record | None) -> None:
        """Note a record that was read just now; None if there was none."""
        self._known = None
        if record is None:
            return
        window = decode_window(record.value, self.path)
        now_ms = self._clock.monotonic_ms()
        pairs = {
            (span.mark.holder, span.mark.stamp)
            for span in window.spans
            if self._is_others(span.mark)
        }
        self._seen = {pair: self._seen.get(pair, now_ms) for pair in pairs}
        self._drop_lapsed(window)
        strays = answered(window, self._holder, sorted(self.held), {}) != window
        self._known = _Known(window, record.version, strays)

    @property
    def is_short(self) -> bool:
        """Whether the log ended a moment ago before where the group has been."""
        window = self.window
        if window is None or window.end <= BEGINNING.next or not self.reading.is_short(window.end):
            self._short_until = None
            return False
        return True

    @stepwise
    def begin_again(self) -> Work[bool]:
        """Begin with the first message of the log, if that has been `is_short` for an operation's
        bound: it is another one, for the queue was truncated, or deleted and created again. Whether
        that was so.
        """
        known = self._known
        self._short_until = self._short_until or self._deadline()
        if known is None or not self._short_until.expired:
            return False
        self._known = self._short_until = None
        self._stamp += 1
        value = encode_window(Window(int(BEGINNING.next)), f"{self._holder}/{self._stamp}")
        written = yield Write({self.path: Change(value, known.version)})
        yield from self.reading.release()
        if written[self.path] is not None:
            yield from self._delays.drop.steps(known.window.delays)
        return True

    @stepwise
    def exchange(self, messages_max: int) -> Work[list[Taken]]:
        """Write what was answered, and take messages, with one write if no other consumer writes
        meanwhile.

        Args:
            messages_max: how many to take at most; 0 to write answers only.

        Returns:
            What was taken, in the order of IDs: it is `held` now. Nothing, if others were faster
            again and again.

        Raises:
            StoreUnavailableError: the store stayed away, or other consumers left no way to write
                answers. With an outcome of the answers.
            UnsupportedFormatError: the record can't be read.
        """
        deadline, pause_ms = self._deadline(), CONFLICT_MS
        while True:
            known = self._known or (yield from self._read())
            self._give_up_lapsed()
            answers = self._answers()
            # A write that renews or gives back acquires nothing: else, if its answer got lost, one
            # could not distinguish what it acquired from what it renewed.
            only_done = all(each is Answer.DONE for each in answers.values())
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

    def _answers(self) -> dict[int, Answer]:
        return {each: held.answer for each, held in self.held.items() if held.answer is not None}

    def _try(
        self, known: _Known, answers: Mapping[int, Answer], messages_max: int
    ) -> Work[list[Taken] | None]:
        """One try of `exchange`; None if others were faster."""
        self._stamp += 1
        own = Mark(Fate.ACQUIRED, 0, self._holder, self._stamp, self._lock_ms)
        ids = sorted(self.held)
        dues_ms = self._dues_ms(answers)
        settled = yield from self._with_late(known.window, messages_max)
        if settled is None:
            self._known = None
            return None
        marks = {
            each: DONE if each in dues_ms else self.held[each].mark(answer, own)
            for each, answer in answers.items()
        }
        slots = {each: self.held[each].slot for each in ids} if self.reading.by_key else None
        window = answered(settled, self._holder, ids, marks, slots)
        acquired = Acquired(window, [], [])
        parts: list[Part] = []
        if messages_max > 0:
            parts = yield from self._parts(window, messages_max)
            now_ms = self._clock.wall_ms()
            acquired = acquire(
                window, parts, own, self._is_free(), messages_max=messages_max, now_ms=now_ms
            )
        window = acquired.window
        self.delayed = len(acquired.delayed)
        delays: list[Delay] = []
        waiting = [*acquired.delayed, *self._delayed(known.window, dues_ms)]
        if waiting:
            delays = yield from self._delays.create.steps(waiting)
            window = window._replace(delays=(*window.delays, *delays))
        if window == known.window:
            self._confirm(answers, 0.0)
            return []
        sent_ms = self._clock.monotonic_ms()
        self._known = None  # Until its answer has come.
        value = encode_window(window, f"{self._holder}/{self._stamp}")
        self._doubtful_delays += delays
        written = yield Write({self.path: Change(value, known.version)})
        version = written[self.path]
        if version is None:
            yield from self._drop_delays(delays)
            return None
        self._known = _Known(window, version)
        self._confirm(answers, sent_ms + self._lock_ms)
        slot_of = _slots(parts)
        for message_id, deliveries in acquired.taken:
            until_ms = sent_ms + self._lock_ms
            slot = slot_of.get(message_id, NO_KEY)
            self.held[message_id] = Held(deliveries, until_ms, slot)
        if self._doubtful_delays:
            known_delays = {each[0] for each in (*window.delays, *window.moves)}
            lost = [each for each in self._doubtful_delays if each.name not in known_delays]
            yield from self._drop_delays(lost)
            self._doubtful_delays.clear()
        return acquired.taken

    def _drop_delays(self, delays: Sequence[Delay]) -> Work[None]:
        """Delete records of delays that no write names, nor will."""
        if delays:
            yield from self._delays.drop.steps(delays)
            self._doubtful_delays = [d for d in self._doubtful_delays if d not in delays]

    def _with_late(self, window: Window, messages_max: int) -> Work[Window | None]:
        """The window with the messages whose time has come; None if others were faster."""
        settled: Window | None = window
        if window.moves:
            settled = yield from self._delays.settle.steps(window)
        if settled is not None and settled.delays and messages_max > 0:
            room = WINDOW_MESSAGES_MAX - settled.unfinished
            settled = yield from self._delays.move.steps(settled, self._clock.wall_ms(), room)
        return settled

    def _dues_ms(self, answers: Mapping[int, Answer]) -> dict[int, int]:
        """The times of what is released for later. Threads may give other answers meanwhile."""
        return {
            each: due_ms
            for each, answer in answers.items()
            if answer is Answer.RELEASE and (due_ms := self.held[each].due_ms) is not None
        }

    def _delayed(self, window: Window, dues_ms: Mapping[int, int]) -> list[Delayed]:
        """What was released for a later time, and is its own as the record says."""
        own = [span for span in window.each if span.mark.holder == self._holder]
        return [
            Delayed(due_ms, each, self.held[each].deliveries)
            for each, due_ms in dues_ms.items()
            if any(span.begin <= each < span.end for span in own)
        ]

    def _give_up_lapsed(self) -> None:
        """What the program has had for too long without an answer is available to all again."""
        now_ms = self._clock.monotonic_ms()
        for each, held in list(self.held.items()):
            if held.answer is None and held.until_ms <= now_ms:
                held.answer = Answer.RELEASE if held.delivered else Answer.RETURN
                self.lapsed.append(each)

    def _parts(self, window: Window, messages_max: int) -> Work[list[Part]]:
        """Read what may be taken."""
        parts: list[Part] = []
        self.reading.forget_between()
        spans = wanted(window, self._is_free(), messages_max)
        for begin, end in near(spans):
            parts.append((yield from self.reading.between(begin, end, messages_max)))
        left = messages_max - sum(span.messages for span in spans)
        if left > 0 and self.delayed:
            left = DELAYED_TOGETHER_MAX  # So that a record of delays has many of them.
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
        """These answers are written. Another thread may have given later ones meanwhile."""
        for each, answer in answers.items():
            held = self.held[each]
            if answer is not Answer.RENEW:
                del self.held[each]
                continue
            held.until_ms = until_ms
            if held.answer is answer:
                held.answer = None

    def _drop_lapsed(self, window: Window) -> None:
        """Forget what others have taken from it, and what its own answers have ended whose write
        got no answer.
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
        """Whether the messages of a span may be taken now. Many spans have the same mark: it is
        looked at once.
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

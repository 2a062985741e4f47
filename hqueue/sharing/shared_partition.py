"""A partition as a consumer of a share group has it, which changes the group's record by its
version.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from hqueue.errors import Outcome, StoreUnavailableError
from hqueue.metadata import MetadataStore
from hqueue.metadata.ports import Change, Record, Version
from hqueue.metadata.steps import Create, OnStore, Read, Work, Write
from hqueue.runtime.clock import SYSTEM_CLOCK, Clock, Deadline
from hqueue.runtime.steps import Pause
from hqueue.runtime.stepwise import stepwise
from hqueue.sharing.acquisition import Part, Taken, acquire, answered, wanted
from hqueue.sharing.held import Answer, Held
from hqueue.sharing.partition_reading import PartitionReading
from hqueue.sharing.window import NO_KEY, Fate, Mark, Span, Window
from hqueue.sharing.window_record import decode_window, encode_window

__all__ = ["ShareRecords", "SharedPartition"]

CLOCKS_DIFFER_BY = 1.05
"""Two clocks differ by less in one span of time: so much longer do others wait for a lock."""

CONFLICT_MS = 4.0
CONFLICT_MS_MAX = 64.0


class _Known(NamedTuple):
    """The group's record, as it is known."""

    window: Window
    version: Version


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
        """Messages that it had for too long: others may have them, or had them. Who reports them
        empties this."""
        self._holder = holder
        self._lock_ms = lock_ms
        self._begin = begin
        self._deadline = deadline
        self._stamp = 0
        self._known: _Known | None = None
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
        return self._known is None or bool(wanted(self._known.window, self._is_free, 1))

    @property
    def free_at_ms(self) -> float:
        """When a lock of another consumer lapses next, by what is known."""
        spans = () if self._known is None else self._known.window.spans
        lapses = (self._lapses_at_ms(span.mark) for span in spans if self._is_others(span.mark))
        return min(lapses, default=float("inf"))

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
        self._known = _Known(window, record.version)
        self._drop_lapsed(window)

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
            taken = yield from self._try(known, messages_max)
            if taken is not None:
                return taken
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

    def _try(self, known: _Known, messages_max: int) -> Work[list[Taken] | None]:
        """One try of `exchange`; None if others were faster."""
        self._stamp += 1
        own = Mark(Fate.ACQUIRED, 0, self._holder, self._stamp, self._lock_ms)
        self._give_up_lapsed()
        ids = sorted(self.held)
        answers = {each: answer for each in ids if (answer := self.held[each].answer) is not None}
        marks = {each: self.held[each].mark(answer, own) for each, answer in answers.items()}
        slots = {each: self.held[each].slot for each in ids} if self.reading.by_key else None
        window = answered(known.window, self._holder, ids, marks, slots)
        taken: list[Taken] = []
        parts: list[Part] = []
        if messages_max > 0:
            parts = yield from self._parts(window, messages_max)
            window, taken = acquire(window, parts, own, self._is_free, messages_max)
        if window == known.window:
            self._confirm(answers, 0.0)
            return []
        sent_ms = self._clock.monotonic_ms()
        self._known = None  # Until its answer has come.
        for each in answers:
            self.held[each].doubtful = True
        value = encode_window(window, f"{self._holder}/{self._stamp}")
        written = yield Write({self.path: Change(value, known.version)})
        version = written[self.path]
        if version is None:
            for each in answers:
                self.held[each].doubtful = False
            return None
        self._known = _Known(window, version)
        self._confirm(answers, sent_ms + self._lock_ms)
        slot_of = _slots(parts)
        for message_id, deliveries in taken:
            until_ms = sent_ms + self._lock_ms
            slot = slot_of.get(message_id, NO_KEY)
            self.held[message_id] = Held(deliveries, until_ms, slot)
        return taken

    def _give_up_lapsed(self) -> None:
        """What the program has had for too long without an answer is available to all again."""
        now_ms = self._clock.monotonic_ms()
        for each, held in list(self.held.items()):
            if held.answer is None and held.until_ms <= now_ms:
                held.answer = Answer.RELEASE
                self.lapsed.append(each)

    def _parts(self, window: Window, messages_max: int) -> Work[list[Part]]:
        """Read what may be taken."""
        parts: list[Part] = []
        spans = wanted(window, self._is_free, messages_max)
        if spans:
            begin, end = spans[0].begin, spans[-1].end
            parts.append((yield from self.reading.between(begin, end, messages_max)))
        left = messages_max - sum(span.messages for span in spans)
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
            held.doubtful, held.until_ms = False, until_ms
            if held.answer is answer:
                held.answer = None

    def _drop_lapsed(self, window: Window) -> None:
        """Forget what others have taken from it. What is done may be so by its own answer."""
        left = iter(sorted(self.held))
        following = next(left, None)
        for span in (Span(0, window.begin, 0, Mark(Fate.DONE)), *window.spans):
            while following is not None and following < span.end:
                held = self.held[following]
                if span.mark.holder != self._holder:
                    fits = held.doubtful and self._fits(held, span)
                    if not fits and following not in self.lapsed:
                        self.lapsed.append(following)
                    del self.held[following]
                following = next(left, None)

    def _fits(self, held: Held, span: Span) -> bool:
        """Whether a message's fate may be that of its answer."""
        return span.is_done if held.answer is Answer.DONE else span.mark.fate is Fate.AVAILABLE

    def _is_others(self, mark: Mark) -> bool:
        return mark.fate is Fate.ACQUIRED and mark.holder != self._holder

    def _lapses_at_ms(self, mark: Mark) -> float:
        since_ms = self._seen.get((mark.holder, mark.stamp), self._clock.monotonic_ms())
        return since_ms + mark.lock_ms * CLOCKS_DIFFER_BY

    def _is_free(self, span: Span) -> bool:
        if span.mark.fate is Fate.AVAILABLE:
            return True
        return (
            self._is_others(span.mark)
            and self._lapses_at_ms(span.mark) <= self._clock.monotonic_ms()
        )


def _slots(parts: Sequence[Part]) -> dict[int, int]:
    slots: dict[int, int] = {}
    for part in parts:
        if part.slots is not None:
            slots.update(zip(part.ids, part.slots, strict=True))
    return slots

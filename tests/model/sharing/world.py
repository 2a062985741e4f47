"""A share group in one moment: its record, its consumers and their programs, and what is on its way
between them.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
from collections.abc import Iterator
from typing import Any

from hqueue.errors import Outcome, StoreUnavailableError
from hqueue.metadata.ports import Change, Record, Version
from hqueue.metadata.steps import Read, Write
from hqueue.sharing.held import Answer
from hqueue.sharing.share_options import ShareSettings
from hqueue.sharing.window import Fate, Mark, Window
from hqueue.sharing.window_record import decode_window, encode_window
from tests.model.groups.world import ViolationError

from .consumer import LOCK_MS, PATH, Bury, Event, Run, State, begun
from .keys import Keys
from .rules import ALL_RULES, Bounds, Code

__all__ = ["Action", "World"]

Action = tuple[str, str, Any]
TICK_MS = 1.02 * LOCK_MS
"""More than a lock by any clock that is right, less than the lock and the margin; and less than a
lock by a clock that is slow."""


@dataclasses.dataclass(frozen=True)
class _Consumer:
    """A consumer's process."""

    holder: str
    rate: float
    state: State | None
    """None if it has ended."""
    run: Run | None = None
    """The call that it is in."""
    answer: Any = None
    """What the service has answered; it is on its way."""

    @property
    def now(self) -> State | None:
        """What it knows now."""
        return self.state if self.run is None else self.run.state


class World:
    """A group with one partition, and everything that can happen next around it.

    Args:
        bounds: what may happen at most.
        code: what consumers run.
    """

    def __init__(self, bounds: Bounds, code: Code = ALL_RULES) -> None:
        self._bounds, self._code = bounds, code
        self._ids = range(1, len(bounds.keys) + 1)
        names = ("tick", "failure", "cancel", "crash", "close", "begin")
        counts = (
            bounds.ticks, bounds.failures, bounds.cancelled, bounds.crashes, bounds.closes,
            bounds.later,
        )  # fmt: skip
        self._left = dict(zip(names, counts, strict=True))
        self._says_left = {
            Answer.RELEASE: bounds.releases,
            Answer.RENEW: bounds.renewals,
            None: bounds.rejections,
        }
        self._ticks, self._begun, self._turns = 0, 0, 0
        self._record = Record(encode_window(Window(1), "w"), Version(0), 0)
        self._late: tuple[Change, ...] = ()
        """Writes that were given up, and may be carried out yet."""
        self._consumers = {
            name: self._new(rate) for name, rate in zip("abc", bounds.rates, strict=False)
        }
        # What has really happened.
        self._got = dict.fromkeys(self._ids, 0)
        """How often programs got each message."""
        self._given = dict.fromkeys(self._ids, "")
        """Who was handed out each, since it was acquired last."""
        self._acknowledged: set[int] = set()
        self._letters: set[int] = set()
        self._uncertain: set[int] = set()
        """Those that may be counted more often than programs got them."""

    def _new(self, rate: float) -> _Consumer:
        self._begun += 1
        holder = str(self._begun)
        settings = ShareSettings(
            LOCK_MS, self._bounds.deliveries_max, ordered_by_key=self._bounds.by_key
        )
        state = begun(self._code, holder, self._bounds.keys, settings)
        return _Consumer(holder, rate, state)

    def copied(self) -> World:
        """The same in the same state."""
        other = copy.copy(self)
        other._left, other._says_left = self._left.copy(), self._says_left.copy()
        other._consumers = self._consumers.copy()
        other._got, other._given = self._got.copy(), self._given.copy()
        for name in ("_acknowledged", "_letters", "_uncertain"):
            setattr(other, name, getattr(self, name).copy())
        return other

    def key(self) -> str:
        """Differs for different states."""
        keys = Keys(self._record)
        consumers = [
            (
                each.state and keys.state(each.state, self._now_ms(each)),
                each.run and keys.run(each.run, self._now_ms(each)),
                each.answer is not None,
                keys.holder(each.holder),
            )
            for each in self._consumers.values()
        ]
        happened = (
            self._got, [keys.holder(each) for each in self._given.values()],
            sorted(self._acknowledged), sorted(self._letters), sorted(self._uncertain),
        )  # fmt: skip
        late = sorted(keys.change(each) for each in self._late if keys.can_come(each))
        window = keys.window(_window(self._record.value))
        return repr((window, late, consumers, happened, self._left, self._says_left))

    def _now_ms(self, consumer: _Consumer) -> float:
        return round(self._ticks * TICK_MS * consumer.rate, 3)

    # What can happen.

    def actions(self, *, faults: bool = True) -> Iterator[Action]:
        """What can happen next; without faults, what settles the group."""
        if not faults:
            yield from self._settling()
            return
        for name, each in self._consumers.items():
            if each.now is None:
                if self._left["begin"]:
                    yield "begin", name, None
                continue
            if each.run is None:
                yield "call", name, "poll"
                assert each.state is not None
                if each.state.partition.answers or each.state.hands.rejections:
                    yield "call", name, "commit"
                if not self._is_up_to_date(each.state):
                    yield "call", name, "look"
                if self._left["close"]:
                    yield "call", name, "close"
            else:
                yield from self._answers(name, each)
            if self._left["crash"]:
                yield "crash", name, None
            yield from self._sayings(name, each.now)
        if self._left["tick"]:
            yield "tick", "", None
        yield from (("arrive", "", number) for number, _ in enumerate(self._late))

    def _answers(self, name: str, consumer: _Consumer) -> Iterator[Action]:
        yield ("answer" if consumer.answer is not None else "do"), name, None
        if self._left["failure"]:
            yield "fail", name, None
        if self._left["cancel"]:
            yield "cancel", name, None

    def _is_up_to_date(self, state: State) -> bool:
        known = state.partition._known
        return bool(known and known.version == self._record.version)

    def _sayings(self, name: str, state: State) -> Iterator[Action]:
        for each in state.hands.out:
            yield "say", name, (each, Answer.DONE)
            held = state.partition.held.get(each)
            for answer, left in self._says_left.items():
                if left and not (held and held.answer is answer is Answer.RENEW):
                    yield "say", name, (each, answer)

    def _settling(self) -> Iterator[Action]:
        if all(each.now is None for each in self._consumers.values()):
            yield "begin", "a", None
        idle: list[Action] = []
        for name, each in self._consumers.items():
            if each.run is not None:
                yield ("answer" if each.answer is not None else "do"), name, None
                return
            if each.state is None:
                continue
            for message_id in each.state.hands.out:
                yield "say", name, (message_id, Answer.DONE)
                return
            idle += [("call", name, "poll"), ("call", name, "look")]
        if _window(self._record.value).begin < self._ids.stop:
            turns: list[Action] = [*idle, ("tick", "", None)]
            yield turns[self._turns % len(turns)]

    def perform(self, action: Action) -> None:
        """Let it happen.

        Raises:
            ViolationError: a promise is broken by it.
        """
        kind, name, what = action
        do = getattr(self, f"_{kind}")
        if name:
            do(name, self._consumers[name], what)
        else:
            do(what)
        self._check_holders()

    def _tick(self, _: None) -> None:
        self._left["tick"] = max(0, self._left["tick"] - 1)
        self._ticks += 1
        self._turns += 1

    def _begin(self, name: str, consumer: _Consumer, _: None) -> None:
        self._left["begin"] -= 1
        self._consumers[name] = self._new(consumer.rate)

    def _crash(self, name: str, consumer: _Consumer, _: None) -> None:
        self._left["crash"] -= 1
        self._uncertain |= set(self._ids)
        self._doubt(consumer)
        self._consumers[name] = dataclasses.replace(consumer, state=None, run=None, answer=None)

    def _call(self, name: str, consumer: _Consumer, what: str) -> None:
        if what == "close":
            self._left["close"] -= 1
        self._turns += 1
        assert consumer.state is not None
        event = Event(self._now_ms(consumer), "answered")
        self._go_on(name, consumer, Run(consumer.state, what, self._bounds.acquire_max, (event,)))

    def _go_on(self, name: str, consumer: _Consumer, run: Run) -> None:
        """A consumer has got so far. A read is answered at once: if others change the record since,
        they do so before the write that follows, too.
        """
        while isinstance(run.step, Read):
            answer = {PATH: self._record}
            run = run.then(Event(self._now_ms(consumer), "answered", answer))
        if run.step is not None:
            self._consumers[name] = dataclasses.replace(consumer, run=run, answer=None)
            return
        state = None if run.call == "close" else run.state
        self._consumers[name] = dataclasses.replace(consumer, state=state, run=None, answer=None)
        for message in run.taken:
            self._hand_out(self._consumers[name], int(message.id), message.deliveries)

    def _say(self, name: str, consumer: _Consumer, what: tuple[int, Answer | None]) -> None:
        message_id, answer = what
        if answer in self._says_left:
            self._says_left[answer] -= 1
        if consumer.run is not None:
            run = consumer.run.then(Event(self._now_ms(consumer), "says", what))
            self._consumers[name] = dataclasses.replace(consumer, run=run)
            had = run.had
        else:
            assert consumer.state is not None
            state = consumer.state.copied(self._now_ms(consumer))
            had = state.say(message_id, answer)
            self._consumers[name] = dataclasses.replace(consumer, state=state)
        if had and answer is Answer.DONE:
            self._acknowledged.add(message_id)

    # The service.

    def _do(self, name: str, consumer: _Consumer, _: None) -> None:
        """The service carries out a request. The answer to a write comes some time later."""
        assert consumer.run is not None
        step = consumer.run.step
        if isinstance(step, Write):
            version = self._write(step.changes[PATH], consumer)
            self._consumers[name] = dataclasses.replace(consumer, answer={PATH: version})
            return
        assert isinstance(step, Bury)
        self._bury(step)
        event = Event(self._now_ms(consumer), "answered")
        self._go_on(name, consumer, consumer.run.then(event))

    def _answer(self, name: str, consumer: _Consumer, _: None) -> None:
        assert consumer.run is not None
        event = Event(self._now_ms(consumer), "answered", consumer.answer)
        self._go_on(name, consumer, consumer.run.then(event))

    def _fail(self, name: str, consumer: _Consumer, _: None) -> None:
        self._left["failure"] -= 1
        self._doubt(consumer)
        error = StoreUnavailableError("no answer", outcome=Outcome.UNKNOWN)
        self._end(name, consumer, Event(self._now_ms(consumer), "failed", error))

    def _cancel(self, name: str, consumer: _Consumer, _: None) -> None:
        self._left["cancel"] -= 1
        self._doubt(consumer)
        self._end(name, consumer, Event(self._now_ms(consumer), "cancelled"))

    def _end(self, name: str, consumer: _Consumer, event: Event) -> None:
        assert consumer.run is not None
        self._go_on(name, consumer, consumer.run.then(event))

    def _doubt(self, consumer: _Consumer) -> None:
        """A consumer gets no answer: its request is carried out later, or was, or never is."""
        step = consumer.run and consumer.run.step
        if isinstance(step, Write) and consumer.answer is None:
            self._late += (step.changes[PATH],)

    def _arrive(self, number: int) -> None:
        change = self._late[number]
        self._late = self._late[:number] + self._late[number + 1 :]
        self._write(change, None)

    def _write(self, change: Change, writer: _Consumer | None) -> Version | None:
        if change.version != self._record.version and self._code.compares_versions:
            return None
        before, after = _window(self._record.value), _window(change.value)
        for each in self._ids:
            self._check_change(each, _mark(before, each), _mark(after, each))
        done = _done(after, self._ids) - _done(before, self._ids)
        counted = sum(after.dead_letters) - sum(before.dead_letters)
        if not len(done - self._acknowledged) <= counted <= len(done & self._letters):
            raise ViolationError(f"{counted} of {done} count as dead letters")
        version = Version(self._record.version + 1)
        self._record = Record(change.value, version, 0)
        return version

    def _bury(self, step: Bury) -> None:
        for each in step.rejections:
            message_id = int(each.message.id)
            counts = each.reason.startswith("delivered") and message_id not in self._uncertain
            if counts and self._got[message_id] < each.deliveries:
                raise ViolationError(f"{message_id} is a dead letter too early")
            self._letters.add(message_id)

    # What must hold.

    def _check_change(self, message_id: int, before: Mark, after: Mark) -> None:
        if before.fate is Fate.DONE and after.fate is not Fate.DONE:
            raise ViolationError(f"{message_id} was done, and is given again")
        if after.fate is Fate.DONE and message_id not in self._acknowledged | self._letters:
            raise ViolationError(f"{message_id} is lost")
        if before.fate is Fate.AVAILABLE and after.fate is Fate.ACQUIRED:
            self._given[message_id] = ""
        taken_over = before.fate is after.fate is Fate.ACQUIRED and before.holder != after.holder
        if taken_over and before.holder != self._given[message_id]:
            self._uncertain.add(message_id)  # It was acquired, and never handed out.

    def _hand_out(self, consumer: _Consumer, message_id: int, deliveries: int) -> None:
        assert consumer.state is not None
        self._got[message_id] += 1
        self._given[message_id] = consumer.holder
        got = self._got[message_id]
        if _mark(_window(self._record.value), message_id).fate is Fate.DONE:
            raise ViolationError(f"{message_id} was done, and is handed out")
        if not consumer.state.holds(message_id, self._now_ms(consumer)):
            raise ViolationError(f"{message_id} is handed out after its lock's time")
        exact = message_id not in self._uncertain
        if deliveries < got or (exact and deliveries != got):
            raise ViolationError(f"{message_id} was delivered {got} times, and counts {deliveries}")
        if self._bounds.by_key:
            key = self._bounds.keys[message_id - 1]
            for earlier, other in zip(range(1, message_id), self._bounds.keys, strict=False):
                if key == other and earlier not in self._acknowledged | self._letters:
                    raise ViolationError(f"{message_id} comes before {earlier}")

    def _check_holders(self) -> None:
        for places in self._exclusive():
            holders = [
                name
                for name, each in self._consumers.items()
                if each.now is not None
                and any(each.now.holds(one, self._now_ms(each)) for one in places)
            ]
            if len(holders) > 1:
                raise ViolationError(f"{' and '.join(holders)} have {places}")

    def _exclusive(self) -> Iterator[list[int]]:
        """Messages that one consumer at a time has: one, or all of a key."""
        for number, key in enumerate(self._bounds.keys):
            if not self._bounds.by_key or key is None:
                yield [number + 1]
            elif key not in self._bounds.keys[:number]:
                yield [each for each in self._ids if self._bounds.keys[each - 1] == key]

    def check_settled(self) -> None:
        """When nothing happens any more, each message was processed, or is a dead letter."""
        left = set(self._ids) - self._acknowledged - self._letters
        if left:
            raise ViolationError(f"{left} are lost")


@functools.lru_cache(maxsize=4_096)
def _window(value: bytes) -> Window:
    return decode_window(value, PATH)


def _done(window: Window, ids: range) -> set[int]:
    return {each for each in ids if _mark(window, each).fate is Fate.DONE}


def _mark(window: Window, message_id: int) -> Mark:
    if message_id < window.begin:
        return Mark(Fate.DONE)
    for span in window.spans:
        if span.begin <= message_id < span.end:
            return span.mark
    return Mark(Fate.AVAILABLE)

"""A share consumer in a model: the library's own code, whose requests the model answers."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterable, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

from hqueue.dead_letters.of_groups import Rejection
from hqueue.message import ConsumedMessage
from hqueue.message_id import MessageID
from hqueue.metadata import PartitionKey
from hqueue.runtime.steps import Pause, Wait, Work
from hqueue.runtime.stepwise import Stepwise, stepwise
from hqueue.sharing.acquired_message import AcquiredMessage
from hqueue.sharing.acquisition import Part
from hqueue.sharing.held import Answer
from hqueue.sharing.partition_reading import slot_of
from hqueue.sharing.share_options import ShareSettings

from .rules import Code

__all__ = ["KEY", "LOCK_MS", "Bury", "Event", "Run", "State", "begun"]

LOCK_MS = 100
PATH = "/share"
KEY = PartitionKey("q", 0)


class Bury(NamedTuple):
    """Asks for dead letters to be put."""

    rejections: tuple[Rejection, ...]


class _Letters(Stepwise):
    @stepwise
    def put(self, rejections: Iterable[Rejection]) -> Work[Any, None]:
        yield Bury(tuple(rejections))


class _Membership:
    store: Any = None

    def leave(self) -> Work[Any, None]:
        return
        yield


class _Reading:
    """A log whose messages are all there: their IDs are 1, 2, …

    Args:
        keys: their keys.
    """

    partition = KEY.partition
    at_tail = True

    def __init__(self, keys: Sequence[bytes | None], *, by_key: bool) -> None:
        self.by_key = by_key
        self._messages = {
            number: ConsumedMessage("t", b"", MessageID.from_int(number), 0, "q", key=key)
            for number, key in enumerate(keys, 1)
        }

    def has_more(self, begin: int) -> bool:
        return begin <= len(self._messages)

    @property
    def read_to(self) -> int:
        """The log has no messages of other topics, past which to read."""
        return 0

    def ahead(self, begin: int, messages: int) -> Work[Any, Part]:
        return (yield from self.between(begin, len(self._messages) + 1, messages))

    def between(self, begin: int, end: int, messages: int) -> Work[Any, Part]:
        ids = range(begin, min(begin + messages, end))
        slots = [slot_of(self._messages[each]) for each in ids] if self.by_key else None
        return Part(begin, ids.stop, ids, slots)
        yield

    def messages(self, ids: Sequence[int]) -> Work[Any, dict[int, ConsumedMessage]]:
        return {each: self._messages[each] for each in ids}
        yield

    def forget_between(self) -> None:
        pass

    def release(self) -> Work[Any, None]:
        return
        yield


@dataclasses.dataclass
class _Clock:
    now_ms: float = 0.0
    time_ms: int = 0

    def monotonic_ms(self) -> float:
        return self.now_ms

    def wall_ms(self) -> int:
        return self.time_ms


class Event(NamedTuple):
    """What happens to a consumer that is in a call, and when by its clock."""

    now_ms: float
    kind: str
    """``answered``, ``failed``, ``cancelled``, or ``says``: the program says something."""
    what: Any = None


class State:
    """What a consumer knows between two calls: the library's objects.

    Args:
        consumption: the consumer's `SharedConsumption`.
    """

    def __init__(self, consumption: Any) -> None:
        self.consumption = consumption
        self.hands = consumption._hands[KEY]
        self.partition = self.hands.partition
        self.clock = consumption._clock

    def copied(self, now_ms: float) -> State:
        """The same, at a time by its clock."""
        clock = _Clock(now_ms)
        partition = copy.copy(self.partition)
        partition._clock = clock
        partition.held = {key: copy.copy(held) for key, held in self.partition.held.items()}
        partition.lapsed = list(self.partition.lapsed)
        hands = copy.copy(self.hands)
        hands.partition, hands._now_ms = partition, clock.monotonic_ms
        hands.out = self.hands.out.copy()
        hands.rejections = list(self.hands.rejections)
        hands._waiting = copy.copy(self.hands._waiting)
        consumption = copy.copy(self.consumption)
        consumption._clock, consumption._hands = clock, {KEY: hands}
        return State(consumption)

    def say(self, message_id: int, answer: Answer | None) -> bool:
        """The program answers a message, or rejects it; whether the consumer has it."""
        if answer is None:
            return bool(self.hands.reject(self.hands.out[message_id], "x"))
        return bool(self.hands.answer(message_id, answer))

    def holds(self, message_id: int, now_ms: float) -> bool:
        """Whether it counts a message as its own, or its program may."""
        held = self.partition.held.get(message_id)
        return (
            held is not None
            and held.answer in (None, Answer.RENEW)
            and held.until_ms > now_ms
            and all(int(each.message.id) != message_id for each in self.hands.rejections)
        )


def begun(code: Code, holder: str, keys: Sequence[bytes | None], settings: ShareSettings) -> State:
    """A consumer that has just joined.

    Args:
        code: the library's.
        holder: its ID.
        keys: those of the partition's messages.
        settings: the consumer's.
    """
    clock = _Clock()
    partition = code.partition(
        None,
        PATH,
        _Reading(keys, by_key=settings.ordered_by_key),
        holder=holder,
        lock_ms=LOCK_MS,
        begin=_first,
        deadline=lambda: SimpleNamespace(expired=False),
        clock=clock,
    )
    hands = code.hands(partition, _Letters(), LOCK_MS, clock.monotonic_ms)
    consumption = code.consumption.__new__(code.consumption)
    consumption._settings = settings
    consumption._clock = clock
    consumption._hands = {KEY: hands}
    consumption._membership = _Membership()
    consumption._renewal = None
    return State(consumption)


def _first() -> Work[Any, int]:
    return 1
    yield


class Run:
    """A call of a consumer, as far as it has got.

    It is carried out from its beginning each time: what has begun can't be copied.

    Args:
        before: the consumer as it was.
        call: ``poll``, ``commit``, ``look`` or ``close``.
        acquire_max: how many messages a poll acquires at most.
        events: what has happened since; the first one says when it began.
    """

    def __init__(
        self, before: State, call: str, acquire_max: int, events: tuple[Event, ...]
    ) -> None:
        self.before, self.call, self.events = before, call, events
        self._acquire_max = acquire_max
        self.state = before.copied(events[0].now_ms)
        self.step: Any = None
        """What it waits for; None if it is over."""
        self.taken: Sequence[AcquiredMessage] = ()
        """What the program got."""
        self.failed = False
        self.had = True
        """Whether the consumer had the message that its program spoke of last."""
        self._work = _flattened(self._begin())
        for event in events:
            self._happen(event)

    def then(self, event: Event) -> Run:
        """The same call, after one more event."""
        return Run(self.before, self.call, self._acquire_max, (*self.events, event))

    def _begin(self) -> Work[Any, Any]:
        consumption, hands = self.state.consumption, self.state.hands
        if self.call == "poll":
            return consumption._take_of(hands, 1, self._acquire_max)  # type: ignore[no-any-return]
        if self.call == "commit":
            return consumption.write.steps()  # type: ignore[no-any-return]
        if self.call == "look":
            return consumption._see_records()  # type: ignore[no-any-return]
        return consumption.close.steps(acknowledge=False)  # type: ignore[no-any-return]

    def _happen(self, event: Event) -> None:
        self.state.clock.now_ms = event.now_ms
        if event.kind == "says":
            self.had = self.state.say(*event.what)
            return
        step, self.step = self.step, None
        try:
            if event.kind == "failed":
                self.step = self._work.throw(event.what)
            elif event.kind == "cancelled":
                self._work.close()
                self.failed = True
            else:
                self.step = self._work.send(None if step is None else event.what)
        except StopIteration as exc:
            self.taken = exc.value if self.call == "poll" else ()
        except Exception as exc:
            if exc is not event.what:
                raise
            self.failed = True


def _flattened(work: Work[Any, Any]) -> Work[Any, Any]:
    """The same work, which asks for requests only: what it would have others carry out is part of
    it, and pauses are not waited for.
    """
    answer: Any = None
    error: BaseException | None = None
    while True:
        try:
            step = work.send(answer) if error is None else work.throw(error)
        except StopIteration as exc:
            return exc.value
        answer = error = None
        try:
            if isinstance(step, Wait):
                asked: Any = step.here
                answer = yield from _flattened(asked.func.steps(*asked.args, **asked.keywords))
            elif not isinstance(step, Pause):
                answer = yield step
        except BaseException as exc:
            error = exc

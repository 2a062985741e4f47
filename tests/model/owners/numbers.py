"""A publisher that numbers its messages, a topic's log, and hubs that own it one after the other:
everything that can happen. That a deposed owner is fenced is explored next door.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator
from typing import NamedTuple

from tests.model.groups.world import ViolationError

__all__ = ["Action", "Bounds", "NumbersRules", "NumbersWorld"]

Action = tuple[str, str]
COPIED = 1_000


@dataclasses.dataclass(frozen=True)
class NumbersRules:
    """The rules of publishing once. Each is taken out once."""

    learns_before_it_judges: bool = True
    """Else an owner takes what it does not know for missing."""
    learns_behind_its_control_record: bool = True
    """Else it reads the log before it closes the range of the owner before."""
    learns_from_before_the_first_try: bool = True
    """Else from where the log ended at the last one."""
    notes_what_it_appends: bool = True
    settles_before_it_judges: bool = True
    """Else it forgets an append whose outcome it does not know."""
    notes_what_settles: bool = True
    judges_one_of_a_number_at_a_time: bool = True
    """Else two calls with the same number go together."""
    learns_again_what_it_forgot: bool = True
    acknowledges_what_it_drops_only_if_it_is_stored: bool = True
    """Else also what an append of unknown outcome had."""
    learns_only_what_says_its_owner: bool = True
    """Else also the numbers of copies that somebody put into the topic's partition."""


@dataclasses.dataclass(frozen=True)
class Bounds:
    """What may happen at most."""

    hubs: tuple[str, ...] = ("a", "b")
    messages: int = 2
    takeovers: int = 2
    given_up: int = 1
    """Calls whose publisher waits no longer, and calls again."""
    lost: int = 1
    """Appends whose outcome the hub does not know."""
    forgotten: int = 1
    copies: int = 0
    """Messages with a number that nobody published, put there by somebody."""


class _Call(NamedTuple):
    number: int
    since: int
    """Before which place in the log it was never tried."""


class _Put(NamedTuple):
    """What a hub appends, at a slot that is the log's length."""

    calls: tuple[_Call, ...]
    slot: int

    @property
    def numbers(self) -> tuple[int, ...]:
        return tuple(call.number for call in self.calls)


@dataclasses.dataclass
class _Hub:
    epoch: int = 0
    """By which it owns the topic, as far as it knows; 0 if it doesn't."""
    is_taking: bool = False
    seen: int = 0
    newest: int = 0
    known_from: int = 0
    """From which place in the log on it knows the numbers."""
    waiting: tuple[_Call, ...] = ()
    put: _Put | None = None
    doubt: _Put | None = None


class NumbersWorld:
    """A topic with one publisher.

    Args:
        bounds: what may happen at most.
        rules: those that are kept.
    """

    def __init__(self, bounds: Bounds, rules: NumbersRules = NumbersRules()) -> None:
        self.rules = rules
        self._messages = bounds.messages
        self._left = {
            "take": bounds.takeovers,
            "give_up": bounds.given_up,
            "lose": bounds.lost,
            "forget": bounds.forgotten,
            "copy": bounds.copies,
        }
        self.log: tuple[int, ...] = ()
        """Numbers, and control records: the negative of their epochs; and copies: a number that is
        higher by `COPIED`."""
        self.hubs = {name: _Hub() for name in bounds.hubs}
        self.number = 1
        """What the publisher publishes, until it knows that it is there."""
        self.since: int | None = None
        """Where the log ended when that was tried first."""
        self.called: str | None = None

    def copied(self) -> NumbersWorld:
        """The same in the same state."""
        other = copy.copy(self)
        other._left = self._left.copy()
        other.hubs = {name: dataclasses.replace(hub) for name, hub in self.hubs.items()}
        return other

    def key(self) -> str:
        """Differs for different states."""
        return repr((self.log, self.hubs, self.number, self.since, self.called, self._left))

    def actions(self, *, faults: bool = True) -> Iterator[Action]:
        """What can happen next; without faults, what happens by itself."""
        abandoned = not any(hub.epoch or hub.is_taking for hub in self.hubs.values())
        for name, hub in self.hubs.items():
            if hub.is_taking:
                yield "record", name
            elif abandoned or (faults and self._left["take"]):
                yield "take", name
            if self.called is None and hub.epoch and self.number <= self._messages:
                yield "call", name
            if hub.put is not None:
                yield "send", name
            elif hub.waiting:
                knows = hub.waiting[0].since >= hub.known_from
                yield "judge" if knows or not self.rules.learns_before_it_judges else "learn", name
            if faults and hub.put is not None and self._left["lose"]:
                yield "lose_stored", name
                yield "lose_unsent", name
            if faults and hub.newest and hub.put is None and self._left["forget"]:
                yield "forget", name
        if faults and self.called is not None and self._left["give_up"]:
            yield "give_up", self.called
        if faults and self._left["copy"]:
            yield "copy", next(iter(self.hubs))

    def perform(self, action: Action) -> None:
        """Let it happen.

        Raises:
            ViolationError: a promise is broken by it.
        """
        kind, name = action
        getattr(self, f"_{kind}")(name, self.hubs[name])

    def check_settled(self) -> None:
        """When nothing happens any more, everything is published."""
        if self.number <= self._messages:
            raise ViolationError(f"message {self.number} is never acknowledged")

    # The publisher.

    def _call(self, name: str, hub: _Hub) -> None:
        if self.since is None or not self.rules.learns_from_before_the_first_try:
            self.since = len(self.log)
        self.called = name
        hub.waiting = (*hub.waiting, _Call(self.number, self.since))

    def _give_up(self, name: str, hub: _Hub) -> None:
        """It waits no longer, and calls again; the call waits where it is."""
        self._left["give_up"] -= 1
        self.called = None

    def _acknowledge(self, name: str, number: int) -> None:
        if self.called != name or self.number != number:
            return  # Nobody waits for it any more.
        if number not in self.log:
            raise ViolationError(f"message {number} is acknowledged, and is not there")
        self.number, self.since, self.called = self.number + 1, None, None

    def _copy(self, name: str, hub: _Hub) -> None:
        """Somebody puts a message with the highest number; it is no hub's doing."""
        self._left["copy"] -= 1
        self.log = (*self.log, COPIED + self._messages)

    def _newest(self, log: tuple[int, ...]) -> int:
        """The highest number that a hub finds in a part of the log."""
        if self.rules.learns_only_what_says_its_owner:
            log = tuple(entry for entry in log if entry < COPIED)
        return max([0, *(entry % COPIED for entry in log if entry > 0)])

    # A hub.

    def _take(self, name: str, hub: _Hub) -> None:
        self._left["take"] = max(0, self._left["take"] - 1)
        self._fenced(name, hub)
        hub.is_taking = True
        if not self.rules.learns_behind_its_control_record:
            hub.newest = self._newest(self.log)

    def _record(self, name: str, hub: _Hub) -> None:
        """Its control record is there: no earlier owner appends anything any more."""
        hub.is_taking = False
        hub.epoch = 1 + sum(entry < 0 for entry in self.log)
        self.log = (*self.log, -hub.epoch)
        hub.seen = len(self.log)
        if self.rules.learns_behind_its_control_record:
            hub.known_from = hub.seen

    def _learn(self, name: str, hub: _Hub) -> None:
        since = hub.waiting[0].since
        hub.newest = max(hub.newest, self._newest(self.log[since : hub.known_from]))
        hub.known_from = since

    def _forget(self, name: str, hub: _Hub) -> None:
        self._left["forget"] -= 1
        if self.rules.learns_again_what_it_forgot:
            hub.known_from = max(hub.known_from, self._place_of(hub.newest) + 1)
        hub.newest = 0

    def _place_of(self, number: int) -> int:
        """Where a number lies that a hub has learned."""
        return next(
            at for at, entry in enumerate(self.log) if entry > 0 and entry % COPIED == number
        )

    def _judge(self, name: str, hub: _Hub) -> None:
        """It looks at what waits, when it has seen the log up to its end."""
        if not self._walk(name, hub):
            return
        call, rest = hub.waiting[0], hub.waiting[1:]
        in_doubt = hub.doubt is not None and call.number in hub.doubt.numbers
        if hub.doubt is not None and self.rules.settles_before_it_judges:
            self._settle(hub)
        believed = in_doubt and not self.rules.acknowledges_what_it_drops_only_if_it_is_stored
        if believed or call.number <= hub.newest:
            hub.waiting = rest
            self._acknowledge(name, call.number)
            return
        taken = (call,)
        if rest and not self.rules.judges_one_of_a_number_at_a_time:
            taken, rest = (call, rest[0]), rest[1:]
        hub.waiting, hub.put = rest, _Put(taken, hub.seen)
        if not self.rules.settles_before_it_judges:
            hub.doubt = None

    def _send(self, name: str, hub: _Hub) -> None:
        """Its put comes to the store; if the slot is taken it looks at all again."""
        put = hub.put
        assert put is not None
        hub.put = None
        if put.slot != len(self.log):
            hub.waiting = (*put.calls, *hub.waiting)
            self._walk(name, hub)
            return
        self._append(put)
        hub.seen = len(self.log)
        if self.rules.notes_what_it_appends:
            hub.newest = max(hub.newest, *put.numbers)
        for number in put.numbers:
            self._acknowledge(name, number)

    def _lose_stored(self, name: str, hub: _Hub) -> None:
        """It is stored, or refused, and the hub does not know."""
        assert hub.put is not None
        if hub.put.slot == len(self.log):
            self._append(hub.put)
        self._lose_unsent(name, hub)

    def _lose_unsent(self, name: str, hub: _Hub) -> None:
        """It never comes to the store, and the hub does not know. Its caller learns so."""
        self._left["lose"] -= 1
        assert hub.put is not None
        if self.called == name and self.number in hub.put.numbers:
            self.called = None
        hub.put, hub.doubt = None, hub.put

    def _settle(self, hub: _Hub) -> None:
        put, hub.doubt = hub.doubt, None
        assert put is not None
        stored = self.log[put.slot : put.slot + len(put.numbers)] == put.numbers
        if stored and self.rules.notes_what_settles:
            hub.newest = max(hub.newest, *put.numbers)

    def _walk(self, name: str, hub: _Hub) -> bool:
        """Whether it owns the topic still, by all that is in the log."""
        deposed = any(entry < -hub.epoch for entry in self.log[hub.seen :])
        hub.seen = len(self.log)
        if deposed:
            self._fenced(name, hub)
        return not deposed

    def _fenced(self, name: str, hub: _Hub) -> None:
        if self.called == name:
            self.called = None
        hub.epoch, hub.newest, hub.known_from = 0, 0, 0
        hub.waiting, hub.put, hub.doubt = (), None, None

    def _append(self, put: _Put) -> None:
        self.log += put.numbers
        numbers = [entry for entry in self.log if 0 < entry < COPIED]
        if sorted(set(numbers)) != numbers:
            raise ViolationError(f"the topic has {numbers}")

"""A topic in two partitions, its ranges, and hubs that take it over: everything that can happen."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator
from typing import NamedTuple

from tests.model.groups.world import ViolationError

__all__ = ["Action", "Bounds", "Rules", "World"]

Action = tuple[str, str]
ENDS = (50, 0)
"""The first IDs of the two partitions: the writers of the first one had a clock that was ahead."""


@dataclasses.dataclass(frozen=True)
class Rules:
    """The rules of owners. Each is taken out once."""

    sees_every_header_before_a_slot: bool = True
    """Else it goes on at the log's end, as a writer does that appends whatever is there."""
    knows_the_end_before_its_range_is_known: bool = True
    """Else it learns the log's end when it appends for the first time."""
    owns_nothing_where_it_cannot_walk_on: bool = True
    appends_a_record_before_it_closes_a_range: bool = True
    """Else the range is closed where the log ends by what was read."""
    closes_a_range_at_the_record: bool = True
    """Else where the log ended before it."""
    has_the_next_epoch: bool = True
    """Else the same one as the owner before."""
    changes_only_the_ranges_that_it_read: bool = True
    appends_only_when_its_range_is_known: bool = True
    gives_messages_a_floor: bool = True
    gives_records_a_floor: bool = True
    has_a_floor_beyond_the_record: bool = True
    """Else its range begins at the end of its partition."""
    reads_only_what_says_its_owner: bool = True
    """Else whatever lies in a range under the topic's name."""
    says_the_epoch_that_took_it_in: bool = True
    """Else that by which the topic is owned when it is appended."""


@dataclasses.dataclass(frozen=True)
class Bounds:
    """What may happen at most."""

    hubs: tuple[str, ...] = ("a", "b")
    takeovers: int = 3
    messages: int = 3
    """All hubs' together."""
    crashes: int = 0
    lost: int = 0
    """Answers that get lost, of control records and of messages."""
    collections: int = 0
    others: int = 0
    """Batches of other topics, in the first partition."""
    strangers: int = 0
    """Batches that somebody puts into the first partition under the topic's name."""


class _Entry(NamedTuple):
    """A batch of the topic, or a control record, with the epoch of its owner from there on; a batch
    of other topics means as much as a record of an epoch that was never there.
    """

    message_id: int
    epoch: int
    is_control: bool
    is_stranger: bool = False


class _Range(NamedTuple):
    partition: int
    first: int
    last: int | None
    epoch: int


class _Made(NamedTuple):
    """A batch, made for a slot, of the ownership that opened a range."""

    slot: int
    range: _Range


@dataclasses.dataclass
class _Hub:
    """A hub's process: what it knows, and what it is about."""

    known: tuple[int | None, int | None] = (None, None)
    """How much of each partition's log it has seen."""
    owned: _Range | None = None
    """The range that it appends to, as far as it knows."""
    step: str = ""
    read: tuple[int, tuple[_Range, ...]] = (0, ())
    """The ranges' version, and the ranges, as a take-over read them."""
    closed: int = 0
    target: int = 0
    made: _Made | None = None
    """Its batch that is on its way."""
    is_dead: bool = False


class World:
    """A topic, and everything that can happen next to it.

    Args:
        bounds: what may happen at most.
        rules: those that are kept.
    """

    def __init__(self, bounds: Bounds, rules: Rules = Rules()) -> None:
        self.rules = rules
        self._left = {
            "take": bounds.takeovers,
            "make": bounds.messages,
            "crash": bounds.crashes,
            "lose": bounds.lost,
            "collect": bounds.collections,
            "other": bounds.others,
            "stranger": bounds.strangers,
        }
        self.logs: tuple[tuple[_Entry, ...], ...] = ((), ())
        self.collected = (0, 0)
        """How many of each log's oldest headers are gone."""
        self.ranges: tuple[_Range, ...] = ()
        self.version = 0
        self.hubs = {name: _Hub() for name in bounds.hubs}

    def copied(self) -> World:
        """The same in the same state."""
        other = copy.copy(self)
        other._left = self._left.copy()
        other.hubs = {name: dataclasses.replace(hub) for name, hub in self.hubs.items()}
        return other

    def key(self) -> str:
        """Differs for different states."""
        return repr((self.logs, self.collected, self.ranges, self.version, self.hubs, self._left))

    def actions(self, *, faults: bool = True) -> Iterator[Action]:
        """What can happen next; without faults, what happens by itself."""
        for name, hub in self.hubs.items():
            if hub.is_dead:
                continue
            if self._may_step(hub):
                yield hub.step, name
            elif not hub.step and ((faults and self._left["take"]) or self._is_abandoned()):
                yield "take", name
            if hub.made is not None:
                yield "send", name
            elif self._may_make(hub):
                yield "make", name
            if not faults:
                continue
            if self._left["crash"]:
                yield "crash", name
            if self._left["lose"] and hub.step == "record" and hub.made is None:
                yield "lose_record", name
            if self._left["lose"] and hub.made is not None:
                yield "lose_send", name
        for kind in ("collect", "other", "stranger"):
            if faults and self._left[kind]:
                yield kind, ""

    def perform(self, action: Action) -> None:
        """Let it happen.

        Raises:
            ViolationError: a promise is broken by it.
        """
        kind, name = action
        if not name:
            getattr(self, f"_{kind}")()
        else:
            getattr(self, f"_{kind}")(self.hubs[name])

    def check_settled(self) -> None:
        """When nothing happens any more, a hub that lives has the topic."""
        if self._is_abandoned():
            raise ViolationError("nobody has the topic")

    # A take-over.

    def _is_abandoned(self) -> bool:
        """Whether some hub lives, and none has the topic, nor is about to."""
        alive = [hub for hub in self.hubs.values() if not hub.is_dead]
        newest = self.ranges[-1] if self.ranges else None
        return bool(alive) and not any(
            hub.step or (newest is not None and hub.owned == newest) for hub in alive
        )

    def _take(self, hub: _Hub) -> None:
        """It is elected, or thinks so, and reads where the topic lies. Its target is the other
        partition than that, and then the same. From here on its writer owns the topic by the next
        epoch; a batch of the ownership before may be on its way.
        """
        self._left["take"] = max(0, self._left["take"] - 1)
        hub.read, hub.owned = (self.version, self.ranges), None
        last = self.ranges[-1] if self.ranges else None
        hub.target = 0 if last is None else (last.partition + last.epoch) % 2
        hub.step = "own" if last is None else "record"

    def _record(self, hub: _Hub) -> None:
        """It appends a control record where the topic lies, and knows its ID."""
        last = hub.read[1][-1]
        hub.closed = self._end(last.partition) - 1
        if self.rules.appends_a_record_before_it_closes_a_range:
            floor = last.first if self.rules.gives_records_a_floor else 0
            record = self._append(last.partition, self._epoch(hub), floor, is_control=True)
            if self.rules.closes_a_range_at_the_record:
                hub.closed = record
        hub.step = "own"

    def _lose_record(self, hub: _Hub) -> None:
        """The record is there, and it does not know: it appends another."""
        self._left["lose"] -= 1
        self._record(hub)
        hub.step = "record"

    def _own(self, hub: _Hub) -> None:
        """It learns where the log ends that it will append to, if it does not follow it already."""
        if self.rules.knows_the_end_before_its_range_is_known:
            self._learn(hub, hub.target)
        hub.step = "change"
        if not self.rules.appends_only_when_its_range_is_known:
            hub.owned = self._range(hub)

    def _change(self, hub: _Hub) -> None:
        """It closes the old range and opens its own, if nobody else has changed them."""
        hub.step = ""
        version, ranges = hub.read
        if version != self.version and self.rules.changes_only_the_ranges_that_it_read:
            return
        if ranges:
            ranges = (*ranges[:-1], ranges[-1]._replace(last=hub.closed))
            if hub.closed < ranges[-1].first - 1:
                raise ViolationError("a range ends before it begins")
        hub.owned = self._range(hub)
        self.ranges, self.version = (*ranges, hub.owned), self.version + 1
        self._check()

    def _range(self, hub: _Hub) -> _Range:
        first = self._end(hub.target)
        if hub.read[1] and self.rules.has_a_floor_beyond_the_record:
            first = hub.closed + 1
        return _Range(hub.target, first, None, self._epoch(hub))

    def _epoch(self, hub: _Hub) -> int:
        ranges = hub.read[1]
        return ranges[-1].epoch + self.rules.has_the_next_epoch if ranges else 1

    # Appending.

    def _may_make(self, hub: _Hub) -> bool:
        return bool(hub.owned and self._left["make"])

    @staticmethod
    def _may_step(hub: _Hub) -> bool:
        """One thread appends to a partition: the batch on its way goes before the record."""
        if hub.step != "record" or hub.made is None:
            return bool(hub.step)
        return hub.made.range.partition != hub.read[1][-1].partition

    def _make(self, hub: _Hub) -> None:
        """It makes a batch for the slot where the log ends by what it has seen."""
        assert hub.owned is not None
        self._left["make"] -= 1
        at = hub.owned.partition
        if hub.known[at] is None:
            self._learn(hub, at)
        slot = hub.known[at]
        assert slot is not None
        hub.made = _Made(slot, hub.owned)

    def _send(self, hub: _Hub) -> None:
        """Its put comes to the store, whenever that is; if the slot is taken it walks on."""
        assert hub.made is not None
        slot, of = hub.made
        at, epoch = of.partition, of.epoch
        if slot == len(self.logs[at]):
            floor = of.first if self.rules.gives_messages_a_floor else 0
            if hub.step and hub.target == at and not self.rules.says_the_epoch_that_took_it_in:
                epoch = self._epoch(hub)
            self._append(at, epoch, floor, is_control=False)
            hub.made = None
            self._see(hub, at, len(self.logs[at]))
            self._check()
            return
        seen = slot if self.rules.sees_every_header_before_a_slot else len(self.logs[at])
        if seen < self.collected[at]:
            if self.rules.owns_nothing_where_it_cannot_walk_on:
                self._drop(hub, of)
                self._see(hub, at, None)
                return
            seen = len(self.logs[at])
        self._see(hub, at, len(self.logs[at]))
        hub.made = _Made(len(self.logs[at]), of)
        if any(e.is_control and e.epoch > epoch for e in self.logs[at][seen:]):
            self._drop(hub, of)
        elif hub.owned != of:
            hub.made = None  # It is fenced; it would be as good if it were not.

    @staticmethod
    def _drop(hub: _Hub, of: _Range) -> None:
        hub.made = None
        if hub.owned == of:
            hub.owned = None

    def _lose_send(self, hub: _Hub) -> None:
        """The put is done, or refused, and it does not know. It looks, and goes on as if it did."""
        self._left["lose"] -= 1
        assert hub.made is not None
        slot, of = hub.made
        won = slot == len(self.logs[of.partition])
        self._send(hub)
        if won:  # It learns of its own batch by walking, from where it stood.
            self._see(hub, of.partition, slot)

    def _learn(self, hub: _Hub, partition: int) -> None:
        """What is known already is not given up: the writer of a partition serves many topics."""
        if hub.known[partition] is None:
            self._see(hub, partition, len(self.logs[partition]))

    def _see(self, hub: _Hub, partition: int, seen: int | None) -> None:
        one, other = hub.known
        hub.known = (seen, other) if partition == 0 else (one, seen)

    def _append(self, partition: int, epoch: int, floor: int, *, is_control: bool) -> int:
        message_id = max(self._end(partition), floor)
        entry = _Entry(message_id, epoch, is_control)
        log = (*self.logs[partition], entry)
        one, other = self.logs
        self.logs = (log, other) if partition == 0 else (one, log)
        if not is_control:
            before = [
                e.message_id
                for each in self.logs
                for e in each
                if not (e.is_control or e.is_stranger)
            ]
            if max(before) > message_id or before.count(message_id) > 1:
                raise ViolationError(f"message {message_id} comes after one with a higher ID")
        return message_id

    def _end(self, partition: int) -> int:
        log = self.logs[partition]
        return log[-1].message_id + 1 if log else ENDS[partition]

    def _check(self) -> None:
        """Every message that was acknowledged lies in a range of the owner that appended it; so
        no reader of a range that is closed misses one that comes later. And what somebody put there
        is read by nobody.
        """
        for partition, log in enumerate(self.logs):
            for entry in log:
                if entry.is_stranger:
                    self._check_stranger(partition, entry)
                elif not entry.is_control and not any(
                    each.partition == partition
                    and each.epoch == entry.epoch
                    and each.first <= entry.message_id
                    and (each.last is None or entry.message_id <= each.last)
                    for each in self.ranges
                ):
                    raise ViolationError(
                        f"message {entry.message_id} lies in no range of its owner"
                    )

    def _check_stranger(self, partition: int, entry: _Entry) -> None:
        for each in self.ranges:
            inside = each.partition == partition and each.first <= entry.message_id
            inside = inside and (each.last is None or entry.message_id <= each.last)
            if inside and not self.rules.reads_only_what_says_its_owner:
                raise ViolationError(f"message {entry.message_id} is read, and was put by others")

    # Faults.

    def _crash(self, hub: _Hub) -> None:
        """It dies; a put that it sent may come to the store a moment before or never."""
        self._left["crash"] -= 1
        hub.is_dead = True
        hub.step, hub.owned, hub.made = "", None, None

    def _collect(self) -> None:
        """The headers that are there now expire, but for the newest of each partition."""
        self._left["collect"] -= 1
        one, other = (max(0, len(log) - 1) for log in self.logs)
        self.collected = one, other

    def _stranger(self) -> None:
        self._left["stranger"] -= 1
        entry = _Entry(self._end(0), 0, is_control=False, is_stranger=True)
        self.logs = ((*self.logs[0], entry), self.logs[1])
        self._check()

    def _other(self) -> None:
        self._left["other"] -= 1
        self._append(0, 0, 0, is_control=True)

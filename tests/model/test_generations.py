"""Records that go with their session and are made again: in every order of what others do
meanwhile, a change counts for the very record that was read. Each rule is taken out once.

The library's own code runs over a store in memory which counts versions as ZooKeeper does. Before
each request that one process sends, others do what a schedule says.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pytest

from hqueue.metadata.managers import generations
from hqueue.metadata.managers.generations import GenerationRecords
from hqueue.metadata.managers.layout import owners_generation
from hqueue.metadata.ports import Change, Guard, Record, Version
from hqueue.metadata.steps import Work
from hqueue.runtime.stepwise import asked, stepwise
from tests.support.memory.metadata import MemoryServer

KEY = "/topics/t/hub"
EVENTS_MAX = 4
REQUESTS_MAX = 6
"""Requests of one process, before each of which something may happen."""

Schedule = tuple[tuple[int, str], ...]


class WrongRecordError(AssertionError):
    """A change was made to another record than the one that was read."""


class Interrupted:
    """A store to which one process sends requests, and others theirs in between."""

    def __init__(self, world: World, real: Any) -> None:
        self._world = world
        self._real = real

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._real, name)
        if name in ("records", "ephemerals"):
            return Interrupted(self._world, found)
        if not callable(found):
            return found

        def ask(*given: Any, **named: Any) -> Any:
            self._world.before_request()
            return found(*given, **named)

        return ask


class World:
    """One topic's owner, and everything that others do to it."""

    def __init__(self, schedule: Schedule, kind: type[GenerationRecords]) -> None:
        self._server = MemoryServer()
        self._kind = kind
        self._number = 0
        self._requests = 0
        self._events = schedule
        self._holder: Any = None
        self.mine = kind(Interrupted(self, self._server.open()), owners_generation)  # type: ignore[arg-type]

    def before_request(self) -> None:
        for at, event in self._events:
            if at == self._requests:
                getattr(self, event)()
        self._requests += 1

    def value(self) -> bytes:
        """A value that no other record has."""
        self._number += 1
        return b'{"version": 1, "writer": "%d"}' % self._number

    def create(self) -> None:
        """Another hub makes a record, if there is none."""
        session = self._server.open()
        if self._kind(session, owners_generation).create_present({KEY: self.value()})[KEY] is None:
            session.close()
        else:
            self._holder = session

    def old(self) -> None:
        """A hub of an earlier release does."""
        session = self._server.open()
        if session.ephemerals.create({KEY: self.value()})[KEY] is None:
            session.close()
        else:
            self._holder = session

    def end(self) -> None:
        """The session of the hub that has a record is over."""
        if self._holder is not None:
            self._holder.close()
            self._holder = None

    def there(self) -> bytes | None:
        """The value of the record, without its generation."""
        found = GenerationRecords(self._server.open(), owners_generation).read([KEY]).get(KEY)
        return None if found is None else found.value

    def run(self, *, removes: bool) -> bool:
        """Read the record, and change it; whether that was done."""
        found = self.mine.read([KEY]).get(KEY)
        if found is None:
            return False
        before: list[bytes | None] = []
        real, world = self.before_request, self

        def noting() -> None:
            real()
            before[:] = [world.there()]

        self.before_request = noting  # type: ignore[method-assign]
        if removes:
            done = self.mine.remove({KEY: found.version})[KEY] is True
        else:
            change = Change(self.value(), found.version)
            done = self.mine.write({KEY: change})[KEY] is not None
        if done and before != [found.value]:
            raise WrongRecordError(f"{found.value!r} was read, and {before} was there")
        return done


def schedules() -> Iterator[Schedule]:
    """Something is there at first, perhaps of an earlier release; then everything in every order.
    No hub of an earlier release runs on beside others: it counts nothing.
    """
    for number in range(EVENTS_MAX):
        for events in itertools.product(("create", "end"), repeat=number):
            for at in itertools.combinations_with_replacement(range(REQUESTS_MAX), number):
                rest = tuple(zip(at, events, strict=True))
                for first in ("create", "old"):
                    yield ((0, first), *rest)


def explore(kind: type[GenerationRecords] = GenerationRecords) -> int:
    """Every schedule; how many changes were made."""
    made = 0
    for schedule in schedules():
        for removes in (False, True):
            try:
                made += World(schedule, kind).run(removes=removes)
            except WrongRecordError as exc:
                raise WrongRecordError(f"{exc}: {schedule}") from exc
    return made


class ComparesNoGeneration(GenerationRecords):
    @stepwise
    def write(
        self, changes: Mapping[str, Change], guards: Mapping[str, Guard] | None = None
    ) -> Work[dict[str, Version | None]]:
        own = {key: each._replace(version=_own(each.version)) for key, each in changes.items()}
        return dict((yield asked(self._records.write, own)))

    @stepwise
    def remove(
        self, versions: Mapping[str, Version], guards: Mapping[str, Guard] | None = None
    ) -> Work[Mapping[str, bool | None]]:
        own = {key: _own(each) for key, each in versions.items()}
        return (yield asked(self._records.remove, own))


class CountsNoCreation(GenerationRecords):
    @stepwise
    def create_present(self, values: Mapping[str, bytes]) -> Work[dict[str, Version | None]]:
        guards = yield from self._newest({key: self._beside(key) for key in values})
        named = {
            key: generations._named(value, guards[key].version) for key, value in values.items()
        }
        return dict((yield asked(self._store.ephemerals.create, named)))


class ReadsTheGenerationLast(GenerationRecords):
    @stepwise
    def read(self, keys: Iterable[str]) -> Work[dict[str, Record]]:
        found = yield asked(self._records.read, keys)
        there = yield asked(self._records.read, {self._beside(key) for key in found})
        known = {}
        for key, each in found.items():
            node = there.get(self._beside(key))
            generation = 0 if node is None else node.version
            known[key] = generations._known_as(each) or generations._of_generation(each, generation)
        return known


RULES: Sequence[type[GenerationRecords]] = (
    ComparesNoGeneration,
    CountsNoCreation,
    ReadsTheGenerationLast,
)


def _own(version: Version) -> Version:
    return Version(version % generations.GENERATION)


def test_a_change_counts_for_the_very_record_that_was_read() -> None:
    assert explore() > 100


@pytest.mark.parametrize("without", RULES, ids=lambda each: each.__name__)
def test_every_rule_is_needed(without: type[GenerationRecords]) -> None:
    with pytest.raises(WrongRecordError):
        explore(without)

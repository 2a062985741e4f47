"""How far a group is, over a metadata store in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from unittest import mock

import pytest

from hqueue import MessageID
from hqueue.errors import CommitFailedError, Outcome, StoreUnavailableError
from hqueue.groups.offsets import GroupOffsets, Offset, Position
from hqueue.groups.paths import GroupPaths
from hqueue.metadata import PartitionKey
from hqueue.metadata.ports import Change, Records, Version
from hqueue.metadata.steps import Work
from tests.support.memory.metadata import MemoryServer, MemorySession

PATHS = GroupPaths("/hqueue", "a group, of any characters/")
KEY = PartitionKey("q", 0)


def test_a_late_commit_of_the_owner_before_is_refused(metadata_server: MemoryServer) -> None:
    offsets = GroupOffsets(metadata_server.open(), PATHS)
    before = offsets.take_over("a", [KEY])[KEY]
    before = offsets.commit("a", {KEY: (before, Position(MessageID(5)))})[KEY]
    after = offsets.take_over("b", [KEY])[KEY]
    assert after.position.next == MessageID(5)
    assert offsets.commit("a", {KEY: (before, Position(MessageID(7)))}) == {}
    assert offsets.read([KEY])[KEY] == after
    moved = offsets.commit("b", {KEY: (after, Position(MessageID(6)))})[KEY]
    assert moved.position.next == MessageID(6)
    assert offsets.list().keys() == {KEY}


class Unanswered:
    """Records whose answer to the next write is lost, while others do something."""

    def __init__(self, records: Records, apply: bool, meanwhile: Callable[[], object]) -> None:
        self._records, self._apply, self._meanwhile = records, apply, meanwhile
        self._lost = False

    def write(self, changes: Mapping[str, Change]) -> dict[str, Version | None]:
        if self._lost:
            return self._records.write(changes)
        self._lost = True
        if self._apply:
            self._records.write(changes)
        self._meanwhile()
        raise StoreUnavailableError("the answer was lost", outcome=Outcome.UNKNOWN)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._records, name)


@pytest.mark.parametrize("applied", [True, False])
@pytest.mark.parametrize("taken_over", [True, False])
def test_a_commit_whose_answer_was_lost_is_looked_up(
    metadata_server: MemoryServer, applied: bool, taken_over: bool
) -> None:
    store = metadata_server.open()
    offsets = GroupOffsets(store, PATHS)
    before = offsets.take_over("a", [KEY])[KEY]

    def meanwhile() -> None:
        if taken_over:
            GroupOffsets(metadata_server.open(), PATHS).take_over("b", [KEY])

    moves = {KEY: (before, Position(MessageID(5)))}
    with mock.patch.object(store, "records", Unanswered(store.records, applied, meanwhile)):
        if taken_over:
            with pytest.raises(CommitFailedError) as failed:
                offsets.commit("a", moves)
            assert failed.value.outcome is Outcome.UNKNOWN
            assert failed.value.facts["partitions"] == [KEY]
        elif applied:
            assert offsets.commit("a", moves) == offsets.read([KEY])
        else:
            with pytest.raises(StoreUnavailableError) as caught:
                offsets.commit("a", moves)
            assert caught.value.outcome is Outcome.UNKNOWN
    assert offsets.read([KEY])[KEY].position.next == MessageID(5 if applied else 0)


@pytest.mark.parametrize("applied", [True, False])
def test_a_commit_whose_answer_was_lost_is_not_the_take_over_that_its_consumer_made_since(
    metadata_server: MemoryServer, applied: bool
) -> None:
    store = metadata_server.open()
    offsets = GroupOffsets(store, PATHS)
    before = offsets.take_over("a", [KEY])[KEY]
    taken = []

    def meanwhile() -> None:
        taken.append(offsets.take_over("a", [KEY])[KEY])

    # Where it was not applied, too, the take-over writes what it would have written.
    moves = {KEY: (before, Position(MessageID(5)) if applied else before.position)}
    with mock.patch.object(store, "records", Unanswered(store.records, applied, meanwhile)):
        with pytest.raises(CommitFailedError) as failed:
            offsets.commit("a", moves)
        assert failed.value.outcome is Outcome.UNKNOWN
        assert failed.value.facts["partitions"] == [KEY]
    assert offsets.read([KEY]) == {KEY: taken[0]}
    assert offsets.commit("a", {KEY: (taken[0], Position(MessageID(7)))})


def test_a_commit_of_an_earlier_claim_is_not_looked_up_as_the_take_over_that_was_made_before_it(
    metadata_server: MemoryServer,
) -> None:
    store = metadata_server.open()
    offsets = GroupOffsets(store, PATHS)
    before = offsets.take_over("a", [KEY])[KEY]
    taken = offsets.take_over("a", [KEY])
    unanswered = Unanswered(store.records, False, lambda: None)
    with mock.patch.object(store, "records", unanswered), pytest.raises(CommitFailedError):
        offsets.commit("a", {KEY: (before, before.position)})
    assert offsets.read([KEY]) == taken


def commit_late(store: MemorySession, offsets: GroupOffsets, known: Offset) -> None:
    """Commit without an answer; it is made when that was looked up."""
    lost: dict[str, Change] = {}

    def lose(changes: Mapping[str, Change]) -> None:
        lost.update(changes)
        raise StoreUnavailableError("the answer was lost", outcome=Outcome.UNKNOWN)

    with mock.patch.object(store.records, "write", lose), pytest.raises(StoreUnavailableError):
        offsets.commit("a", {KEY: (known, Position(MessageID(5)))})
    assert all(store.records.write(lost).values())


def test_a_commit_that_was_made_late_does_not_refuse_those_that_its_claim_makes_after_it(
    metadata_server: MemoryServer,
) -> None:
    store = metadata_server.open()
    offsets = GroupOffsets(store, PATHS)
    known = offsets.take_over("a", [KEY])[KEY]
    commit_late(store, offsets, known)
    for place in (7, 9):
        moved = offsets.commit("a", {KEY: (known, Position(MessageID(place)))})
        assert moved == offsets.read([KEY])
        assert moved[KEY].position.next == MessageID(place)
        known = moved[KEY]


@pytest.mark.parametrize("consumer", ["a", "b"])
def test_after_a_take_over_a_commit_is_refused_also_where_one_was_made_late(
    metadata_server: MemoryServer, consumer: str
) -> None:
    store = metadata_server.open()
    offsets = GroupOffsets(store, PATHS)
    known = offsets.take_over("a", [KEY])[KEY]
    commit_late(store, offsets, known)
    taken = (offsets if consumer == "a" else GroupOffsets(store, PATHS)).take_over(consumer, [KEY])
    assert taken[KEY].position.next == MessageID(5)
    assert offsets.commit("a", {KEY: (known, Position(MessageID(7)))}) == {}
    assert offsets.read([KEY]) == taken


def test_what_was_given_up_is_not_committed_by_the_next_claim_of_the_same_consumer(
    metadata_server: MemoryServer,
) -> None:
    store = metadata_server.open()
    before = GroupOffsets(store, PATHS)
    known = before.take_over("a", [KEY])[KEY]
    before.give_up()
    taken = GroupOffsets(store, PATHS).take_over("a", [KEY])
    assert before.commit("a", {KEY: (known, Position(MessageID(7)))}) == {}
    assert GroupOffsets(store, PATHS).read([KEY]) == taken


def test_a_take_over_that_another_overtook_is_made_again_while_it_has_the_claim(
    metadata_server: MemoryServer,
) -> None:
    store = metadata_server.open()
    offsets, asked = GroupOffsets(store, PATHS), []

    def overtake() -> None:
        GroupOffsets(metadata_server.open(), PATHS).take_over("b", [KEY])

    def claimed() -> Work[bool]:
        asked.append(KEY)
        return True
        yield

    with mock.patch.object(store, "records", Unanswered(store.records, True, overtake)):
        taken = offsets.take_over("a", [KEY], claimed)
    assert taken == offsets.read([KEY])
    assert len(asked) == 2

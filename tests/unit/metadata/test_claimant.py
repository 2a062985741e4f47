"""What owners of partitions claim and give up, over a metadata store in memory."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Mapping

import pytest

from hqueue import StoreUnavailableError
from hqueue.groups.paths import GroupPaths
from hqueue.metadata import PartitionKey
from hqueue.metadata.claimant import Claimant
from hqueue.metadata.owners import Owners
from hqueue.metadata.ports import ANY
from hqueue.metadata.steps import Work
from tests.support.memory.metadata import MemoryServer, MemorySession

PATHS = GroupPaths("/hqueue", "g")
KEYS = tuple(PartitionKey("q", number) for number in range(3))


class Owner:
    """One that claims, and its session."""

    def __init__(self, session: MemorySession, name: str) -> None:
        self.session = session
        self.owners = Owners(session, PATHS, "consumer")
        self.changes = 0
        self.claimant = Claimant(self.owners, name, threading.RLock(), self._on_change)
        self.claiming = self.claimant.claiming

    def _on_change(self) -> None:
        self.changes += 1

    def settle(self, wanted: Iterable[PartitionKey]) -> frozenset[PartitionKey]:
        self.claiming.request(wanted)
        self.claimant.carry_out(self.claiming.steps())
        self.claimant.release(self.claiming.revoking)
        return self.claiming.owned


@pytest.fixture
def metadata_server() -> MemoryServer:
    return MemoryServer(session_timeout_ms=300)


@pytest.fixture
def first(metadata_server: MemoryServer) -> Owner:
    return Owner(metadata_server.open(), "a")


@pytest.fixture
def second(metadata_server: MemoryServer) -> Owner:
    return Owner(metadata_server.open(), "b")


def test_a_partition_is_had_by_another_when_it_was_released(first: Owner, second: Owner) -> None:
    assert first.settle(KEYS) == set(KEYS)
    assert not second.settle(KEYS[1:])
    assert first.settle(KEYS[:2]) == set(KEYS[:2])
    assert second.settle(KEYS[1:]) == set(KEYS[2:])
    first.claimant.give_up()
    assert second.settle(KEYS) == set(KEYS)


def test_a_claim_whose_answer_was_lost_is_released_if_it_is_wanted_no_more(
    first: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim = first.session.ephemerals.claim

    def unanswered(values: Mapping[str, bytes]) -> Collection[str]:
        claim(values)
        raise StoreUnavailableError("no answer")

    with monkeypatch.context() as lost:
        lost.setattr(first.session.ephemerals, "claim", unanswered)
        with pytest.raises(StoreUnavailableError):
            first.settle(KEYS)
    assert not first.claiming.owned
    assert first.claiming.held == first.owners.list().keys() == set(KEYS)
    assert first.settle(KEYS[:1]) == first.owners.list().keys() == set(KEYS[:1])


def test_a_claim_that_can_not_be_begun_is_in_doubt(first: Owner) -> None:
    first.claiming.request(KEYS)
    steps = first.claiming.steps()

    def begin(claimed: Collection[PartitionKey]) -> Work[Collection[PartitionKey]]:
        return set(claimed) - {KEYS[0]}
        yield

    assert first.claimant.carry_out(steps, begin) == set(KEYS[1:])
    assert first.claiming.held == set(KEYS)
    assert first.settle(KEYS[1:]) == first.owners.list().keys() == set(KEYS[1:])


def test_what_was_claimed_while_the_session_was_lost_is_not_owned(
    first: Owner, second: Owner
) -> None:
    def begin(claimed: Collection[PartitionKey]) -> Work[Collection[PartitionKey]]:
        first.session.expire()
        first.claiming.lost()
        second.settle(KEYS[:1])
        return claimed
        yield

    first.claiming.request(KEYS)
    assert not first.claimant.carry_out(first.claiming.steps(), begin)
    assert not first.claiming.owned
    assert first.settle(KEYS) == set(KEYS[1:])


def test_a_release_leaves_alone_what_was_lost_and_claimed_again(first: Owner) -> None:
    first.settle(KEYS)
    first.claiming.request(())
    revoked = first.claiming.steps().revoke
    first.session.expire()
    first.claiming.lost()
    assert first.settle(KEYS) == set(KEYS)
    assert not first.claimant.release(revoked)
    assert first.owners.list().keys() == set(KEYS)


def test_a_claim_that_another_hand_took_away_is_noticed_and_claimed_again(
    first: Owner, second: Owner
) -> None:
    first.settle(KEYS)
    assert not first.claimant.look_after()
    before = first.changes
    second.session.records.delete({PATHS.owner(KEYS[0]): ANY})
    assert first.changes > before
    assert first.claimant.look_after() == {KEYS[0]}
    assert first.claiming.owned == set(KEYS[1:])
    assert first.settle(KEYS) == set(KEYS)
    assert not first.claimant.look_after()

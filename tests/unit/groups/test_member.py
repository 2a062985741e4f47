"""Members of one group, over a metadata store in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import pytest

from hqueue import MessageID
from hqueue.errors import RequestRefusedError
from hqueue.groups.assignors import assign_range, assign_sticky
from hqueue.groups.member import GroupMember
from hqueue.groups.offsets import GroupOffsets
from hqueue.groups.paths import GroupPaths
from hqueue.metadata import PartitionKey
from tests.support.memory.metadata import MemoryServer, MemorySession
from tests.support.waiting import wait_for

PATHS = GroupPaths("/hqueue", "a group, of any characters/")
KEYS = tuple(PartitionKey("q", number) for number in range(4))
PARTITIONS: Mapping[PartitionKey, str | None] = dict.fromkeys(KEYS)


class Consumer:
    """A member, and what its consumer knows of it: it gives up at once what it is asked for."""

    def __init__(self, session: MemorySession, name: str, *, eager: bool = False) -> None:
        self.session = session
        self.positions: dict[PartitionKey, MessageID] = {}
        self.lost: set[PartitionKey] = set()
        self.member = GroupMember(
            session,
            PATHS,
            name,
            {"q": 1},
            assignor=assign_range if eager else assign_sticky,
            eager=eager,
            start=lambda key: MessageID(1_000 + key.partition),
        )
        self.member.see_partitions(PARTITIONS)

    def turn(self) -> set[PartitionKey]:
        """What a consumer does before it hands out messages; what it may hand out of."""
        changes = self.member.changes()
        self.positions |= {key: offset.next for key, offset in changes.assigned.items()}
        self.lost |= changes.lost
        for key in changes.lost:
            self.positions.pop(key, None)
        if changes.revoked:
            revoked = {key: self.positions.pop(key) for key in changes.revoked}
            self.member.commit(revoked)
            self.member.release(changes.revoked)
        return set(self.positions) if self.member.certain() else set()


@pytest.fixture
def metadata_server() -> MemoryServer:
    return MemoryServer(session_timeout_ms=300)


@pytest.fixture
def join(metadata_server: MemoryServer) -> Iterator[Callable[..., Consumer]]:
    """Members, each with a session of its own."""
    joined: list[Consumer] = []

    def join_one(name: str, *, eager: bool = False) -> Consumer:
        joined.append(Consumer(metadata_server.open(), name, eager=eager))
        return joined[-1]

    yield join_one
    for consumer in joined:
        consumer.member.close()
        consumer.session.close()


def settle(*consumers: Consumer, shares: tuple[int, ...]) -> None:
    """Wait until all partitions are shared so, each by one."""

    def settled() -> bool:
        owned = [consumer.turn() for consumer in consumers]
        assert sum(map(len, owned)) == len(set().union(*owned)), "a partition with two owners"
        return sorted(map(len, owned)) == sorted(shares)

    wait_for(settled, f"they share {shares}")


@pytest.mark.parametrize("eager", [False, True], ids=["sticky", "range"])
def test_members_share_the_partitions_as_they_come_and_go(
    join: Callable[..., Consumer], eager: bool
) -> None:
    first = join("a", eager=eager)
    settle(first, shares=(4,))
    second = join("b", eager=eager)
    settle(first, second, shares=(2, 2))
    third = join("c", eager=eager)
    settle(first, second, third, shares=(1, 1, 2))
    second.member.close()
    settle(first, third, shares=(2, 2))


def test_what_stays_is_not_touched_when_another_joins(join: Callable[..., Consumer]) -> None:
    first = join("a")
    settle(first, shares=(4,))
    second = join("b")
    given_up: set[PartitionKey] = set()

    def shared() -> bool:
        before = set(first.positions)
        first.turn()
        given_up.update(before - set(first.positions))
        return len(second.turn()) == 2

    wait_for(shared, "the second has its share")
    assert given_up == set(second.positions)


def test_an_offset_is_where_the_next_owner_begins(join: Callable[..., Consumer]) -> None:
    first = join("a")
    settle(first, shares=(4,))
    assert first.positions == {key: MessageID(1_000 + key.partition) for key in KEYS}
    first.positions = {key: MessageID(2_000 + key.partition) for key in KEYS}
    assert not first.member.commit(first.positions)
    first.member.close()
    second = join("b")
    settle(second, shares=(4,))
    assert second.positions == first.positions


def test_a_member_whose_session_ends_loses_all_and_commits_nothing_any_more(
    join: Callable[..., Consumer], metadata_server: MemoryServer
) -> None:
    first = join("a")
    settle(first, shares=(4,))
    held = set(first.positions)
    second = join("b")
    first.session.suspend()

    def taken_over() -> bool:
        certain = first.member.certain()
        owned = second.turn()
        assert not (owned and certain), "both may hand out"
        return len(owned) == 4

    wait_for(taken_over, "the other has all of it")
    first.session.resume()
    assert first.member.commit(dict.fromkeys(held, MessageID(9_000))) == held
    settle(first, second, shares=(2, 2))
    assert first.lost == held
    offsets = GroupOffsets(metadata_server.open(), PATHS).read(KEYS)
    assert all(offset.next < MessageID(9_000) for offset in offsets.values())


def test_a_late_commit_of_the_owner_before_is_refused(metadata_server: MemoryServer) -> None:
    offsets = GroupOffsets(metadata_server.open(), PATHS)
    key = KEYS[0]
    before = offsets.take_over("a", [key], lambda _: MessageID(1))[key]
    before = offsets.commit("a", {key: (before, MessageID(5))})[key]
    after = offsets.take_over("b", [key], lambda _: MessageID(1))[key]
    assert after.next == MessageID(5)
    assert offsets.commit("a", {key: (before, MessageID(7))}) == {}
    assert offsets.read([key])[key] == after
    assert offsets.commit("b", {key: (after, MessageID(6))})[key].next == MessageID(6)
    assert offsets.list().keys() == {key}


def test_there_is_one_consumer_of_an_id(join: Callable[..., Consumer]) -> None:
    settle(join("a"), shares=(4,))
    with pytest.raises(RequestRefusedError):
        join("a")


def test_a_claim_that_it_does_not_know_of_is_released(
    join: Callable[..., Consumer], metadata_server: MemoryServer
) -> None:
    first, second = join("a"), join("b")
    settle(first, second, shares=(2, 2))
    taken = next(iter(first.positions))
    # As if the answer to its claim had been lost, and then it was another's turn.
    first.member._membership.refused(taken)
    first.positions.pop(taken)
    first.member.see_partitions(PARTITIONS)
    settle(first, second, shares=(2, 2))

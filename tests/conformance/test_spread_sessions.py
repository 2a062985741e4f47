"""A session whose ephemeral nodes are spread over several sessions at ZooKeeper."""

from __future__ import annotations

import contextlib
import os
import socket
import uuid
from collections.abc import Callable, Iterator

import pytest

from hqueue import HQueueError, MessageID, Settings, StoreUnavailableError
from hqueue.metadata import (
    Address,
    PartitionKey,
    Presence,
    SessionState,
    SubscriptionKey,
    WorkerRecord,
)
from hqueue.runtime.clock import SYSTEM_CLOCK
from hqueue.zookeeper import ZooKeeperCoordination
from hqueue.zookeeper.member import Member
from tests.integration.running import Program
from tests.support.proxy import Fate
from tests.support.waiting import wait_for
from tests.support.zookeeper_faults import expire, zookeeper_proxy
from tests.support.zookeeper_nodes import RawNodes

HERE = Address("127.0.0.1", 5_001)
SESSION_MS = 4_000
BYTES_MAX = 2_048
PARTITIONS = 100
CLAIMS = {PartitionKey("q", partition) for partition in range(PARTITIONS)}

Open = Callable[..., ZooKeeperCoordination]


@pytest.fixture
def root() -> str:
    return f"/hqueue-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def nodes(zookeeper: str, root: str) -> Iterator[RawNodes]:
    with RawNodes(zookeeper, root) as found:
        yield found


@pytest.fixture
def open_session(zookeeper: str, root: str) -> Iterator[Open]:
    """Opens sessions with a small bound below one root; they are closed after the test."""
    opened: list[ZooKeeperCoordination] = []

    def open_one(**changes: object) -> ZooKeeperCoordination:
        settings = {
            "zookeeper": zookeeper,
            "zookeeper_root": root,
            "zookeeper_session_timeout_ms": SESSION_MS,
            **changes,
        }
        opened.append(ZooKeeperCoordination(Settings(**settings), session_bytes_max=BYTES_MAX))
        return opened[-1]

    yield open_one
    for coordination in opened:
        coordination.close()


def fail(error: HQueueError) -> None:
    raise AssertionError(f"a registration failed: {error}")


def create_checkpoints(coordination: ZooKeeperCoordination) -> None:
    keys = [SubscriptionKey("q", partition, "s") for partition in range(PARTITIONS)]
    coordination.checkpoints.create(dict.fromkeys(keys, MessageID(0)))


def fill(coordination: ZooKeeperCoordination) -> None:
    """A subscriber, a worker and claims: some 300 nodes."""
    create_checkpoints(coordination)
    partitions = range(PARTITIONS)
    coordination.subscriptions.register("q", "s", Presence(HERE), partitions, fail)
    coordination.workers.register(WorkerRecord("w", HERE, "rs"), fail)
    assert coordination.owners.claim("w", CLAIMS) == CLAIMS


def members(coordination: ZooKeeperCoordination) -> list[Member]:
    return list(coordination.store.session.members)


def counted(coordination: ZooKeeperCoordination) -> int:
    return sum(coordination.store.session.members._allocation.bytes_by_session)


@contextlib.contextmanager
def cut_off(member: Member, zookeeper: str) -> Iterator[None]:
    """One member can't reach ZooKeeper, for the time of the block."""
    member.client.set_hosts("127.0.0.1:1")
    member.client._connection._socket.shutdown(socket.SHUT_RDWR)
    try:
        yield
    finally:
        member.client.set_hosts(zookeeper)


def test_no_session_owns_more_than_the_bound_and_a_group_has_one_owner(
    open_session: Open, nodes: RawNodes
) -> None:
    one = open_session()
    fill(one)
    owners = nodes.owners()
    assert {member.id for member in members(one)} == set(owners)
    assert len(owners) > 4
    for paths in owners.values():
        assert sum(4 + len(path) for path in paths) <= BYTES_MAX
    owner_of = {path: owner for owner, paths in owners.items() for path in paths}
    for path, owner in owner_of.items():
        if path.endswith("/topics"):
            assert owner_of[path.replace("/topics", "/address")] == owner
    assert len(owner_of) == 3 * PARTITIONS + 1
    assert all(one.subscriptions.list("q").values())
    assert set(one.owners.list()) == CLAIMS
    left_ms = one.confirm() - SYSTEM_CLOCK.monotonic_ms()
    assert 0 < left_ms <= SESSION_MS


def test_who_owns_little_has_one_session(open_session: Open, nodes: RawNodes) -> None:
    one = open_session()
    one.workers.register(WorkerRecord("w", HERE, "rs"), fail)
    assert one.owners.claim("w", [PartitionKey("q", 0)])
    assert len(members(one)) == len(nodes.owners()) == 1


def test_with_its_end_all_disappears_at_once(open_session: Open, nodes: RawNodes) -> None:
    one = open_session()
    fill(one)
    one.close()
    assert nodes.owners() == {}


@pytest.mark.thorough("waits for a session to end")
def test_after_its_process_was_killed_all_disappears(
    open_session: Open, nodes: RawNodes, zookeeper: str, root: str
) -> None:
    create_checkpoints(open_session())
    environment = {
        **{k: v for k, v in os.environ.items() if not k.startswith("HQUEUE_")},
        "HQUEUE_CONFIG": os.devnull,
        "HQUEUE_ZOOKEEPER": zookeeper,
        "HQUEUE_ZOOKEEPER_ROOT": root,
        "HQUEUE_ZOOKEEPER_SESSION_TIMEOUT_MS": str(SESSION_MS),
    }
    with (
        Program("be_present", "subscriber", PARTITIONS, BYTES_MAX, environment=environment) as one,
        Program("be_present", "worker", PARTITIONS, BYTES_MAX, environment=environment) as other,
    ):
        one.await_ready()
        other.await_ready()
        assert len(nodes.owners()) > 4
    wait_for(lambda: not nodes.owners(), "all of it has disappeared")


@pytest.mark.parametrize("member", [0, 2])
def test_when_one_of_its_sessions_ends_all_end_and_what_was_registered_comes_back(
    open_session: Open, nodes: RawNodes, member: int
) -> None:
    one = open_session()
    fill(one)
    before = nodes.owners()
    states: list[SessionState] = []
    one.on_state(states.append)
    expire(one.store, member)

    def back() -> bool:
        now = nodes.owners()
        return not set(now) & set(before) and sum(map(len, now.values())) == 2 * PARTITIONS + 1

    wait_for(back, "all that was registered is there again, by other sessions")
    assert SessionState.LOST in states
    assert states[-1] is SessionState.CONNECTED
    assert one.owners.list() == {}, "claims are not made again"
    assert one.owners.claim("w", CLAIMS) == CLAIMS
    one.confirm()


def test_while_one_of_its_sessions_is_cut_off_it_is_suspended_and_not_confirmed(
    open_session: Open, nodes: RawNodes, zookeeper: str
) -> None:
    one = open_session()
    fill(one)
    before = nodes.owners()
    states: list[SessionState] = []
    one.on_state(states.append)
    with cut_off(members(one)[2], zookeeper):
        wait_for(lambda: one.state is SessionState.SUSPENDED, "it notices")
        with pytest.raises(StoreUnavailableError):
            one.confirm()
        assert set(one.owners.list()) == CLAIMS, "reads need the primary only"
    wait_for(lambda: one.state is SessionState.CONNECTED, "it is back")
    assert nodes.owners() == before
    assert states == [SessionState.CONNECTED, SessionState.SUSPENDED, SessionState.CONNECTED]
    one.confirm()


@pytest.mark.thorough("waits for a session to end")
def test_when_one_of_its_sessions_stays_cut_off_the_others_do_not_stay_without_it(
    open_session: Open, nodes: RawNodes, zookeeper: str
) -> None:
    one = open_session()
    fill(one)
    before = nodes.owners()
    states: list[SessionState] = []
    one.on_state(states.append)
    with cut_off(members(one)[2], zookeeper):
        wait_for(lambda: SessionState.LOST in states, "it is lost")
        wait_for(lambda: not set(nodes.owners()) & set(before), "all of it has disappeared")
        wait_for(
            lambda: sum(map(len, nodes.owners().values())) == 2 * PARTITIONS + 1,
            "what was registered is there again",
        )
    assert one.owners.list() == {}


def test_released_claims_make_room_for_others(open_session: Open) -> None:
    one = open_session()
    for first in range(0, 5 * PARTITIONS, PARTITIONS):
        claims = {PartitionKey("q", first + number) for number in range(PARTITIONS)}
        assert one.owners.claim("w", claims) == claims
        assert counted(one) > BYTES_MAX
        one.owners.release(claims)
        assert counted(one) == 0
    assert len(members(one)) == 2


def test_what_another_has_takes_no_room(open_session: Open) -> None:
    one, other = open_session(), open_session()
    assert one.owners.claim("w", CLAIMS) == CLAIMS
    assert other.owners.claim("w2", CLAIMS) == set()
    assert counted(other) == 0


def test_a_closed_registration_makes_room(open_session: Open) -> None:
    one = open_session()
    create_checkpoints(one)
    presence = Presence(HERE)
    for _ in range(3):
        registration = one.subscriptions.register("q", "s", presence, range(PARTITIONS), fail)
        assert counted(one) > BYTES_MAX
        many = len(members(one))
        registration.close()
        assert counted(one) == 0
    assert len(members(one)) == many


@pytest.mark.parametrize("fate", [Fate.LOSE_REQUEST, Fate.LOSE_ANSWER])
def test_claims_whose_answers_were_lost_are_claimed_and_counted_once(
    open_session: Open, nodes: RawNodes, zookeeper: str, fate: Fate
) -> None:
    with zookeeper_proxy(zookeeper) as proxy:
        one = open_session(zookeeper=f"127.0.0.1:{proxy.port}")
        assert one.owners.claim("w", CLAIMS) == CLAIMS
        one.owners.release(CLAIMS)
        fates = [fate]
        proxy.fate = lambda method: fates.pop() if fates else Fate.PASS
        assert one.owners.claim("w", CLAIMS) == CLAIMS
        owners = nodes.owners()
        assert counted(one) == sum(4 + len(path) for paths in owners.values() for path in paths)
        assert max(sum(4 + len(p) for p in paths) for paths in owners.values()) <= BYTES_MAX


def test_a_further_session_that_lasts_less_long_withdraws_what_was_confirmed(
    open_session: Open,
) -> None:
    one = open_session()
    fill(one)
    states: list[SessionState] = []
    one.on_state(states.append)
    # As a server with a lower bound would grant it.
    one.store.session.members._granted(members(one)[2], SESSION_MS // 2)
    assert states == [SessionState.CONNECTED, SessionState.SUSPENDED, SessionState.CONNECTED]
    assert one.confirm() - SYSTEM_CLOCK.monotonic_ms() <= SESSION_MS // 2

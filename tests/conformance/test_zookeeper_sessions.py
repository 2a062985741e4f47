"""Sessions with ZooKeeper that end, are cut off, or lose answers."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from kazoo.client import KazooClient

from hqueue import HQueueError, MessageID, Settings, StoreUnavailableError
from hqueue.errors import CheckpointMovedError, SubscriberConnectedError
from hqueue.metadata import (
    Address,
    PartitionKey,
    Presence,
    SessionState,
    SubscriptionKey,
    WorkerRecord,
)
from hqueue.zookeeper import ZooKeeperCoordination
from tests.support.proxy import Fate, Proxy
from tests.support.waiting import wait_for
from tests.support.zookeeper_faults import cut, expire, zookeeper_proxy

HERE, THERE = Address("127.0.0.1", 5_001), Address("127.0.0.1", 5_002)
KEY = SubscriptionKey("q", 0, "s")
SESSION_MS = 2_000

Open = Callable[..., ZooKeeperCoordination]
View = Mapping[SubscriptionKey, Presence]


@pytest.fixture
def root() -> str:
    return f"/hqueue-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def open_session(zookeeper: str, root: str) -> Iterator[Open]:
    """Opens sessions below one root; they are closed after the test."""
    opened: list[ZooKeeperCoordination] = []

    def open_one(**changes: object) -> ZooKeeperCoordination:
        settings = {
            "zookeeper": zookeeper,
            "zookeeper_root": root,
            "zookeeper_session_timeout_ms": SESSION_MS,
            "operation_timeout_ms": 20_000,
            **changes,
        }
        opened.append(ZooKeeperCoordination(Settings(**settings)))
        return opened[-1]

    yield open_one
    for coordination in opened:
        coordination.close()


@pytest.fixture
def proxy(zookeeper: str) -> Iterator[Proxy]:
    with zookeeper_proxy(zookeeper) as found:
        yield found


def through(proxy: Proxy) -> dict[str, object]:
    return {"zookeeper": f"127.0.0.1:{proxy.port}"}


def fail(error: HQueueError) -> None:
    raise AssertionError(f"a registration failed: {error}")


def become_present(
    coordination: ZooKeeperCoordination,
    count: int = 1,
    on_failure: Callable[[HQueueError], None] = fail,
) -> None:
    keys = [SubscriptionKey("q", partition, "s") for partition in range(count)]
    coordination.checkpoints.create(dict.fromkeys(keys, MessageID(0)))
    coordination.subscriptions.register("q", "s", Presence(HERE), range(count), on_failure)


def test_after_a_session_ended_presence_is_made_anew_and_claims_are_not(
    open_session: Open,
) -> None:
    one, other = open_session(), open_session()
    states: list[SessionState] = []
    views: list[View] = []
    become_present(one, 3)
    worker = WorkerRecord("w", HERE, "rs")
    one.workers.register(worker, fail)
    claimed = PartitionKey("q", 0)
    one.owners.claim("w", [claimed])
    one.on_state(states.append)
    one.subscriptions.watch(views.append)
    wait_for(lambda: views and len(views[-1]) == 3, "the first view")
    before = other.subscriptions.list("q")

    expire(one.store)

    def made_anew() -> bool:
        now = other.subscriptions.list("q")
        return all(p and p.revision > (before[key] or p).revision for key, p in now.items())

    wait_for(made_anew, "it is present again")
    wait_for(lambda: other.workers.list() == {"w": worker}, "the worker is present again")
    wait_for(lambda: views[-1] == other.subscriptions.list("q"), "its own watch sees it")
    assert SessionState.LOST in states
    assert states[-1] is SessionState.CONNECTED
    assert other.owners.list() == {}
    assert one.owners.claim("w", [claimed]) == {claimed}


def test_a_cut_that_is_shorter_than_the_session_changes_nothing(
    open_session: Open, proxy: Proxy
) -> None:
    one, other = open_session(**through(proxy)), open_session()
    states: list[SessionState] = []
    views: list[View] = []
    become_present(one, 3)
    one.owners.claim("w", [PartitionKey("q", 0)])
    one.on_state(states.append)
    other.subscriptions.watch(views.append)
    wait_for(lambda: views, "the first view")
    before = other.subscriptions.list("q")
    with cut(proxy):
        wait_for(lambda: one.state is SessionState.SUSPENDED, "it notices")
    wait_for(lambda: one.state is SessionState.CONNECTED, "it is back")
    assert one.subscriptions.list("q") == before
    assert other.owners.list() == {PartitionKey("q", 0): "w"}
    assert states == [SessionState.CONNECTED, SessionState.SUSPENDED, SessionState.CONNECTED]
    assert all(view == before for view in views)


def test_a_session_that_is_cut_off_has_no_id_and_has_one_again_when_it_is_not(
    open_session: Open, proxy: Proxy
) -> None:
    store = open_session(**through(proxy)).store
    store.records.create({"/top": b""})
    assert store.session_id is not None
    with cut(proxy):
        wait_for(lambda: store.session_id is None, "it is not connected")
    wait_for(lambda: store.session_id is not None, "it is connected again")


def test_a_watch_goes_on_after_a_cut_and_sees_what_it_missed(
    open_session: Open, proxy: Proxy
) -> None:
    one, other = open_session(**through(proxy)), open_session()
    views: list[View] = []
    one.subscriptions.watch(views.append)
    wait_for(lambda: views, "the first view")
    with cut(proxy):
        wait_for(lambda: one.state is SessionState.SUSPENDED, "it notices")
        become_present(other, 2)
        assert not views[-1], "the last view stands"
    wait_for(lambda: len(views[-1]) == 2, "it sees what came in between")
    other.close()
    wait_for(lambda: not views[-1], "and what comes afterwards")


def test_a_cut_that_outlasts_the_session_is_told_as_lost_before_it_ends(
    open_session: Open, proxy: Proxy
) -> None:
    one, other = open_session(**through(proxy)), open_session()
    become_present(one)
    with cut(proxy):
        wait_for(lambda: one.state is SessionState.LOST, "it knows without a report")
        wait_for(lambda: other.subscriptions.list("q") == {KEY: None}, "it has disappeared")
    wait_for(lambda: other.subscriptions.list("q")[KEY], "it is present again")
    assert one.state is SessionState.CONNECTED


@pytest.mark.thorough("waits for a session to end, 8 s")
def test_who_comes_back_and_finds_another_in_its_place_is_told_so(
    open_session: Open, proxy: Proxy
) -> None:
    one, other = open_session(**through(proxy)), open_session()
    failures: list[HQueueError] = []
    become_present(one, on_failure=failures.append)
    with cut(proxy):
        other.subscriptions.register("q", "s", Presence(THERE), [0], fail)
    wait_for(lambda: failures, "the failure is reported")
    assert isinstance(failures[0], SubscriberConnectedError)
    present = other.subscriptions.list("q")[KEY]
    assert present is not None
    assert present.address == THERE


@pytest.mark.thorough("waits for the bound itself, 6 s")
def test_while_cut_off_an_operation_fails_in_its_time_and_not_earlier(
    open_session: Open, proxy: Proxy
) -> None:
    one = open_session(**through(proxy), operation_timeout_ms=1_000)
    known = one.checkpoints.create({KEY: MessageID(0)})[KEY]
    operations: list[Callable[[], object]] = [
        lambda: one.checkpoints.read(KEY),
        lambda: one.checkpoints.compare_and_set(KEY, known, MessageID(1)),
        one.subscriptions.list,
        lambda: one.subscriptions.register("q", "s", Presence(HERE), [0], fail),
        lambda: one.owners.claim("w", [PartitionKey("q", 0)]),
    ]
    with cut(proxy):
        for operation in operations:
            began = time.monotonic()
            with pytest.raises(StoreUnavailableError):
                operation()
            assert 0.9 < time.monotonic() - began < 60
    wait_for(lambda: one.state is SessionState.CONNECTED, "it is back")
    assert one.checkpoints.read(KEY) == known


@pytest.mark.parametrize("fate", [Fate.LOSE_REQUEST, Fate.LOSE_ANSWER, Fate.HANG])
def test_a_checkpoint_whose_answer_was_lost_is_moved_exactly_once(
    open_session: Open, proxy: Proxy, fate: Fate
) -> None:
    one, other = open_session(**through(proxy), request_timeout_ms=500), open_session()
    known = one.checkpoints.create({KEY: MessageID(0)})[KEY]
    for number in range(1, 4):
        fates = [fate]
        proxy.fate = lambda method, fates=fates: fates.pop() if fates else Fate.PASS  # type: ignore[misc]
        known = one.checkpoints.compare_and_set(KEY, known, MessageID(number))
        assert not fates
        assert other.checkpoints.read(KEY) == known
    assert known.revision == 3


def test_a_checkpoint_that_another_moved_while_the_answer_was_lost_is_not_taken_for_ones_own(
    open_session: Open, proxy: Proxy
) -> None:
    one, other = open_session(**through(proxy)), open_session()
    known = one.checkpoints.create({KEY: MessageID(0)})[KEY]
    other.checkpoints.compare_and_set(KEY, known, MessageID(7))
    fates = [Fate.LOSE_ANSWER]
    proxy.fate = lambda method: fates.pop() if fates else Fate.PASS
    with pytest.raises(CheckpointMovedError):
        one.checkpoints.compare_and_set(KEY, known, MessageID(5))
    moved = other.checkpoints.read(KEY)
    assert moved is not None
    assert moved.next == MessageID(7)


def test_without_a_zookeeper_every_operation_says_so_in_its_time(open_session: Open) -> None:
    one = open_session(zookeeper="127.0.0.1:1", operation_timeout_ms=1_000)
    began = time.monotonic()
    with pytest.raises(StoreUnavailableError):
        one.subscriptions.list()
    assert 0.9 < time.monotonic() - began < 60
    views: list[View] = []
    watch = one.subscriptions.watch(views.append)
    watch.close()
    one.close()
    assert not views


def test_a_record_that_can_not_be_read_is_left_out_and_logged(
    open_session: Open, zookeeper: str, root: str, caplog: pytest.LogCaptureFixture
) -> None:
    one = open_session()
    views: list[View] = []
    become_present(one)
    foreign = KazooClient(zookeeper)
    foreign.start()
    try:
        node = f"{root}/queues/q/0/foreign"
        foreign.create(node, b'{"version": 1, "next": "0-0"}')
        foreign.create(f"{node}/address", b'{"version": 2}', ephemeral=True)
        foreign.create(f"{root}/queues/not a queue", b"")
        foreign.create(f"{root}/queues/q/x/y/address", b"?", makepath=True)
        with caplog.at_level(logging.WARNING):
            assert one.subscriptions.list("q") == {
                KEY: one.subscriptions.list("q")[KEY],
                SubscriptionKey("q", 0, "foreign"): None,
            }
        assert f"path='{node}/address', version=2" in caplog.text
        one.subscriptions.watch(views.append)
        wait_for(lambda: views, "the view")
        assert list(views[-1]) == [KEY]
        foreign.set(f"{node}/address", b'{"version": 1, "address": "127.0.0.1:9"}')
        wait_for(lambda: len(views[-1]) == 2, "it is seen when it can be read")
    finally:
        foreign.stop()
        foreign.close()


@pytest.mark.thorough("a thousand registrations, 12 s")
def test_a_thousand_subscribed_partitions_cost_no_requests_while_nothing_changes(
    open_session: Open, proxy: Proxy
) -> None:
    one = open_session(**through(proxy), zookeeper_session_timeout_ms=10_000)
    views: list[View] = []
    one.subscriptions.watch(views.append)
    become_present(one, 1_000)
    wait_for(lambda: views and len(views[-1]) == 1_000, "all are seen")
    proxy.reset()
    ends = time.monotonic() + 4
    wait_for(lambda: time.monotonic() > ends, "four seconds are over")
    assert proxy.calls.total() <= 3, "no more than signs of life"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_connection_that_kazoo_gave_up_is_replaced(open_session: Open) -> None:
    one, other = open_session(), open_session()
    views: list[View] = []
    one.subscriptions.watch(views.append)
    one.workers.register(WorkerRecord("w", HERE, "rs"), fail)
    wait_for(lambda: views, "the first view")

    def broken(timeout: float) -> object:
        raise RuntimeError("bytes that are no answer")

    (member,) = one.store.session.members
    kazoo: Any = member.client
    kazoo._connection._read_socket = broken
    claimed = PartitionKey("q", 0)
    assert one.owners.claim("w", [claimed]) == {claimed}
    assert member not in list(one.store.session.members)
    become_present(other, 2)
    wait_for(lambda: len(views[-1]) == 2, "its watch goes on")
    wait_for(lambda: list(other.workers.list()) == ["w"], "what it registered is there")


def test_a_closed_session_leaves_no_thread(open_session: Open) -> None:
    before = set(threading.enumerate())
    one = open_session()
    views: list[View] = []
    one.subscriptions.watch(views.append)
    become_present(one, 2)
    wait_for(lambda: views and len(views[-1]) == 2, "the view")
    one.close()
    wait_for(lambda: set(threading.enumerate()) <= before, "its threads have ended")

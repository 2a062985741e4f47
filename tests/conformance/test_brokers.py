"""What every coordination service must do: clusters and their queues, registered by a session."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import pytest

from hqueue import ClosedError, InvalidInputError, SettingsError
from hqueue.metadata import Address, BrokerRecord, Coordination
from hqueue.runtime.loop import blocking
from tests.conformance.conftest import Open
from tests.support.waiting import wait_for

HERE = BrokerRecord(Address("127.0.0.1", 5_001), "cluster-a")
OTHERS = BrokerRecord(Address("127.0.0.1", 5_002), "cluster-b")


def no_cluster() -> str:
    raise AssertionError("nobody has registered the ID: the own cluster plays no part")


def test_of_many_workers_one_registers_the_cluster_and_another_after_its_session(
    open_coordination: Open,
) -> None:
    sessions = [open_coordination() for _ in range(4)]
    with ThreadPoolExecutor(len(sessions)) as pool:
        held = list(pool.map(lambda each: each.brokers.claim(0, HERE), sessions))
    assert held.count(True) == 1
    first = sessions.pop(held.index(True))
    assert first.brokers.claim(0, HERE), "what this session has already is its own"
    assert sessions[0].brokers.list() == {0: HERE}
    first.close()
    wait_for(lambda: sessions[0].brokers.claim(0, HERE), "another takes over", timeout_s=20)
    assert [each.brokers.claim(0, HERE) for each in sessions] == [True, False, False]


def test_who_registered_a_cluster_takes_it_back_and_nobody_else(open_coordination: Open) -> None:
    one, other = open_coordination(), open_coordination()
    assert one.brokers.claim(7, HERE)
    other.brokers.release(7)
    assert other.brokers.list() == {7: HERE}
    one.brokers.release(7)
    one.brokers.release(7)
    assert other.brokers.list() == {}
    assert other.brokers.claim(7, OTHERS)


def test_an_id_that_another_cluster_registered_is_refused_with_all_that_mends_it(
    open_coordination: Open,
) -> None:
    one, other = open_coordination(), open_coordination()
    other.brokers.check(3, blocking(no_cluster))
    assert one.brokers.claim(3, HERE)
    other.brokers.check(3, "cluster-a")
    other.brokers.check(4, blocking(no_cluster))
    with pytest.raises(SettingsError, match=r"broker_id of its own") as caught:
        other.brokers.check(3, "cluster-b")
    error = caught.value
    assert (error.broker_id, error.registered_cluster, error.own_cluster) == (
        3,
        "cluster-a",
        "cluster-b",
    )
    assert error.registered_by == "127.0.0.1:5001"
    one.brokers.release(3)
    other.brokers.check(3, blocking(no_cluster))


def test_queues_are_registered_beside_those_of_other_clusters(open_coordination: Open) -> None:
    one, other = open_coordination(), open_coordination()
    assert one.brokers.claim_queues(0, {"q": 4, "ns:q": 1}) == {"q", "ns:q"}
    assert other.brokers.claim_queues(1, {"q": 2}) == {"q"}
    assert other.brokers.claim_queues(0, {"q": 9, "more": 3}) == {"more"}
    assert one.brokers.claim_queues(0, {"q": 4}) == {"q"}
    assert one.brokers.list_queues() == {
        ("q", 0): 4,
        ("ns:q", 0): 1,
        ("q", 1): 2,
        ("more", 0): 3,
    }


def test_a_watch_tells_of_queues_that_come_go_and_have_other_partitions(
    open_coordination: Open,
) -> None:
    one, other = open_coordination(), open_coordination()
    told: list[Mapping[tuple[str, int], int]] = []
    watch = other.brokers.watch_queues(told.append)
    wait_for(lambda: told and told[-1] == {}, "the empty view")
    one.brokers.claim_queues(0, {"a": 4, "b": 1})
    wait_for(lambda: told[-1] == {("a", 0): 4, ("b", 0): 1}, "both queues")
    other.brokers.claim_queues(1, {"a": 2})
    wait_for(lambda: ("a", 1) in told[-1], "another cluster's")
    one.brokers.release_queues(0, ["a", "b", "never"])
    one.brokers.release_queues(0, ["a"])
    wait_for(lambda: told[-1] == {("a", 1): 2}, "the first two are gone")
    one.brokers.claim_queues(0, {"a": 8})
    wait_for(lambda: told[-1] == {("a", 0): 8, ("a", 1): 2}, "one is back, with more")
    one.close()
    wait_for(lambda: told[-1] == {("a", 1): 2}, "it went with its session")
    watch.close()


def test_a_watch_tells_who_is_registered(open_coordination: Open) -> None:
    one, other = open_coordination(), open_coordination()
    told: list[Mapping[int, BrokerRecord]] = []
    watch = other.brokers.watch(told.append)
    wait_for(lambda: told and told[-1] == {}, "nobody")
    one.brokers.claim(5, HERE)
    wait_for(lambda: told[-1] == {5: HERE}, "one")
    one.close()
    wait_for(lambda: told[-1] == {}, "gone with its session")
    watch.close()


def test_a_queue_of_a_name_that_can_not_be_is_refused(coordination: Coordination) -> None:
    with pytest.raises(InvalidInputError):
        coordination.brokers.claim_queues(0, {"a/b": 1})
    assert coordination.brokers.list_queues() == {}


def test_after_the_end_of_its_session_nothing_is_registered(coordination: Coordination) -> None:
    coordination.brokers.list()
    coordination.close()
    for operation in (
        lambda: coordination.brokers.claim(0, HERE),
        lambda: coordination.brokers.claim_queues(0, {"q": 1}),
        coordination.brokers.list_queues,
    ):
        with pytest.raises(ClosedError):
            operation()

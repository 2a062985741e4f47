"""Push delivery while things die: subscribers, sessions, gateways and ZooKeeper's answers."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator

import pytest

import hqueue
from hqueue import DeliveryOptions, Subscription, local
from hqueue.metadata import SessionState, SubscriptionKey
from tests.support.waiting import wait_for
from tests.support.writing import whole_again
from tests.support.zookeeper_faults import cut, expire, zookeeper_proxy

from .pushing import (
    SESSION_MS,
    Received,
    Stuck,
    WorkerProcess,
    WorkerThread,
    checkpoint,
    put_numbers,
)
from .running import Program

Make = Callable[..., hqueue.Queue]
Start = Callable[..., WorkerProcess]


@pytest.fixture
def workers_client(server: local.LocalServer, pushing: hqueue.Client) -> Iterator[hqueue.Client]:
    """A client for a worker in this process."""
    settings = server.settings(
        zookeeper_root=pushing.settings.zookeeper_root, zookeeper_session_timeout_ms=SESSION_MS
    )
    with hqueue.connect(settings) as connected:
        yield connected


@pytest.fixture
def subscribing(server_environment: dict[str, str], pushing: hqueue.Client) -> dict[str, str]:
    """The environment of a subscriber's process."""
    return {
        **server_environment,
        "HQUEUE_ZOOKEEPER_ROOT": pushing.settings.zookeeper_root,
        "HQUEUE_ZOOKEEPER_SESSION_TIMEOUT_MS": str(SESSION_MS),
    }


def present(client: hqueue.Client, queue: hqueue.Queue, name: str) -> bool:
    found = client.coordination.subscriptions.list(queue.name)
    return found.get(SubscriptionKey(queue.name, 0, name)) is not None


@pytest.mark.thorough("waits for a session to end; see `make test-faults`")
def test_a_subscriber_that_was_killed_finds_its_checkpoint_when_it_comes_back(
    make: Make, start: Start, pushing: hqueue.Client, subscribing: dict[str, str]
) -> None:
    queue = make(1)
    start(checkpoint_ms=50)
    environment = {**subscribing, "HQUEUE_ZOOKEEPER_SESSION_TIMEOUT_MS": "15000"}
    with Program("subscribe", queue.name, "s", 0, environment=environment) as program:
        program.await_ready()
        values = put_numbers(queue, range(20))
        last = queue.offsets()[0].end
        wait_for(lambda: checkpoint(pushing, queue, 0, "s") >= last, "the checkpoint is written")
        os.kill(program.pid, signal.SIGKILL)
    other = Received()
    with queue.subscriber(Subscription("other"), other):
        more = put_numbers(queue, range(20, 40))
        other.await_values(values + more)
        assert present(pushing, queue, "s"), "one that is dead delays no other"
    wait_for(lambda: not present(pushing, queue, "s"), "its session is over")
    got = Received()
    with queue.subscriber(Subscription("s"), got):
        got.await_values(more)
    assert got.values == more


@pytest.mark.thorough("waits for bounds, 17 s; see `make test-faults`")
def test_a_subscriber_that_stands_still_gets_the_same_messages_again(
    make: Make, start: Start, pushing: hqueue.Client, subscribing: dict[str, str]
) -> None:
    queue = make(1)
    start(checkpoint_ms=50)
    got = Received()
    with Program("subscribe", queue.name, "s", 0, environment=subscribing) as program:
        program.await_ready()
        os.kill(program.pid, signal.SIGSTOP)
        try:
            values = put_numbers(queue, range(20))
            wait_for(lambda: not present(pushing, queue, "s"), "its session is over")
            with queue.subscriber(Subscription("s"), got):
                got.await_values(values)
        finally:
            os.kill(program.pid, signal.SIGCONT)
    assert got.values == values


def test_a_worker_whose_session_expires_claims_again_and_goes_on(
    make: Make, workers_client: hqueue.Client
) -> None:
    queue = make(2)
    got = Received()
    with (
        WorkerThread(workers_client, checkpoint_ms=50),
        queue.subscriber(Subscription("s"), got),
    ):
        values = put_numbers(queue, range(20))
        got.await_values(values)
        for first in (20, 40):
            expire(workers_client.coordination.store)  # type: ignore[arg-type]
            more = put_numbers(queue, range(first, first + 20))
            got.await_values(more)
            values += more
    assert set(got.values) == set(values)
    got.check_order()


def test_a_worker_that_is_suspended_waits_and_drops_nothing(
    make: Make, server: local.LocalServer, pushing: hqueue.Client
) -> None:
    queue = make(1)
    got = Received()
    with zookeeper_proxy(server.zookeeper) as proxy:
        settings = server.settings(
            zookeeper=f"127.0.0.1:{proxy.port}",
            zookeeper_root=pushing.settings.zookeeper_root,
            zookeeper_session_timeout_ms=20_000,
        )
        with (
            hqueue.connect(settings) as client,
            WorkerThread(client, checkpoint_ms=50),
            queue.subscriber(Subscription("s"), got),
        ):
            values = put_numbers(queue, range(10))
            got.await_values(values)
            owners = pushing.coordination.owners.list()
            with cut(proxy):
                wait_for(
                    lambda: client.coordination.state is SessionState.SUSPENDED, "it is suspended"
                )
                more = put_numbers(queue, range(10, 20))
            got.await_values(more)
            assert pushing.coordination.owners.list() == owners
    assert got.values == values + more


@pytest.mark.in_memory_first
def test_a_listener_that_never_answers_holds_up_its_own_messages_only(
    make: Make, start: Start
) -> None:
    queue = make(1)
    start()
    stuck, other = Stuck(), Received()
    options = DeliveryOptions(timeout_ms=500, backoff_ms_max=200)
    with queue.subscriber(Subscription("other"), other):
        subscriber = queue.subscriber(Subscription("stuck", delivery=options), stuck)
        subscriber.start()
        try:
            values = put_numbers(queue, range(25))
            wait_for(lambda: stuck.calls, "the listener that never answers was called")
            other.await_values(values + put_numbers(queue, range(25, 50)))
            assert len(stuck.calls) == 1
        finally:
            stuck.released.set()
            subscriber.stop()


@pytest.mark.thorough("gateways are restarted; see `make test-faults`")
def test_delivery_goes_on_when_the_gateways_come_back(
    make: Make, start: Start, server: local.LocalServer
) -> None:
    queue = make(2)
    start()
    got = Received()
    with queue.subscriber(Subscription("s"), got), whole_again(server):
        values = put_numbers(queue, range(20))
        got.await_values(values)
        server.kill("thrift1")
        more = put_numbers(queue, range(20, 40))
        server.restart("thrift1")
        got.await_values(more, timeout_s=120)
    assert got.values.count(values[0]) == 1
    assert sorted(got.values) == sorted(values + more)
    assert got.check_order() == 0

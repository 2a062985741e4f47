"""Subscribers of real queues, in a real ZooKeeper; what a worker does is done by hand."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import datetime
import json
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Sequence

import pytest
from kazoo.client import KazooClient
from thriftpy2.transport import TTransportException

import hqueue
from hqueue import (
    ClosedError,
    HQueueError,
    InvalidInputError,
    Message,
    MessageID,
    MessageListener,
    PartitionLag,
    ReceivedMessage,
    Status,
    Subscription,
    local,
)
from hqueue.errors import SubscriberConnectedError, SubscriberExistsError, SubscriberNotFoundError
from hqueue.metadata import Coordination, SubscriptionKey
from tests.support.delivering import Delivering
from tests.support.waiting import wait_for
from tests.support.zookeeper_faults import cut, expire, zookeeper_proxy

from .running import Program

MakeQueue = Callable[..., hqueue.Queue]
SESSION_MS = 2_000


@pytest.fixture
def client(server: local.LocalServer) -> Iterator[hqueue.Client]:
    """A client whose sessions with ZooKeeper end soon after it."""
    settings = server.settings(zookeeper_session_timeout_ms=SESSION_MS)
    with hqueue.connect(settings) as connected:
        yield connected


@pytest.fixture
def zookeeper(server: local.LocalServer) -> Iterator[KazooClient]:
    """ZooKeeper without hqueue."""
    kazoo = KazooClient(server.zookeeper)
    kazoo.start()
    yield kazoo
    kazoo.stop()
    kazoo.close()


@pytest.fixture
def environment(server_environment: dict[str, str]) -> dict[str, str]:
    return {**server_environment, "HQUEUE_ZOOKEEPER_SESSION_TIMEOUT_MS": str(SESSION_MS)}


def nothing(messages: Sequence[ReceivedMessage]) -> None:
    """A listener."""


def checkpoints(client: hqueue.Client, queue: hqueue.Queue, name: str) -> dict[int, MessageID]:
    keys = [SubscriptionKey(queue.name, number, name) for number in range(queue.partitions)]
    found = client.coordination.checkpoints.read_many(keys)
    return {key.partition: checkpoint.next for key, checkpoint in found.items()}


def present(coordination: Coordination, queue: hqueue.Queue, name: str) -> list[int]:
    listed = coordination.subscriptions.list(queue.name)
    return [key.partition for key, p in listed.items() if p and key.subscriber == name]


class BlackHoleMessageListener(MessageListener):
    """That of the example of Alibaba's HQueue."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.swallowed: list[ReceivedMessage] = []

    def consume(self, messages: Sequence[ReceivedMessage]) -> Status:
        self.swallowed.extend(messages)
        return Status.DONE


def test_the_example_of_alibabas_hqueue_writes_what_is_described_there_and_takes_it_away(
    make_queue: MakeQueue, zookeeper: KazooClient
) -> None:
    queue = make_queue(4)
    for number in range(3):
        queue.put([Message("topic_1", b"a"), Message("topic_2", b"b")], partition=number)
    subscription = Subscription("subscriber_1", {"topic_1", "topic_2", "topic_3"})
    subscription.add_partitions({0: None, 1: None, 2: None})
    listener = BlackHoleMessageListener("subscriber_1")
    subscriber = queue.subscriber(subscription, [listener])
    node = f"/hqueue/queues/{queue.name}"
    assert not zookeeper.exists(node)
    subscriber.start()
    try:
        assert sorted(zookeeper.get_children(node)) == ["0", "1", "2"]
        for number in range(3):
            below = f"{node}/{number}/subscriber_1"
            assert json.loads(zookeeper.get(below)[0]) == {"version": 1, "next": "0-0"}
            assert sorted(zookeeper.get_children(below)) == ["address", "topics"]
            address, stat = zookeeper.get(f"{below}/address")
            assert json.loads(address) == {"version": 1, "address": str(subscriber.address)}
            assert stat.ephemeralOwner
            topics, stat = zookeeper.get(f"{below}/topics")
            assert json.loads(topics)["topics"] == ["topic_1", "topic_2", "topic_3"]
            assert stat.ephemeralOwner
        with Delivering(subscriber.address) as worker:
            for number in range(3):
                assert worker.deliver(queue.scan(partition=number)) == 0
        assert [m.value for m in listener.swallowed] == [b"a", b"b"] * 3
        assert listener.swallowed == list(queue.scan())
    finally:
        assert subscriber.stop("Time out, request to stop subscriber:subscriber_1")
    for number in range(3):
        assert zookeeper.get_children(f"{node}/{number}/subscriber_1") == []
    assert subscriber.stop() is True


def test_each_partition_begins_where_it_was_told_and_a_checkpoint_wins(
    client: hqueue.Client, make_queue: MakeQueue
) -> None:
    queue = make_queue(5)
    for number in range(5):
        queue.put([Message("t", b"a"), Message("t", b"b")], partition=number)
    offsets = {each.partition: each.end for each in queue.offsets()}
    moment = datetime.datetime(2024, 5, 1, tzinfo=datetime.timezone.utc)
    wanted = Subscription("s", start="latest").add_partition(0).add_partition(1, "earliest")
    wanted.add_partition(2, moment).add_partition(3, MessageID(7, 8))
    expected = {
        0: offsets[0],
        1: MessageID(0),
        2: MessageID(int(moment.timestamp() * 1_000)),
        3: MessageID(7, 8),
    }
    with queue.subscriber(wanted, nothing):
        assert checkpoints(client, queue, "s") == expected
    with queue.subscriber(Subscription("s", start=MessageID(9)), nothing) as subscriber:
        assert subscriber.partitions == [0, 1, 2, 3, 4]
        assert checkpoints(client, queue, "s") == {**expected, 4: MessageID(9)}
    with queue.subscriber(Subscription("s", start="latest", reset=True), nothing):
        assert checkpoints(client, queue, "s") == offsets


def test_a_second_subscriber_of_a_name_is_refused_and_leaves_nothing(
    client: hqueue.Client, make_queue: MakeQueue
) -> None:
    queue = client.queue(make_queue(2).name)
    with queue.subscriber(Subscription("s").add_partition(0), nothing) as first:
        second = queue.subscriber(Subscription("s"), nothing)
        with pytest.raises(SubscriberConnectedError):
            second.start()
        assert present(client.coordination, queue, "s") == [0]
        with Delivering(first.address) as worker:
            assert worker.deliver([ReceivedMessage("t", b"v", MessageID(1), 0)]) == 0
        with pytest.raises(TTransportException):
            Delivering(second.address)
    with pytest.raises(ClosedError):
        second.start()


@pytest.mark.thorough("waits for a session to end; `test_push` has another such")
def test_one_that_was_killed_disappears_and_the_next_finds_its_checkpoint(
    client: hqueue.Client, make_queue: MakeQueue, environment: dict[str, str]
) -> None:
    queue = client.queue(make_queue().name)
    key = SubscriptionKey(queue.name, 0, "s")
    with Program("subscribe", queue.name, "s", 0, environment=environment) as program:
        program.await_ready()
        known = client.coordination.checkpoints.read(key)
        assert known is not None
        client.coordination.checkpoints.compare_and_set(key, known, MessageID(5))
        os.kill(program.pid, signal.SIGKILL)
        wait_for(lambda: not present(client.coordination, queue, "s"), "it has disappeared")
    with queue.subscriber(Subscription("s", start="latest"), nothing):
        assert checkpoints(client, queue, "s") == {0: MessageID(5)}


def test_one_that_takes_the_place_of_a_killed_one_waits_for_nothing_at_the_same_port(
    client: hqueue.Client, make_queue: MakeQueue, environment: dict[str, str]
) -> None:
    environment = {**environment, "HQUEUE_ZOOKEEPER_SESSION_TIMEOUT_MS": "60000"}
    queue = client.queue(make_queue().name)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with Program("subscribe", queue.name, "s", port, environment=environment) as program:
        program.await_ready()
        before = client.coordination.subscriptions.list(queue.name)
    with queue.subscriber(Subscription("s"), nothing, port=port) as subscriber:
        after = client.coordination.subscriptions.list(queue.name)
        assert before != after
        assert [p.address for p in after.values() if p] == [subscriber.address]


def test_one_that_stood_still_for_too_long_disappears_and_comes_back(
    client: hqueue.Client, make_queue: MakeQueue, environment: dict[str, str]
) -> None:
    queue = client.queue(make_queue(2).name)
    with Program("subscribe", queue.name, "s", 0, environment=environment) as program:
        program.await_ready()
        os.kill(program.pid, signal.SIGSTOP)
        try:
            wait_for(lambda: not present(client.coordination, queue, "s"), "it has disappeared")
        finally:
            os.kill(program.pid, signal.SIGCONT)
        wait_for(lambda: present(client.coordination, queue, "s") == [0, 1], "it is back")
        assert program.result() == []
    assert present(client.coordination, queue, "s") == []


def test_after_its_session_ended_it_goes_on_at_the_same_address(
    client: hqueue.Client, make_queue: MakeQueue
) -> None:
    queue = client.queue(make_queue().name)
    got: list[ReceivedMessage] = []
    with queue.subscriber(Subscription("s"), got.extend) as subscriber:
        before = client.coordination.subscriptions.list(queue.name)
        expire(subscriber._reception.coordination.store)  # type: ignore[union-attr,arg-type]

        def made_anew() -> bool:
            after = client.coordination.subscriptions.list(queue.name)
            return after != before and all(after.values())

        wait_for(made_anew, "it is present again")
        (presence,) = client.coordination.subscriptions.list(queue.name).values()
        assert presence is not None
        with Delivering(presence.address) as worker:
            assert worker.deliver([ReceivedMessage("t", b"v", MessageID(1), 0)]) == 0
    assert [m.value for m in got] == [b"v"]


@pytest.mark.thorough("waits for a session to end; `test_push` has another such")
def test_whoever_waits_for_a_subscriber_learns_that_another_took_its_place(
    client: hqueue.Client, make_queue: MakeQueue
) -> None:
    name = make_queue().name
    with contextlib.ExitStack() as stack:
        proxy = stack.enter_context(zookeeper_proxy(client.settings.zookeeper))
        settings = dataclasses.replace(client.settings, zookeeper=f"127.0.0.1:{proxy.port}")
        cut_off = stack.enter_context(hqueue.connect(settings)).queue(name)
        subscriber = stack.enter_context(cut_off.subscriber(Subscription("s"), nothing))
        with cut(proxy):
            stack.enter_context(client.queue(name).subscriber(Subscription("s"), nothing))
        with pytest.raises(SubscriberConnectedError):
            subscriber.wait(60)
        assert isinstance(subscriber.failure, SubscriberConnectedError)


@pytest.mark.cluster
@pytest.mark.thorough("a ZooKeeper of a cluster is restarted")
def test_a_subscriber_outlives_a_restart_of_zookeeper(
    cluster_server: local.LocalServer, queue_name: str
) -> None:
    got: list[ReceivedMessage] = []
    with hqueue.connect(cluster_server.settings()) as client:
        queue = client.create_queue(queue_name, partitions=2)
        key = SubscriptionKey(queue.name, 0, "s")
        with queue.subscriber(Subscription("s"), got.extend) as subscriber:
            known = client.coordination.checkpoints.read(key)
            assert known is not None
            moved = client.coordination.checkpoints.compare_and_set(key, known, MessageID(7))
            cluster_server.restart("zookeeper")
            wait_for(lambda: present(client.coordination, queue, "s") == [0, 1], "it is there")
            assert client.coordination.checkpoints.read(key) == moved
            with Delivering(subscriber.address) as worker:
                assert worker.deliver([ReceivedMessage("t", b"v", MessageID(9), 0)]) == 0
            assert subscriber.failure is None
        # Where it was not connected again yet, its session has to end first.
        wait_for(lambda: present(client.coordination, queue, "s") == [], "it has disappeared")
    assert [m.value for m in got] == [b"v"]


def test_a_listener_may_ask_for_the_end_but_not_wait_for_it(make_queue: MakeQueue) -> None:
    errors: list[HQueueError] = []
    queue = make_queue()

    def listener(messages: Sequence[ReceivedMessage]) -> None:
        try:
            subscriber.stop()
        except InvalidInputError as exc:
            errors.append(exc)
        subscriber.request_stop()

    subscriber = queue.subscriber(Subscription("s"), listener)
    with subscriber:
        assert subscriber.wait(0.01) is False
        with Delivering(subscriber.address) as worker:
            assert worker.deliver([ReceivedMessage("t", b"v", MessageID(1), 0)]) == 0
        assert subscriber.wait(60) is True
    assert len(errors) == 1


def test_what_is_under_way_is_finished_before_it_stops_and_after_it_disappeared(
    client: hqueue.Client, make_queue: MakeQueue
) -> None:
    queue = client.queue(make_queue().name)
    entered, go_on = threading.Event(), threading.Event()

    async def listener(messages: Sequence[ReceivedMessage]) -> None:
        entered.set()
        while not go_on.is_set():
            await asyncio.sleep(0.01)

    subscriber = queue.subscriber(Subscription("s"), listener)
    subscriber.start()
    answers: list[int] = []

    def deliver() -> None:
        with Delivering(subscriber.address) as worker:
            answers.append(worker.deliver([ReceivedMessage("t", b"v", MessageID(1), 0)]))

    delivering = threading.Thread(target=deliver)
    delivering.start()
    assert entered.wait(30)
    drained: list[bool] = []
    stopping = threading.Thread(target=lambda: drained.append(subscriber.stop()))
    stopping.start()
    wait_for(lambda: not present(client.coordination, queue, "s"), "it disappears at once")
    assert stopping.is_alive()
    go_on.set()
    stopping.join(30)
    delivering.join(30)
    assert (answers, drained) == ([0], [True])


def test_a_port_that_is_taken_is_an_error_and_nothing_is_left(
    client: hqueue.Client, make_queue: MakeQueue
) -> None:
    queue = client.queue(make_queue().name)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        subscriber = queue.subscriber(
            Subscription("s"), nothing, port=taken.getsockname()[1], host="127.0.0.1"
        )
        with pytest.raises(InvalidInputError):
            subscriber.start()
    assert checkpoints(client, queue, "s") == {}
    assert not [t for t in threading.enumerate() if t.name.startswith("hqueue-server")]


def test_workers_are_told_the_host_that_was_given_though_it_listens_elsewhere(
    client: hqueue.Client, make_queue: MakeQueue
) -> None:
    queue = client.queue(make_queue().name)
    for options, host in (
        ({"host": "localhost", "listen_host": "127.0.0.1"}, "localhost"),
        ({"listen_host": "0.0.0.0"}, "127.0.0.1"),
    ):
        with queue.subscriber(Subscription("s"), nothing, **options) as subscriber:
            (presence,) = client.coordination.subscriptions.list(queue.name).values()
            assert presence is not None
            assert presence.address == subscriber.address
            assert presence.address.host == host
            with Delivering(presence.address) as worker:
                assert worker.deliver([ReceivedMessage("t", b"v", MessageID(1), 0)]) == 0


@pytest.mark.parametrize(
    "options",
    [{"port": -1}, {"port": 70_000}, {"calls_max": 0}, {"connections_max": 0}, {"port": "1"}],
)
def test_options_out_of_range_are_refused(make_queue: MakeQueue, options: dict[str, int]) -> None:
    with pytest.raises(InvalidInputError):
        make_queue().subscriber(Subscription("s"), nothing, **options)


def test_subscribers_are_added_listed_moved_and_deleted_while_they_are_away(
    client: hqueue.Client, make_queue: MakeQueue
) -> None:
    queue = client.queue(make_queue(2).name)
    ids = [queue.put(Message("t", b"%d" % n), partition=0) for n in range(10)]
    client.add_subscriber(queue.name, "a", start=ids[4])
    client.add_subscriber(queue.name, "b", start="latest", partitions=[1])
    with pytest.raises(SubscriberExistsError):
        client.add_subscriber(queue.name, "a")
    states = client.list_subscribers(queue.name)
    assert [(s.subscriber, s.partition, s.checkpoint, s.lag) for s in states] == [
        ("a", 0, ids[4], 6),
        ("a", 1, ids[4], 0),
        ("b", 1, MessageID(0), 0),
    ]
    assert client.seek_subscriber(queue.name, "a", ids[1], partitions=[0]) == {0: ids[1]}
    assert client.list_subscribers(queue.name)[0].lag == 9
    assert client.seek_subscriber(queue.name, "a", "latest")[0] == ids[-1].next()
    assert client.list_subscribers(queue.name)[0].lag == 0
    for partitions in ([0], [0, 1], [5]):
        with pytest.raises(SubscriberNotFoundError):
            client.seek_subscriber(queue.name, "b", 0, partitions=partitions)
    with queue.subscriber(Subscription("a"), nothing) as subscriber:
        assert client.list_subscribers(queue.name)[0].presence is not None
        for operation in (
            lambda: client.seek_subscriber(queue.name, "a", "earliest"),
            lambda: client.delete_subscriber(queue.name, "a"),
        ):
            with pytest.raises(SubscriberConnectedError):
                operation()
        assert checkpoints(client, queue, "a")[0] == ids[-1].next()
        assert subscriber.failure is None
    client.delete_subscriber(queue.name, "a")
    with pytest.raises(SubscriberNotFoundError):
        client.delete_subscriber(queue.name, "a")
    assert [s.subscriber for s in client.list_subscribers(queue.name)] == ["b"]


def test_the_lag_from_an_id_on_is_the_number_of_messages_that_a_scan_finds_there(
    make_queue: MakeQueue,
) -> None:
    queue = make_queue(2)
    assert queue.lag({0: MessageID(5)})[0] == PartitionLag(0, 0, 0)
    for size in (1, 5, 2, 300):
        queue.put([Message("t", b"%d" % n) for n in range(size)], partition=0)
    ids = [m.id for m in queue.scan(partition=0)]
    positions = {0, *ids, *(i + 1 for i in ids), *(i - 1 for i in ids), 2**63 - 1}
    for position in sorted(positions):
        lag = queue.lag({0: MessageID.from_int(position)})[0]
        assert lag.passed == sum(i < position for i in ids)
        assert lag.messages == sum(i >= position for i in ids)
    for partition in (2, -1):
        with pytest.raises(InvalidInputError):
            queue.lag({partition: MessageID(0)})

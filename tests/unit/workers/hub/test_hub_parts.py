"""A hub's settings, its partitions, and what its service refuses."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

import hqueue
from hqueue import (
    Address,
    HubUnavailableError,
    InvalidInputError,
    QueueNotFoundError,
    SettingsError,
)
from hqueue.rpc.connection import Connection
from hqueue.rpc.services import load
from hqueue_workers.hub.hub import Hub
from hqueue_workers.hub.serving.service import HubService
from hqueue_workers.hub.settings import HubSettings
from hqueue_workers.node.networks import Networks
from tests.support.backends import MemoryBackend
from tests.support.hubs import HubThread
from tests.support.waiting import wait_for

QUEUE = "q"
IDL, STRUCTS = load("hub"), load("subscriber")


@pytest.fixture
def cluster() -> MemoryBackend:
    made = MemoryBackend().apart(10_000)
    with made.connect() as client:
        client.create_queue(QUEUE, partitions=3)
    return made


@pytest.fixture
def stack() -> Iterator[contextlib.ExitStack]:
    with contextlib.ExitStack() as opened:
        yield opened


def start(cluster: MemoryBackend, stack: contextlib.ExitStack, **settings: object) -> HubThread:
    client = stack.enter_context(cluster.connect())
    return stack.enter_context(HubThread(client, QUEUE, **settings))


def held(hub: HubThread) -> set[int]:
    return set(hub.hosted(QUEUE).partitions.held)


def test_settings_come_from_arguments_the_environment_and_defaults() -> None:
    environment = {"HQUEUE_HUB_PORT": "7", "HQUEUE_HUB_THREADS": "3", "HQUEUE_HUBS": "h:1"}
    found = HubSettings.load({"port": 8, "host": "here"}, environment)
    assert (found.port, found.threads, found.host, found.listen_host) == (8, 3, "here", "here")
    assert HubSettings.load({}, {}).listen_host == "127.0.0.1"
    assert hqueue.Settings.load({}, environment), "those are no settings of a connection"
    for wrong in (
        {"port": -1},
        {"prt": 1},
        {"host": 7},
        {"topics_max": 0},
        {"placement_policy": "any"},
        {"topic_creations_per_hour_max": 0},
    ):
        with pytest.raises(SettingsError):
            HubSettings.load(wrong, {})


def test_hubs_share_the_partitions_and_take_those_of_one_that_ends(
    cluster: MemoryBackend, stack: contextlib.ExitStack
) -> None:
    hubs = [start(cluster, stack) for _ in range(3)]
    wait_for(
        lambda: (
            sorted(partition for hub in hubs for partition in held(hub)) == [0, 1, 2]
            and all(len(held(hub)) == 1 for hub in hubs)
        ),
        "each has one",
    )
    hubs.pop().client.close()
    wait_for(
        lambda: sorted(partition for hub in hubs for partition in held(hub)) == [0, 1, 2],
        "the others have all",
    )


def test_more_hubs_than_partitions_share_them(
    cluster: MemoryBackend, stack: contextlib.ExitStack
) -> None:
    hubs = [start(cluster, stack) for _ in range(4)]
    wait_for(lambda: sum(len(held(hub)) for hub in hubs) == 3, "all are claimed")
    with hqueue.connect_hubs([hub.address for hub in hubs], queue=QUEUE) as client:
        for number in range(20):
            assert client.topic(f"t{number}").publish(b"v")


def test_a_topic_is_moved_to_the_hub_that_is_named(
    cluster: MemoryBackend, stack: contextlib.ExitStack
) -> None:
    hubs = [start(cluster, stack, balance_ms=3_600_000) for _ in range(3)]
    with hqueue.connect_hubs([hub.address for hub in hubs], queue=QUEUE) as client:
        client.topic("t").publish(b"v")
        for hub in [*hubs, *hubs, hubs[-1]]:
            client.topic("t").move(str(hub.address))
            assert hub.owns(QUEUE) == {"t"}
            assert sum(len(each.owns(QUEUE)) for each in hubs) == 1
            client.topic("t").publish(b"v")
        hubs[-1].hosted(QUEUE).topics.abandon("t").result(60)
        client.topic("t").move(hubs[0].address)  # Nobody has it.
        assert hubs[0].owns(QUEUE) == {"t"}
        for topic, to in (("u", str(hubs[0].address)), ("t", "nowhere:1")):
            with pytest.raises(InvalidInputError):
                client.topic(topic).move(to)
        with pytest.raises(InvalidInputError):
            client.topic("t").move("nowhere")
        assert hubs[0].owns(QUEUE) == {"t"}


@pytest.mark.parametrize("store", ["zookeeper", "hbase"])
def test_a_topic_that_is_deleted_ends_and_one_of_its_name_begins_anew(
    cluster: MemoryBackend, stack: contextlib.ExitStack, store: str
) -> None:
    hubs = [
        stack.enter_context(
            HubThread(
                stack.enter_context(cluster.connect(metadata_store=store)),
                QUEUE,
                balance_ms=3_600_000,
            )
        )
        for _ in range(2)
    ]
    addresses = [hub.address for hub in hubs]
    client = stack.enter_context(hqueue.connect_hubs(addresses, queue=QUEUE, publisher="me"))
    came: list[bytes] = []
    ended = client.topic("t").subscribe("s", lambda each: came.extend(m.value for m in each))
    client.topic("t").publish(b"old")
    client.topic("t").publish_idempotent([b"1"], sequence_number=1)
    wait_for(lambda: len(came) == 2, "it comes")
    # The other hub owned it before, and does not know that it was left.
    client.topic("t").move(addresses[0])
    client.topic("t").move(addresses[1])
    assert client.topic("t").delete()
    assert not client.topic("t").delete()
    with pytest.raises(hqueue.errors.SubscriberNotFoundError):
        ended.wait(60)
    assert [hub.owns(QUEUE) for hub in hubs] == [set(), set()]
    with hubs[0].client.topic_metadata(QUEUE) as metadata:
        assert metadata.persistence.read_topic_persistence_info("t").result(60) is None
        assert metadata.ownership.read_owner_info("t").result(60) is None
        assert metadata.subscriptions.read_subscriptions("t").result(60) == {}
    with pytest.raises(hqueue.errors.SubscriberNotFoundError):
        client.topic("t").subscribe("s", lambda _: None, mode=hqueue.SubscribeMode.ATTACH)
    assert client.topic("t").last_sequence_number() is None
    assert client.topic("t").publish_idempotent([b"new"], sequence_number=1).duplicates == 0
    with hubs[0].client.queue(QUEUE).scan_topic("t") as scanner:
        assert [message.value for message in scanner] == [b"new"]
    with hubs[0].client.topic_metadata(QUEUE) as metadata:
        ranges = metadata.persistence.read_topic_persistence_info("t").result(60)
        assert ranges is not None
        checked = hubs[0].client.queue(QUEUE).verify(ranges={"t": ranges.value.ranges})
        assert not [finding for each in checked for finding in each.findings]
    values = {message.value for message in hubs[0].client.queue(QUEUE).scan()}
    assert {b"old", b"1", b"new"} <= values


def test_a_queue_that_is_not_served_is_refused(
    cluster: MemoryBackend, stack: contextlib.ExitStack
) -> None:
    hub = start(cluster, stack)
    with hqueue.connect_hubs(hub.address) as client, pytest.raises(QueueNotFoundError):
        client.topic("t", queue="another").publish(b"v")


def test_a_hub_owns_no_more_topics_than_it_may(
    cluster: MemoryBackend, stack: contextlib.ExitStack
) -> None:
    hub = start(cluster, stack, topics_max=2)
    with hqueue.connect_hubs(hub.address, queue=QUEUE, operation_timeout_ms=1_000) as client:
        client.topic("a").publish(b"v")
        client.topic("b").publish(b"v")
        with pytest.raises(HubUnavailableError) as caught:
            client.topic("c").publish(b"v")
        assert caught.value.outcome is hqueue.Outcome.NOT_APPLIED
        assert client.topic("a").publish(b"v")


CALL = {"queue": b"q", "publisher": b"me", "topic": b"t", "redirected": False}


@pytest.mark.parametrize(
    "wrong",
    [
        {"topic": b""},
        {"topic": b"\xff"},
        {"topic": b"t" * 256},
        {"topic": None},
        {"publisher": b""},
        {"publisher": None},
        {"messages": None},
        {"messages": []},
        {"messages": [None]},
        {"messages": [STRUCTS.TMessage(topic=b"", value=None)]},
        {"messages": [STRUCTS.TMessage(topic=b"u", value=b"v")]},
        {"messages": [STRUCTS.TMessage(topic=b"", value=bytes(9 * 1024 * 1024))]},
        {"messages": [STRUCTS.TMessage(topic=b"", value=bytes(5 * 1024 * 1024))] * 2},
        {
            "messages": [
                STRUCTS.TMessage(topic=b"", value=b"", headers=[STRUCTS.THeader(b"\xff", b"")])
            ]
        },
        {"messages": [STRUCTS.TMessage(topic=b"", value=b"", headers=[STRUCTS.THeader()])]},
    ],
    ids=lambda wrong: f"{next(iter(wrong))}",
)
def test_a_call_that_makes_no_sense_is_refused_before_anything_happens(
    cluster: MemoryBackend, stack: contextlib.ExitStack, wrong: dict[str, Any]
) -> None:
    hub = start(cluster, stack)
    service: Any = HubService(
        hub.hub.hosted,
        hub.hub.metrics,
        2**20,
        runtime=hub.hosted(QUEUE).runtime,
        session_ms=1_000,
        callbacks=Networks("private"),
    )
    given = {**CALL, "messages": [STRUCTS.TMessage(topic=b"", value=b"v")], **wrong}
    call = SimpleNamespace(**given)
    with pytest.raises(IDL.TIllegalArgument):
        service.publishMessages(
            call.queue, call.publisher, call.topic, call.messages, call.redirected
        )
    assert service.pending_bytes == 0
    assert hub.owns(QUEUE) == set()


@pytest.mark.parametrize("queues", [[], [QUEUE, QUEUE]])
def test_a_hub_serves_each_queue_once(cluster: MemoryBackend, queues: list[str]) -> None:
    with cluster.connect() as client, pytest.raises(InvalidInputError):
        Hub(client, queues, HubSettings(host="h"))


def test_a_hub_serves_the_thrift_api_beside_its_port(
    cluster: MemoryBackend, stack: contextlib.ExitStack
) -> None:
    hub = start(cluster, stack, api_port=0)
    api: Any = hub.hub.api
    idl = load("hqueue")
    connection = Connection(idl.HQueueService, api.address.host, api.address.port, 5.0)
    stack.callback(connection.close)
    connection.socket.settimeout(60.0)
    message = STRUCTS.TMessage(topic=b"t", value=b"v")
    connection.client.putMessageWithPid(QUEUE, 0, message)
    scanner = connection.client.messageScannerOpen(QUEUE, 0, idl.TMessageScan())
    assert connection.client.messageScannerGet(scanner).value == b"v"
    hub.terminate()
    with pytest.raises(ConnectionRefusedError):
        Connection(idl.HQueueService, api.address.host, api.address.port, 60.0)


def test_a_port_that_is_taken_is_a_setting_that_is_wrong(
    cluster: MemoryBackend, stack: contextlib.ExitStack
) -> None:
    hub = start(cluster, stack)
    assert isinstance(hub.address, Address)
    with pytest.raises(SettingsError):
        start(cluster, stack, port=hub.address.port)

"""What a topic costs in requests to ZooKeeper: to make it, to subscribe to it, to take it over."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from hqueue import Client, Settings
from hqueue.runtime.clock import SYSTEM_CLOCK
from hqueue.runtime.steps import Work
from hqueue.runtime.stepwise import stepwise
from hqueue.zookeeper import ZooKeeperCoordination
from hqueue.zookeeper.session import Session
from tests.support.hub_subscribers import Subscriber
from tests.support.hubs import HubThread
from tests.support.memory.cluster import MemoryCluster
from tests.support.memory.memory_store import MemoryStore
from tests.support.memory.network import Network
from tests.support.memory.zookeeper import MemoryZooKeeper

QUEUE = "q"
WAIT_S = 60.0
TOPICS = [f"t{number}" for number in range(10)]
MADE_MAX, TAKEN_MAX = 11.0, 8.0


class Scene:
    """Two hubs, and how many requests about topics were sent."""

    def __init__(self, stack: contextlib.ExitStack, port: int) -> None:
        cluster = MemoryCluster(SYSTEM_CLOCK)
        settings = Settings(zookeeper=f"127.0.0.1:{port}", notify_workers=False)

        def connect() -> Client:
            store = MemoryStore(cluster, settings, SYSTEM_CLOCK, Network())
            session = ZooKeeperCoordination(settings)
            return stack.enter_context(Client(settings, store, lambda _: session, SYSTEM_CLOCK))

        self.client = connect()
        self.client.create_queue(QUEUE, partitions=2)
        self.hubs = [
            stack.enter_context(HubThread(connect(), QUEUE, balance_ms=3_600_000)) for _ in range(2)
        ]
        self.subscriber = stack.enter_context(
            Subscriber(QUEUE, lambda: [hub.address for hub in self.hubs])
        )
        self.sent = 0

    def subscribe(self, topics: Sequence[str], at: int = 0) -> float:
        """Subscribe to each; how many requests each took."""
        self.sent = 0
        for topic in topics:
            self.subscriber.subscribe(topic, at=self.hubs[at].address)
        return self.sent / len(topics)


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(MemoryZooKeeper())
        made = Scene(stack, server.port)
        run = Session.run

        @stepwise
        def counted(session: Session, requests: Sequence[Any], *given: Any) -> Work[Any, Any]:
            made.sent += len(requests)
            return (yield from run.__get__(session, Session).steps(requests, *given))

        monkeypatch.setattr(Session, "run", counted)
        made.subscribe(["before"])
        yield made


def test_to_make_a_topic_own_it_and_subscribe_to_it_takes_few_requests(scene: Scene) -> None:
    assert scene.subscribe(TOPICS) <= MADE_MAX
    assert sum(len(hub.owns(QUEUE)) for hub in scene.hubs) == len(TOPICS) + 1


def test_what_is_owned_and_attached_takes_none(scene: Scene) -> None:
    scene.subscribe(TOPICS)
    for number, hub in enumerate(scene.hubs):
        own = sorted(hub.owns(QUEUE) & {*TOPICS})
        assert not own or scene.subscribe(own, at=number) == 0


def test_to_take_a_topic_over_with_its_subscription_takes_fewer(scene: Scene) -> None:
    scene.subscribe(TOPICS)
    taken = sorted(scene.hubs[1].owns(QUEUE) & {*TOPICS})
    with scene.client.topic_metadata(QUEUE) as metadata:
        for topic in taken:  # As when its session ends.
            found = metadata.ownership.read_owner_info(topic).result(WAIT_S)
            assert found is not None
            metadata.ownership.delete_owner_info(topic, found.version).result(WAIT_S)
    scene.sent = 0
    for topic in taken:
        with contextlib.closing(scene.subscriber.connect(scene.hubs[0].address)) as client:
            delivery = scene.subscriber.delivery()
            client.subscribe(QUEUE, scene.subscriber.name, topic, 2, delivery, None, True)
    assert scene.hubs[0].owns(QUEUE) >= {*taken}
    assert scene.sent <= TAKEN_MAX * max(1, len(taken))

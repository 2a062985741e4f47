"""A producer that publishes by way of hubs, over real sockets."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import pytest

import hqueue
from hqueue import BufferFullError, ClosedError, InvalidInputError, Message, NotAllowedError
from tests.support.backends import MemoryBackend
from tests.support.hub_faces import both_faces
from tests.support.hubs import HubThread

QUEUE = "q"
WAIT_S = 60.0


class Scene:
    """Two hubs of a queue, and a client."""

    def __init__(self, stack: contextlib.ExitStack) -> None:
        self._cluster = MemoryBackend().apart(10_000)
        with self._cluster.connect() as client:
            client.create_queue(QUEUE, partitions=2)
        self.hubs = [
            stack.enter_context(
                HubThread(
                    stack.enter_context(self._cluster.connect()),
                    QUEUE,
                    balance_ms=3_600_000,
                    authorizer="acl",
                )
            )
            for _ in range(2)
        ]
        hubs = [hub.address for hub in self.hubs]
        self.client = stack.enter_context(hqueue.connect_hubs(hubs, queue=QUEUE))

    def topic(self, name: str) -> list[hqueue.ReceivedMessage]:
        with self._cluster.connect() as client, client.queue(QUEUE).scan_topic(name) as scanner:
            return list(scanner)

    def appends(self) -> float:
        return sum(hub.counted("hqueue_hub_appends_total") for hub in self.hubs)


@pytest.fixture
def scene() -> Iterator[Scene]:
    with contextlib.ExitStack() as stack:
        yield Scene(stack)


@both_faces
def test_messages_are_published_together_and_in_order(scene: Scene) -> None:
    topics = ["a", "b", "c"]
    with scene.client.producer(linger_ms=50) as producer:
        sent = {
            topic: [
                producer.send(Message(topic, b"%d" % number, b"k", [("n", b"%d" % number)]))
                for number in range(200)
            ]
            for topic in topics
        }
        assert producer.flush(WAIT_S)
        for topic in topics:
            ids = [each.result(0) for each in sent[topic]]
            found = scene.topic(topic)
            assert [each.id for each in found] == ids == sorted(set(ids))
            assert [each.value for each in found] == [b"%d" % number for number in range(200)]
            assert {(each.key, each.headers[0][0]) for each in found} == {(b"k", "n")}
    assert scene.appends() < 60


@both_faces
def test_order_is_kept_while_a_topic_changes_hands(scene: Scene) -> None:
    done = threading.Event()
    failed: list[BaseException] = []

    def move() -> None:
        try:
            while not done.is_set():
                for hub in scene.hubs:
                    scene.client.topic("t").move(hub.address)
        except hqueue.HQueueError as exc:
            failed.append(exc)

    scene.client.topic("t").publish(b"first")
    mover = threading.Thread(target=move)
    mover.start()
    try:
        with scene.client.producer(linger_ms=1, batch_messages_max=3) as producer:
            for number in range(300):
                producer.send(Message("t", b"%d" % number))
    finally:
        done.set()
        mover.join(WAIT_S)
    assert not failed
    values = [each.value for each in scene.topic("t")]
    assert values == [b"first", *(b"%d" % number for number in range(300))]


@both_faces
def test_a_batch_that_failed_is_said_to_have_and_others_go_on(scene: Scene) -> None:
    scene.client.topic("closed").set_acl(publish=[])
    told: list[tuple[object, object]] = []
    with scene.client.producer() as producer:
        refused = producer.send(Message("closed", b"v"), callback=lambda *end: told.append(end))
        taken = producer.send(Message("open", b"v"), callback=lambda *end: told.append(end))
        assert isinstance(refused.exception(WAIT_S), NotAllowedError)
        assert taken.result(WAIT_S)
        producer.flush(WAIT_S)
    assert [error is None for _, error in told].count(True) == 1
    assert len(told) == 2


@both_faces
def test_what_a_producer_can_not_take_is_refused(scene: Scene) -> None:
    with pytest.raises(InvalidInputError, match="linger_ms"):
        scene.client.producer(lingr_ms=3)  # type: ignore[call-arg]
    with pytest.raises(InvalidInputError):
        scene.client.producer(linger_ms=-1)
    with hqueue.connect_hubs(scene.hubs[0].address) as nowhere, pytest.raises(InvalidInputError):
        nowhere.producer()
    producer = scene.client.producer(buffer_bytes_max=1, block_ms_max=0, linger_ms=60_000)
    with pytest.raises(InvalidInputError):
        producer.send(b"v")  # type: ignore[arg-type]
    kept = producer.send(Message("t", b"v"))
    with pytest.raises(BufferFullError):
        producer.send(Message("t", b"v"))
    producer.close()
    assert kept.result(0)
    with pytest.raises(ClosedError):
        producer.send(Message("t", b"v"))


@both_faces
def test_what_comes_after_the_client_was_closed_fails(scene: Scene) -> None:
    with hqueue.connect_hubs(scene.hubs[0].address, queue=QUEUE) as client:
        producer = client.producer(linger_ms=60_000)
        late = producer.send(Message("t", b"v"))
    producer.close()
    assert isinstance(late.exception(0), ClosedError)
    with pytest.raises(ClosedError):
        client.producer()

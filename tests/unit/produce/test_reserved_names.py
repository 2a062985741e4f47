"""Topics and headers of the system's own are refused at each way in, and copies have none."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest
from thriftpy2.rpc import make_client

import hqueue
from hqueue import (
    Address,
    Client,
    HubClient,
    InvalidInputError,
    Message,
    Messages,
    Queue,
    is_reserved,
)
from hqueue.cli.formats import Format, encoder
from hqueue.dead_letters.topics import dead_letter_topic, redrive_topic
from hqueue.format.arrow import HEADERS as ARROW_HEADERS
from hqueue.rpc.services import load
from hqueue.texts.documents import message_of
from tests.support.backends import MemoryBackend
from tests.support.hubs import HubThread

QUEUE = "q"
SYSTEM = [dead_letter_topic("s"), redrive_topic("s"), "hqueue.", "hqueue.any"]
HEADERS = [("hqueue.number", b"5"), ("hqueue.", b""), ("n", b"v")]
KEPT = (("n", b"v"),)


class Scene:
    """A queue, a hub that serves the Thrift API, too, and a client of it."""

    def __init__(self, stack: contextlib.ExitStack) -> None:
        backend = MemoryBackend().apart(10_000)
        self.store: Client = stack.enter_context(backend.connect())
        self.store.create_queue(QUEUE, partitions=1)
        self.queue: Queue = self.store.queue(QUEUE)
        serving = stack.enter_context(backend.connect())
        self.hub = stack.enter_context(HubThread(serving, QUEUE, api_port=0))
        self.hubs: HubClient = stack.enter_context(
            hqueue.connect_hubs(
                [self.hub.address], queue=QUEUE, publisher="p", operation_timeout_ms=60_000
            )
        )

    def ways(self) -> dict[str, Callable[[Message], object]]:
        """Each way in, by a name."""
        queue, hubs = self.queue, self.hubs

        def arrow(message: Message) -> pa.RecordBatch:
            headers = [[{"key": name, "value": value} for name, value in message.headers]]
            return pa.RecordBatch.from_pydict(
                {
                    "topic": [message.topic],
                    "value": [message.value],
                    "headers": pa.array(headers, ARROW_HEADERS),
                }
            )

        def many(message: Message) -> Messages:
            return Messages(message.topic, [message.value], None, [message.headers])

        def sent(send: Callable[[Any], Any], message: Message) -> object:
            return send(message).result(60)

        def produced(send: str, message: Any) -> object:
            with queue.producer() as producer:
                return sent(getattr(producer, send), message)

        def published(message: Message) -> object:
            with hubs.producer() as producer:
                return sent(producer.send, message)

        return {
            "put": queue.put,
            "put of several": lambda message: queue.put([Message("t", b""), message]),
            "put of values": lambda message: queue.put(many(message)),
            "put of Arrow": lambda message: queue.put(arrow(message)),
            "put of an Arrow table": lambda m: queue.put(pa.Table.from_batches([arrow(m)])),
            "send": lambda message: produced("send", message),
            "send of a batch": lambda message: produced("send_batch", [message]),
            "send of Arrow": lambda message: produced("send_batch", arrow(message)),
            "publish": lambda message: hubs.topic(message.topic).publish(message),
            "publish once": lambda m: hubs.topic(m.topic).publish_idempotent(
                [m], sequence_number=1
            ),
            "a hub's producer": published,
            "the Thrift API": lambda message: hubs.queue().put(message, partition=0),
            "a subscription": lambda m: (
                m.headers or hubs.topic(m.topic).subscribe("s", print).close()
            ),
            "an ACL": lambda m: m.headers or hubs.topic(m.topic).set_acl(publish=["me"]),
        }


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    with contextlib.ExitStack() as stack:
        yield Scene(stack)


def test_topics_of_the_systems_own_are_refused_at_each_way_in(scene: Scene) -> None:
    before = scene.queue.offsets()[0].end_ordinal
    for name, way in scene.ways().items():
        for topic in SYSTEM:
            with pytest.raises(InvalidInputError, match="system's own"):
                raise AssertionError(f"{name} took it: {way(Message(topic, b'v'))}")
    with scene.queue.producer() as producer, pytest.raises(InvalidInputError, match="system's own"):
        producer.send_value(redrive_topic("s"), b"v")
    assert scene.queue.offsets()[0].end_ordinal == before


def test_headers_of_the_systems_own_are_refused_at_each_way_in(scene: Scene) -> None:
    before = scene.queue.offsets()[0].end_ordinal
    for name, way in scene.ways().items():
        for header in HEADERS[:2]:
            message = Message("t", b"v", headers=[("n", b"v"), header])
            if name in ("a subscription", "an ACL"):
                continue
            with pytest.raises(InvalidInputError, match="system's own"):
                raise AssertionError(f"{name} took it: {way(message)}")
    assert scene.queue.offsets()[0].end_ordinal == before


REFUSALS = (load("hub").TIllegalArgument, load("hqueue").TIllegalArgument)


def connected(idl: str, service: str, address: Address) -> contextlib.closing[Any]:
    """A client with nothing but an IDL."""
    host, port = address
    return contextlib.closing(make_client(getattr(load(idl), service), host, port, timeout=60_000))


def test_a_hub_and_the_api_refuse_what_a_foreign_client_sends(scene: Scene) -> None:
    """A client in another language checks nothing itself."""
    structs: Any = load("subscriber")
    header = [structs.THeader(b"hqueue.number", b"5")]

    def publish(topic: str, headers: Sequence[Any] = ()) -> None:
        sent = [structs.TMessage(topic=b"", value=b"v", headers=list(headers))]
        hub.publishMessages(QUEUE, "p", topic, sent, True)

    def put(topic: str, headers: Sequence[Any] = ()) -> None:
        sent = structs.TMessage(topic=topic.encode(), value=b"v", headers=list(headers))
        api.putMessage(QUEUE, sent)

    def subscribe(topic: str) -> None:
        hub.subscribe(QUEUE, "s", topic, 2, None, None, True)

    def set_acl(topic: str) -> None:
        acl = load("hub").TTopicAccess(publish=["me"])
        hub.changeAccess(QUEUE, "p", topic, acl, True)

    with contextlib.ExitStack() as stack:
        hub = stack.enter_context(connected("hub", "HQueueHubService", scene.hub.address))
        api_address = Address.parse(hub.apiAddress())
        api = stack.enter_context(connected("hqueue", "HQueueService", api_address))
        for create in publish, put, subscribe, set_acl:
            with pytest.raises(REFUSALS) as caught:
                create(redrive_topic("s"))
            assert "system's own" in caught.value.message
        for way in publish, put:
            with pytest.raises(REFUSALS) as caught:
                way("t", header)
            assert "system's own" in caught.value.message


def test_what_was_read_is_put_again_without_what_the_system_said_of_it(scene: Scene) -> None:
    scene.hubs.topic("copied").publish_idempotent(
        [Message("copied", b"v", headers=KEPT)], sequence_number=7
    )
    [read] = scene.queue.scan_topic("copied")
    assert len(read.headers) == 3
    [batch] = scene.queue.scan_topic("copied").arrow_batches()
    ways: list[Callable[[], object]] = [
        lambda: scene.queue.put(read),
        lambda: scene.queue.put([read, Message("other", b"")]),
        lambda: scene.queue.put(batch),
        lambda: scene.queue.put(pa.Table.from_batches([batch])),
        lambda: scene.hubs.topic("copied").publish(read),
        lambda: scene.hubs.queue().put(read),
        lambda: scene.queue.put(message_of(encoder(Format.JSON)(read)) or []),
    ]
    for way in ways:
        end = scene.queue.offsets()[0].end
        way()
        found = [each for each in scene.queue.scan(start=end) if each.topic == "copied"]
        assert [(each.value, each.headers) for each in found] == [(b"v", KEPT)]


def test_a_copied_document_of_a_dead_letter_is_left_out_and_a_made_one_is_refused(
    scene: Scene,
) -> None:
    topic = dead_letter_topic("s")
    assert (
        message_of(b'{"partition":0,"id":"1-0","topic":"%s","value":"v"}' % topic.encode()) is None
    )
    made = message_of(b'{"topic":"%s","value":"v"}' % topic.encode())
    assert made is not None
    with pytest.raises(InvalidInputError, match="system's own"):
        scene.queue.put(made)


@pytest.mark.parametrize("name", ["hqueue", "Hqueue.x", "xhqueue.", "hqueue-x", "clicks"])
def test_other_names_are_everybodys(name: str, scene: Scene) -> None:
    assert not is_reserved(name)
    scene.queue.put(Message(name, b"v", headers=[(name, b"")]))


def test_no_queue_has_the_name_of_the_table_of_metadata(scene: Scene) -> None:
    with pytest.raises(InvalidInputError, match="metadata_table"):
        scene.store.create_queue("hqueue_metadata", partitions=1)

"""What is put into a queue under the name of a topic that hubs own is nothing of the topic, for any
reader, and numbers nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

import hqueue
from hqueue import (
    Client,
    HubClient,
    Message,
    Queue,
    ReceivedMessage,
    Status,
    SubscriptionPreferences,
)
from hqueue.client import cluster_of
from hqueue.log import owned_writer as owned_module
from hqueue.metadata.managers import LogRange
from hqueue_workers.hub.owning import takeover
from hqueue_workers.hub.writing.sequence_numbers import PUBLISHER, SEQUENCE_NUMBER
from tests.support.backends import MemoryBackend
from tests.support.hubs import HubThread
from tests.support.waiting import wait_for

QUEUE = "q"
TOPIC = "t"
WAIT_S = 60.0


class Scene:
    """A queue of one partition, a hub that owns its topics, and clients of both."""

    def __init__(self, stack: contextlib.ExitStack) -> None:
        backend = MemoryBackend().apart(10_000)
        self.store: Client = stack.enter_context(backend.connect())
        self.store.create_queue(QUEUE, partitions=1)
        self.queue: Queue = self.store.queue(QUEUE)
        self.hub = stack.enter_context(HubThread(stack.enter_context(backend.connect()), QUEUE))
        self.client = stack.enter_context(self.connect())

    def connect(self, publisher: str = "me") -> HubClient:
        return hqueue.connect_hubs(
            [self.hub.address], queue=QUEUE, publisher=publisher, operation_timeout_ms=60_000
        )

    def put(self, *values: bytes, headers: Sequence[tuple[str, bytes]] = ()) -> None:
        """Put messages past the hub, as a release did that refused no headers."""
        messages = [Message(TOPIC, value, headers=headers) for value in values]
        cluster_of(self.store).log(QUEUE).appender.put_system(messages, 0)

    def take_over(self) -> None:
        """Have the topic owned once more."""
        self.hub.hosted(QUEUE).topics.abandon(TOPIC).result(WAIT_S)

    def in_topic(self) -> list[bytes]:
        """What the topic has, which ways to read it agree on."""
        found = [message.value for message in self.queue.scan_topic(TOPIC)]
        by_arrow = [
            value.as_py()
            for batch in self.queue.scan_topic(TOPIC).arrow_batches()
            for value in batch.column("value")
        ]
        assert by_arrow == found
        return found

    def in_queue(self) -> list[bytes]:
        return [message.value for message in self.queue.scan(topics=[TOPIC])]

    def check(self) -> Any:
        with self.store.topic_metadata(QUEUE) as metadata:
            known = metadata.persistence.read_topic_persistence_info(TOPIC).result()
        assert known is not None
        *_, result = self.queue.verify(ranges={TOPIC: known.value.ranges})
        return result


@pytest.fixture
def scene() -> Iterator[Scene]:
    with contextlib.ExitStack() as stack:
        yield Scene(stack)


class Listener:
    """A subscriber's listener, which keeps what comes."""

    def __init__(self) -> None:
        self.got: list[bytes] = []

    def __call__(self, messages: Sequence[ReceivedMessage]) -> Status:
        self.got += [each.value for each in messages]
        return Status.DONE

    def wait_for(self, *values: bytes) -> None:
        wait_for(lambda: len(self.got) >= len(values), WAIT_S)
        assert self.got == list(values)


def test_all_readers_of_a_topic_agree_that_direct_puts_are_none_of_it(scene: Scene) -> None:
    listener = Listener()
    scene.client.topic(TOPIC).publish(b"a")
    with scene.client.topic(TOPIC).subscribe("s", listener):
        scene.put(b"x", b"y")
        scene.client.topic(TOPIC).publish(b"b")
        listener.wait_for(b"b")
        scene.put(b"z")
    scene.put(b"while nobody is attached")
    scene.client.topic(TOPIC).publish(b"c")
    with scene.client.topic(TOPIC).subscribe("s", listener):
        listener.wait_for(b"b", b"c")
        scene.put(b"again")
        scene.take_over()
        scene.put(b"in the next range")
        scene.client.topic(TOPIC).publish(b"d")
        listener.wait_for(b"b", b"c", b"d")
    assert scene.in_topic() == [b"a", b"b", b"c", b"d"]
    assert len(scene.in_queue()) == 10
    result = scene.check()
    assert (result.findings, result.unfinished, result.outside) == ([], [], 6)


def test_direct_puts_count_toward_no_message_bound(scene: Scene) -> None:
    listener = Listener()
    scene.client.topic(TOPIC).publish(b"a")
    preferences = SubscriptionPreferences(message_bound=2)
    scene.client.topic(TOPIC).subscribe("s", Listener(), preferences=preferences).close()
    scene.put(*[b"x"] * 50)
    scene.client.topic(TOPIC).publish_many([b"b", b"c"])
    scene.put(*[b"y"] * 50)
    scene.take_over()
    with scene.client.topic(TOPIC).subscribe("s", listener):
        listener.wait_for(b"b", b"c")


def numbered(number: bytes, publisher: bytes = b"me") -> list[tuple[str, bytes]]:
    return [(PUBLISHER, publisher), (SEQUENCE_NUMBER, number)]


@pytest.mark.parametrize("again", [False, True])
def test_copied_messages_number_nothing_and_no_message_is_dropped_for_them(
    scene: Scene, again: bool
) -> None:
    scene.client.topic(TOPIC).publish(b"first")
    scene.put(b"copy", headers=numbered(b"17"))
    scene.put(b"copy", headers=numbered(b"9" * 5_000))
    if again:
        scene.take_over()
    with scene.connect() as me:
        assert me.topic(TOPIC).last_sequence_number() is None
        done = me.topic(TOPIC).publish_idempotent([b"1", b"2"], sequence_number=16)
        assert (done.duplicates, len(done.ids)) == (0, 2)
    scene.put(b"copy", headers=numbered(b"99"))
    scene.take_over()
    with scene.connect() as me:
        assert me.topic(TOPIC).last_sequence_number() == 17
        assert me.topic(TOPIC).publish_idempotent([b"2", b"3"], sequence_number=17).duplicates == 1
    assert scene.in_topic() == [b"first", b"1", b"2", b"3"]


def test_what_hubs_of_earlier_releases_numbered_counts_where_it_lies(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their batches say no owner, and their ranges are not marked: so all that lies there counts,
    as it did.
    """

    def unmarked(*given: Any, marked: bool = False) -> LogRange:
        return LogRange(*given)

    with monkeypatch.context() as earlier:
        earlier.setattr(owned_module, "with_owners", lambda bodies, epochs: bodies)
        earlier.setattr(takeover, "LogRange", unmarked)
        scene.client.topic(TOPIC).publish_idempotent([b"1", b"2"], sequence_number=1)
        scene.put(b"direct")
        scene.put(b"mangled", headers=numbered(b"9" * 5_000))
    scene.take_over()
    with scene.connect() as me:
        assert me.topic(TOPIC).last_sequence_number() == 2
        assert me.topic(TOPIC).publish_idempotent([b"2", b"3"], sequence_number=2).duplicates == 1
    scene.put(b"copy", headers=numbered(b"50"))
    scene.take_over()
    with scene.connect() as me:
        assert me.topic(TOPIC).last_sequence_number() == 3
    assert scene.in_topic() == [b"1", b"2", b"direct", b"mangled", b"3"]
    assert scene.check().findings == []


@pytest.mark.parametrize("way", ["a value", "a message", "several"])
def test_what_a_publisher_sends_can_not_look_numbered(scene: Scene, way: str) -> None:
    sent: dict[str, Callable[[], object]] = {
        "a value": lambda: scene.client.topic(TOPIC).publish(b"v"),
        "a message": lambda: scene.client.topic(TOPIC).publish(Message(TOPIC, b"v", b"k")),
        "several": lambda: scene.client.topic(TOPIC).publish_many([b"v", b"w"]),
    }
    sent[way]()
    for message in scene.queue.scan_topic(TOPIC):
        assert message.headers == ()
    with pytest.raises(hqueue.InvalidInputError, match="system's own"):
        scene.client.topic(TOPIC).publish(Message(TOPIC, b"v", headers=numbered(b"17")))

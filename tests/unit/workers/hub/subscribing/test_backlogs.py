"""How subscriptions that are behind get what they missed: on stores in memory."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

import hqueue
from hqueue import CorruptLogError, Message, ReceivedMessage, Status
from hqueue.consume.topic_cursor import TopicCursor
from hqueue.log.steps import Work
from hqueue.runtime.clock import Deadline
from hqueue_workers.hub.limits import HubLimits
from hqueue_workers.hub.serving.callers import Named
from hqueue_workers.hub.subscribing.backlogs import Backlogs
from tests.support.backends import MemoryBackend
from tests.support.hub_subscribers import Subscriber
from tests.support.hubs import HubThread
from tests.support.waiting import wait_for

WAIT_S = 60.0
QUEUE = "q"
SIZE = 2_000


class Scene:
    """A queue with hubs, which keep nothing of what they publish."""

    def __init__(self, stack: contextlib.ExitStack) -> None:
        self.stack = stack
        self.limits = HubLimits(recent_bytes_max=0)
        self.backend = MemoryBackend().apart(10_000)
        stack.enter_context(self.backend.connect()).create_queue(QUEUE, partitions=2)
        self.hubs: list[HubThread] = []

    def hub(self) -> HubThread:
        client = self.stack.enter_context(self.backend.connect())
        hub = HubThread(client, QUEUE, limits=self.limits, balance_ms=3_600_000)
        self.hubs.append(self.stack.enter_context(hub))
        return hub

    def subscriber(self, name: str, **named: Any) -> Subscriber:
        made = Subscriber(QUEUE, lambda: [self.hubs[-1].address], name, **named)
        return self.stack.enter_context(made)

    def publish(self, *values: bytes, topic: str = "t") -> None:
        publishing = self.hubs[-1].hosted(QUEUE).publishing
        messages = [Message(topic, value) for value in values]
        publishing.publish(Named(None, "me"), topic, messages, 1, redirected=True).result(WAIT_S)

    @property
    def backlogs(self) -> Backlogs:
        return self.hubs[-1].hosted(QUEUE).subscriptions.sessions.delivering.backlogs


@pytest.fixture
def scene() -> Iterator[Scene]:
    with contextlib.ExitStack() as stack:
        yield Scene(stack)


def values_of(count: int, begin: int = 0) -> list[bytes]:
    return [b"%06d" % number + bytes(SIZE) for number in range(begin, begin + count)]


def test_a_backlog_over_several_ranges_is_read_once_for_all_that_come(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.hub()
    all_came = threading.Event()

    def answer(messages: Sequence[ReceivedMessage]) -> Status:
        assert all_came.wait(WAIT_S)
        return Status.DONE

    subscribers = [scene.subscriber(f"s{number}", answer=answer) for number in range(3)]
    for sub in subscribers:
        sub.subscribe("t", attach=False)
    values: list[bytes] = []
    for _ in range(3):
        more = values_of(120, len(values))
        for first in range(0, 120, 20):
            scene.publish(*more[first : first + 20])
        values += more
        scene.hub()
        scene.hubs[-2].terminate()
    came: list[int] = []
    read_topic = TopicCursor.read

    def note(cursor: TopicCursor, deadline: Deadline) -> Work[list[hqueue.engine.Batch]]:
        batches = yield from read_topic(cursor, deadline)
        came.extend(batch.header.base for batch in batches)
        return batches

    monkeypatch.setattr(TopicCursor, "read", note)
    for sub in subscribers:
        sub.subscribe("t", 1, consumeInterval=7 if sub.name == "s1" else 100)
    all_came.set()
    for sub in subscribers:
        wait_for(lambda: len(sub.values) == 360, "all came")  # noqa: B023
        assert sub.values == values, "in order, and none twice"
    assert len(came) == len(set(came)) == 18, "they share what was read"
    scene.publish(b"last")
    for sub in subscribers:
        wait_for(lambda: sub.values[-1] == b"last", "what is published then")  # noqa: B023


def test_those_that_stand_still_hold_a_bounded_amount_and_go_on_where_they_stood(
    scene: Scene,
) -> None:
    scene.limits = HubLimits(
        recent_bytes_max=0, reading_bytes=20 * SIZE, idle_readings_bytes_max=40 * SIZE
    )
    scene.hub()
    topics = [f"t{number}" for number in range(12)]
    sub = scene.subscriber("s")
    for topic in topics:
        sub.subscribe(topic, attach=False)
        for first in range(0, 40, 4):
            scene.publish(*values_of(4, first), topic=topic)
    for topic in topics:
        sub.subscribe(topic, 1, explicit=True, deliveryWindow=5)
    wait_for(lambda: len(sub.values) == 5 * len(topics), "the windows are full")
    wait_for(lambda: scene.backlogs.held_bytes <= 40 * SIZE, "what they hold is bounded")
    assert scene.backlogs.readings < len(topics)

    def take_all() -> bool:
        last = {message.topic: message for message in sub.messages}
        for topic in topics:
            sub.consume(topic, last[topic].id)
        return len(sub.values) == 40 * len(topics)

    wait_for(take_all, "all came")
    for topic in topics:
        got = [message.value for message in sub.messages if message.topic == topic]
        assert got == values_of(40)


def test_what_can_not_be_read_holds_up_only_its_own_topic(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.hub()
    sub = scene.subscriber("s")
    for topic in ("broken", "whole"):
        sub.subscribe(topic, attach=False)
        scene.publish(b"a", b"b", topic=topic)
    read_topic = TopicCursor.read

    def fail(reader: TopicCursor, deadline: Deadline) -> list[hqueue.engine.Batch]:
        if reader.topic == "broken" and broken:
            raise CorruptLogError("flipped")
        return read_topic(reader, deadline)

    broken = True
    monkeypatch.setattr(TopicCursor, "read", fail)
    for topic in ("broken", "whole"):
        sub.subscribe(topic, 1)
    wait_for(lambda: sub.values == [b"a", b"b"], "the other one came")
    attached = scene.hubs[-1].hosted(QUEUE).subscriptions.sessions
    stuck = attached.find("broken", "s")
    assert stuck is not None
    wait_for(lambda: stuck.queued and not stuck.running, "it waits without a call's place")
    broken = False
    wait_for(lambda: sub.values == [b"a", b"b"] * 2, "and goes on when it can be read")


def test_a_call_that_is_made_again_has_the_same_messages_though_it_is_read_again(
    scene: Scene,
) -> None:
    scene.limits = HubLimits(recent_bytes_max=0, idle_readings_bytes_max=0)
    scene.hub()
    answers = iter([Status.RETRY] * 4)

    def answer(messages: Sequence[ReceivedMessage]) -> Status:
        return next(answers, Status.DONE)

    sub = scene.subscriber("s", answer=answer)
    sub.subscribe("t", attach=False)
    for first in range(0, 30, 10):
        scene.publish(*values_of(10, first))
    sub.subscribe("t", 1, consumeInterval=7)
    wait_for(lambda: sub.values == values_of(30), "all came")
    assert sub.calls[:5] == [values_of(7)] * 5

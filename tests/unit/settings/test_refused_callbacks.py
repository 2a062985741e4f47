"""Each call that takes a callback refuses what can't be one, before it does anything."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any

import pytest

import hqueue
from hqueue import HubProducer, InvalidInputError, Message, MessageListener, ReceivedMessage
from hqueue.engine import Engine
from hqueue.message_id import MessageIDs
from tests.support.backends import MemoryBackend


async def awaited(*_: object) -> None:
    raise AssertionError("nobody awaits it")


async def iterated(*_: object) -> AsyncIterator[None]:
    yield


class Awaited:
    async def __call__(self, *_: object) -> None:
        raise AssertionError("nobody awaits it")


WRONG = {
    "number": 5,
    "text": "f",
    "coroutine function": awaited,
    "partial of one": functools.partial(awaited, 1),
    "async generator": iterated,
    "async object": Awaited(),
}
MESSAGE = Message("t", b"v")
Call = Callable[[hqueue.Client, Any], object]


def hub_send(client: hqueue.Client, callback: Any) -> None:
    with HubProducer(lambda topic, messages: MessageIDs(1, len(messages))) as producer:
        producer.send(MESSAGE, callback=callback)


def send(client: hqueue.Client, callback: Any) -> None:
    with client.queue("q").producer() as producer:
        producer.send(MESSAGE, callback=callback)


def send_value(client: hqueue.Client, callback: Any) -> None:
    with client.queue("q").producer() as producer:
        producer.send_value("t", b"v", callback=callback)


def commit_async(client: hqueue.Client, callback: Any) -> None:
    with hqueue.Consumer("q", group="g", client=client) as consumer:
        consumer.commit_async(on_commit=callback)


def subscribe(event: str) -> Call:
    def call(client: hqueue.Client, callback: Any) -> None:
        with hqueue.Consumer(group="g", client=client) as consumer:
            consumer.subscribe("q", **{event: callback})

    return call


CALLS: dict[str, Call] = {
    "Producer.send": send,
    "Producer.send_value": send_value,
    "HubProducer.send": hub_send,
    "commit_async": commit_async,
    "on_assigned": subscribe("on_assigned"),
    "on_revoked": subscribe("on_revoked"),
    "on_lost": subscribe("on_lost"),
    "on_unreadable": lambda client, callback: client.queue("q").dead_letters.waiting(
        "s", on_unreadable=callback
    ),
    "on_fence": lambda client, callback: Engine(client).open("q").own(0, callback),
    "on_settled": lambda client, callback: (
        Engine(client).open("q").in_loop().own(0, lambda topic, epoch: None, callback)
    ),
}


@pytest.fixture
def client() -> Iterator[hqueue.Client]:
    with contextlib.closing(MemoryBackend().connect()) as connected:
        connected.create_queue("q", partitions=1)
        yield connected


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_what_can_not_be_called_or_must_be_awaited_is_refused_at_the_call(
    client: hqueue.Client, call: Call, wrong: object
) -> None:
    with pytest.raises(InvalidInputError, match="callback"):
        call(client, wrong)


class Listening(MessageListener):
    def consume(self, messages: Sequence[ReceivedMessage]) -> None:
        """Do nothing."""


def test_a_listener_class_is_refused_and_an_object_of_it_is_not(client: hqueue.Client) -> None:
    queue = client.queue("q")
    subscription = hqueue.Subscription("s")
    with pytest.raises(InvalidInputError, match="an object of it"):
        queue.subscriber(subscription, MessageListener)  # type: ignore[arg-type]
    queue.subscriber(subscription, Listening())


def test_a_listener_class_without_consume_makes_no_object() -> None:
    with pytest.raises(TypeError, match="consume"):
        MessageListener()  # type: ignore[abstract]

"""A handler of a signal that raises, at every place of a hub client's calls where CPython may call
it, and at lines of them: what comes after works, in a bounded time, and loses nothing.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator, Sequence

import pytest

import hqueue
from hqueue import Address, ReceivedMessage
from hqueue.topics import HubClient, TopicSubscription
from tests.support.backends import MemoryBackend
from tests.support.hubs import HubThread
from tests.support.interrupted import QUEUE, EachPlace, Numbers, quickly
from tests.support.interrupting import each_interruption, each_line
from tests.support.waiting import wait_for


@pytest.fixture
def hub() -> Iterator[tuple[hqueue.Queue, Address]]:
    backend = MemoryBackend()
    with backend.connect() as client, backend.connect() as served:
        queue = client.create_queue(QUEUE, partitions=1)
        with HubThread(served, QUEUE) as running:
            yield queue, running.address


def connected(address: Address) -> HubClient:
    return hqueue.connect_hubs(
        address, queue=QUEUE, connect_timeout_ms=1_000, operation_timeout_ms=4_000
    )


def interrupted_at(*, every: int) -> pytest.MarkDecorator:
    places = [functools.partial(each, every=every) for each in (each_interruption, each_line)]
    return pytest.mark.parametrize("each_place", places, ids=["calls", "lines"])


@interrupted_at(every=1)
def test_publishing_goes_on_after_it_was_interrupted_anywhere(
    hub: tuple[hqueue.Queue, Address], each_place: EachPlace
) -> None:
    queue, address = hub
    numbers = Numbers()
    with connected(address) as client:

        def publish() -> None:
            message = numbers.message()
            client.topic(message.topic).publish(message)
            numbers.acknowledged.append((message.topic, message.value))

        publish()
        for where in each_place(publish):
            quickly(publish, where)
    numbers.check(queue)


@interrupted_at(every=3)
def test_a_client_whose_close_was_interrupted_is_closed_again(
    hub: tuple[hqueue.Queue, Address], each_place: EachPlace
) -> None:
    _, address = hub
    clients = []

    def connect() -> None:
        clients.append(connected(address))
        clients[-1].topic("t").publish(b"")

    def close() -> None:
        clients[-1].close()

    connect()
    before = threading.active_count()
    for where in each_place(close):
        quickly(close, where)
        with pytest.raises(hqueue.ClosedError):
            clients[-1].topic("t").publish(b"")
        quickly(connect, where)
    close()
    wait_for(lambda: threading.active_count() <= before, "no thread is left")


@interrupted_at(every=7)
def test_a_subscription_to_a_topic_that_was_interrupted_anywhere_is_made_again_and_served(
    hub: tuple[hqueue.Queue, Address], each_place: EachPlace
) -> None:
    _, address = hub
    made: list[TopicSubscription] = []
    came: list[bytes] = []
    published: list[bytes] = []

    def take(messages: Sequence[ReceivedMessage]) -> None:
        came.extend(each.value for each in messages)

    with connected(address) as client:

        def subscribe() -> None:
            made.append(client.topic("t").subscribe("sub", take, host="127.0.0.1"))

        def come_and_go() -> None:
            subscribe()
            close()

        def close() -> None:
            made[-1].close()
            made.pop()

        def get() -> None:
            subscribe()
            published.append(b"%d" % len(published))
            client.topic("t").publish(published[-1])
            wait_for(lambda: published[-1] in came, "it is served")
            close()

        get()
        before = threading.active_count()
        for where in each_place(come_and_go):
            while made:
                quickly(close, where)
            quickly(get, where)
        wait_for(lambda: threading.active_count() <= before, "no thread is left")

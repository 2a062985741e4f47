"""Clients of hubs and their producers that a program forgets to close."""

from __future__ import annotations

import contextlib
import gc
import os
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence

import pytest

import hqueue
from hqueue import HubClient, Message, ReceivedMessage
from tests.support.backends import MemoryBackend
from tests.support.hubs import HubThread
from tests.support.waiting import wait_for

QUEUE = "q"
MANY = 50

Connect = Callable[[], HubClient]


@pytest.fixture
def queue() -> Iterator[tuple[hqueue.Queue, Connect]]:
    """A queue with a hub, and what connects to that."""
    with contextlib.ExitStack() as stack:
        backend = MemoryBackend().apart(10_000)
        client = stack.enter_context(backend.connect())
        made = client.create_queue(QUEUE, partitions=2)
        hub = stack.enter_context(HubThread(stack.enter_context(backend.connect()), QUEUE))
        yield made, lambda: hqueue.connect_hubs(str(hub.address), queue=QUEUE)


@contextlib.contextmanager
def warned() -> Iterator[list[str]]:
    found: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ResourceWarning)
        yield found
        gc.collect()
        found += [str(each.message) for each in caught if "never closed" in str(each.message)]


def files() -> int:
    return len(os.listdir("/dev/fd"))


def test_clients_that_are_forgotten_close_their_connections_with_a_warning(
    queue: tuple[hqueue.Queue, Connect],
) -> None:
    _, connect = queue
    with connect() as first:
        first.topic("t").publish(b"first")
    gc.collect()
    before = files()
    with warned() as found:
        clients = [connect() for _ in range(MANY)]
        for client in clients:
            client.topic("t").publish(b"x")
        assert files() >= before + MANY
        gone = [weakref.ref(each) for each in clients]
        del clients, client
        gc.collect()
        assert not [each for each in gone if each() is not None]
        wait_for(lambda: files() <= before, "all connections are closed")
    assert found == ["a client of hubs was never closed"] * MANY


def test_producers_that_are_forgotten_publish_what_they_hold_and_their_client_goes_last(
    queue: tuple[hqueue.Queue, Connect],
) -> None:
    log, connect = queue
    with warned() as found:
        producers = [connect().producer(linger_ms=60_000) for _ in range(MANY)]
        for number, producer in enumerate(producers):
            producer.send(Message("t", b"%d" % number))
        del producers, producer
        gc.collect()
        wait_for(lambda: len(list(log.scan())) >= MANY, "all is published")
        wait_for(
            lambda: not [t for t in threading.enumerate() if t.name.startswith("hqueue-producer")],
            "the producers' threads have ended",
        )
    assert {m.value for m in log.scan()} == {b"%d" % number for number in range(MANY)}
    assert sorted(found) == sorted(
        ["a producer was never closed", "a client of hubs was never closed"] * MANY
    )


def test_what_is_made_of_a_client_keeps_it(queue: tuple[hqueue.Queue, Connect]) -> None:
    _, connect = queue
    got: list[bytes] = []

    def listen(messages: Sequence[ReceivedMessage]) -> None:
        got.extend(each.value for each in messages)

    with warned() as found, connect().topic("t").subscribe("s", listen):
        gc.collect()
        with connect() as publisher:
            publisher.topic("t").publish(b"x")
        wait_for(lambda: got == [b"x"], "the message came")
        assert not found


def test_what_is_closed_in_order_warns_of_nothing(queue: tuple[hqueue.Queue, Connect]) -> None:
    log, connect = queue
    with warned() as found:
        with connect() as client, client.producer() as producer:
            producer.send(Message("t", b"x"))
        del client, producer
    assert not found
    assert [m.value for m in log.scan()] == [b"x"]

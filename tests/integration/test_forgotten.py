"""What a program forgets to close lets go of threads, files and sessions when it is collected."""

from __future__ import annotations

import contextlib
import gc
import os
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import hqueue
from hqueue import Consumer, Message, Subscription
from hqueue.message import ReceivedMessage
from tests.support.backends import Backend, MemoryBackend
from tests.support.waiting import wait_for

Connect = Callable[[], hqueue.Client]
MakeQueue = Callable[..., hqueue.Queue]
Make = Callable[[int], Any]

MANY, SOME = 12, 8
"""Over memory, and over real servers, whose connections are bounded."""
SETTLED_S = 60
GATEWAY_PORTS = 2
"""A gateway speaks two protocols, each at a port of its own."""

HOLDS_NOTHING = ("client", "producer", "scanner")
"""What may have no thread and no file of its own; a client has none over memory."""


class Maker:
    """Makes objects of each kind, each of which has begun to work.

    Args:
        connect: opens a client.
        queue: the queue, in which messages are.
    """

    def __init__(self, connect: Connect, queue: hqueue.Queue) -> None:
        self._connect = connect
        self.queue = queue
        self.shared = connect()
        """A client that stays open."""

    def client(self, number: int) -> hqueue.Client:
        client = self._connect()
        client.queue(self.queue.name).put(Message("t", b"by a client"))
        client.coordination.workers.list()
        return client

    def producer(self, number: int) -> hqueue.Producer:
        producer = self._connect().queue(self.queue.name).producer(linger_ms=60_000)
        producer.send(Message("produced", b"%d" % number))
        return producer

    def consumer(self, number: int) -> Consumer:
        holder: list[Consumer] = []  # Its callbacks refer to it, as callbacks do.
        consumer = Consumer(group=f"{self.queue.name}-{number}", client=self._connect())
        holder.append(consumer)
        consumer.subscribe(
            self.queue.name, on_assigned=lambda keys: holder[0].seek_to_beginning(*keys)
        )
        assert consumer.poll(30_000)
        return consumer

    def subscriber(self, number: int) -> hqueue.Subscriber:
        subscriber = self.queue.subscriber(
            Subscription(f"s{number}"), _listen, host="127.0.0.1", shared=bool(number % 2)
        )
        subscriber.start()
        return subscriber

    def scanner(self, number: int) -> Iterator[ReceivedMessage]:
        scanner = self.queue.scan(bytes_max=5, merge_sorted=bool(number % 2))
        assert scanner.next() is not None
        return scanner  # type: ignore[return-value]


async def _listen(messages: object) -> None:
    """One that needs an event loop."""


CLOSED: dict[str, Callable[[Any], object]] = {
    "client": lambda client: client.close(),
    "producer": lambda producer: producer.close(),
    "consumer": lambda consumer: consumer.close(),
    "subscriber": lambda subscriber: subscriber.stop(),
    "scanner": lambda scanner: scanner.close(),
}


@pytest.fixture(autouse=True, scope="module")
def _without_the_tests() -> Iterator[None]:
    """Cycles are looked for again and again here: each time among all tests it takes a while."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture
def maker(connect: Connect, make_queue: MakeQueue) -> Maker:
    queue = make_queue(2)
    for n in range(40):
        queue.put(Message("t", b"%d" % n), partition=n % 2)
    return Maker(connect, queue)


@pytest.fixture
def count(backend: Backend) -> int:
    return MANY if isinstance(backend, MemoryBackend) else SOME


def held() -> tuple[int, int]:
    """How many threads there are, and how many files are open."""
    return threading.active_count(), len(os.listdir("/dev/fd"))


def left() -> tuple[int, int]:
    """What is held once what has ended meanwhile is collected, too: a client goes after what was
    made of it.
    """
    gc.collect()
    return held()


@contextlib.contextmanager
def warned(of: str) -> Iterator[list[str]]:
    """The warnings that come of objects of a kind."""
    found: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ResourceWarning)
        yield found
        gc.collect()
        found += [str(each.message) for each in caught if each.category is ResourceWarning]
    found[:] = [each for each in found if f"a {of} was never closed" in each]


@pytest.mark.parametrize("kind", CLOSED)
def test_what_is_forgotten_lets_go_of_threads_and_files_with_a_warning(
    kind: str, maker: Maker, count: int
) -> None:
    make: Make = getattr(maker, kind)
    CLOSED[kind](make(count))  # What is opened once, for all, is open.
    gc.collect()
    threads, files = held()
    settings = maker.shared.settings
    if kind == "scanner" and settings.gateways:
        # The client keeps a connection for each request that was under way at the same time.
        files += settings.connections_max * GATEWAY_PORTS
    before = (threads, files)
    with warned(kind) as warnings_given:
        made = [make(number) for number in range(count)]
        began = any(now > then for now, then in zip(held(), before, strict=True))
        assert began or kind in HOLDS_NOTHING
        gone = [weakref.ref(each) for each in made]
        del made
        gc.collect()
        assert not [each for each in gone if each() is not None]
        wait_for(
            lambda: all(now <= then for now, then in zip(left(), before, strict=True)),
            "threads and files are what they were",
            timeout_s=SETTLED_S,
        )
    assert len(warnings_given) == count
    if kind == "producer":
        wanted = {b"%d" % number for number in range(count + 1)}
        wait_for(
            lambda: {m.value for m in maker.queue.scan() if m.topic == "produced"} == wanted,
            "what the producers held is written, in the background",
        )


@pytest.mark.parametrize("kind", CLOSED)
def test_what_is_closed_in_order_warns_of_nothing(kind: str, maker: Maker) -> None:
    make: Make = getattr(maker, kind)
    with warned(kind) as warnings_given:
        for number in range(3):
            CLOSED[kind](make(number))
        if kind == "scanner":
            assert len(list(maker.queue.scan(bytes_max=5))) == 40
    assert not warnings_given


def test_what_is_made_of_a_client_keeps_it(connect: Connect, maker: Maker) -> None:
    with warned("client"):
        queue = connect().queue(maker.queue.name)
        producer = connect().queue(maker.queue.name).producer(linger_ms=60_000)
        scanner = iter(connect().queue(maker.queue.name).scan(bytes_max=5))
        gc.collect()
        assert queue.put(Message("t", b"x"))
        assert len(list(scanner)) >= 40
        producer.send(Message("t", b"y"))
        assert producer.flush()
        assert producer.close()
        found = [*queue.scan()]
    assert {b"x", b"y"} < {m.value for m in found}


def _polled(maker: Maker) -> Consumer:
    consumer = Consumer(maker.queue.name, group=f"{maker.queue.name}-polled", client=maker.shared)
    assert consumer.poll(30_000)
    return consumer


def _iterated(maker: Maker) -> Consumer:
    consumer = Consumer(maker.queue.name, group=f"{maker.queue.name}-iter", client=maker.shared)
    assert next(iter(consumer))
    return consumer


def _iterating(maker: Maker) -> Iterator[ReceivedMessage]:
    """All that is kept is the iterator, which keeps its consumer."""
    messages = iter(Consumer(maker.queue.name, group=f"{maker.queue.name}-it", client=maker.shared))
    gc.collect()
    assert next(messages)
    return messages


def _scanned(**options: Any) -> Callable[[Maker], object]:
    def scanned(maker: Maker) -> object:
        scanner = maker.queue.scan(bytes_max=5, **options)
        assert next(iter(scanner))
        return scanner

    return scanned


def _in_arrow(maker: Maker) -> object:
    scanner = maker.queue.scan(bytes_max=5)
    assert next(scanner.arrow_batches())
    return scanner


DROPPED: dict[str, Callable[[Maker], object]] = {
    "client": lambda maker: maker.client(0),
    "producer": lambda maker: maker.producer(0),
    "consumer that polled": _polled,
    "consumer that was iterated": _iterated,
    "iterator over a consumer": _iterating,
    "subscriber": lambda maker: maker.subscriber(0),
    "member of a subscriber": lambda maker: maker.subscriber(1),
    "scan": _scanned(),
    "scan by ID": _scanned(merge_sorted=True),
    "scan with a limit": _scanned(limit=3),
    "follower": _scanned(follow=True),
    "scan in Arrow": _in_arrow,
}


@pytest.mark.parametrize("kind", DROPPED)
def test_what_is_dropped_is_released_at_once_without_the_collectors_help(
    kind: str, maker: Maker
) -> None:
    """A group's partitions do not wait for the next time that cycles are collected."""
    gc.collect()
    gc.disable()
    try:
        made = DROPPED[kind](maker)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", ResourceWarning)
            gone = weakref.ref(made)
            del made
            wait_for(lambda: gone() is None, "nothing refers to it")
            wait_for(
                lambda: [each for each in caught if "was never closed" in str(each.message)],
                "it is let go of",
            )
    finally:
        gc.enable()


def test_a_scan_that_only_its_iterator_holds_goes_on(maker: Maker) -> None:
    messages = iter(maker.queue.scan(bytes_max=5))
    with warned("scanner") as given:
        assert sum(1 for _ in messages) == 40
    assert not given

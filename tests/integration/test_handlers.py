"""A handler of a signal, or a finalizer, that uses the very client that it interrupts: it is done,
or refused, at once, and what it interrupts goes on.
"""

from __future__ import annotations

import functools
import time
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

import hqueue
from hqueue import InvalidInputError, Message
from tests.integration.test_interruptions import by_gateways
from tests.support import interrupted
from tests.support.interrupted import QUEUE, QUICK_S, Connect, EachPlace, in_memory, natively
from tests.support.interrupting import each_interruption, each_line

EACH_PLACE = {"calls": functools.partial(each_interruption, every=3), "lines": each_line}


@pytest.fixture(autouse=True)
def _nobody_else_joins() -> Iterator[None]:
    with interrupted.nobody_else_joining():
        yield


@pytest.fixture(params=[natively, by_gateways, in_memory])
def connect(request: pytest.FixtureRequest) -> Connect:
    kind: Connect = request.param
    return kind


@pytest.fixture(params=EACH_PLACE.values(), ids=EACH_PLACE)
def each_place(request: pytest.FixtureRequest) -> EachPlace:
    kind: EachPlace = request.param
    return kind


class Handler:
    """Calls something, and notes whether that is done or refused."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], object]] = []
        self.came: Counter[str] = Counter()

    def __call__(self, number: int, frame: object) -> None:
        for call in self.calls:
            began_s = time.monotonic()
            try:
                call()
                self.came["done"] += 1
            except InvalidInputError as exc:
                self.came["refused" if "call that it interrupts" in str(exc) else str(exc)] += 1
            assert time.monotonic() - began_s < QUICK_S


def quick(call: Callable[[], object]) -> Callable[[], None]:
    """The same, that fails where it is kept."""

    def called() -> None:
        began_s = time.monotonic()
        call()
        assert time.monotonic() - began_s < QUICK_S

    return called


def test_a_handler_s_put_is_refused_at_once_where_it_interrupts_one_to_the_same_partition(
    connect: Connect, each_place: EachPlace
) -> None:
    handler = Handler()
    with connect() as client:
        queue = client.create_queue(QUEUE, partitions=2)
        queue.put(Message("main", b""), partition=0)
        handler.calls = [
            lambda: queue.put(Message("handler", b""), partition=0),
            lambda: queue.put(Message("handler", b""), partition=1),
            lambda: queue.put(Message("handler", b"")),
        ]
        places = 1 + sum(
            1
            for _ in each_place(
                quick(lambda: queue.put(Message("main", b""), partition=0)), handle=handler
            )
        )
        came = Counter(each.topic for each in queue.scan())
    assert came == {"main": places + 1, "handler": handler.came["done"]}
    assert set(handler.came) == {"done", "refused"}
    assert handler.came["done"] > handler.came["refused"] > 10


def test_a_handler_s_send_is_taken_wherever_it_interrupts_a_put_or_a_send(
    connect: Connect, each_place: EachPlace
) -> None:
    handler = Handler()
    with connect() as client:
        queue = client.create_queue(QUEUE, partitions=1)
        with queue.producer(linger_ms=1) as producer:
            handler.calls = [lambda: producer.send(Message("handler", b""), partition=0)]
            for call in (
                lambda: queue.put(Message("main", b""), partition=0),
                lambda: producer.send(Message("main", b""), partition=0),
            ):
                for _ in each_place(quick(call), handle=handler):
                    pass
            assert producer.close(QUICK_S)
        came = Counter(each.topic for each in queue.scan())
    assert came["handler"] == handler.came["done"] > 20
    assert set(handler.came) == {"done"}


def test_a_handler_s_commit_is_refused_at_once_where_it_interrupts_another(
    each_place: EachPlace,
) -> None:
    handler = Handler()
    with in_memory() as client:
        queue = client.create_queue(QUEUE, partitions=1)
        queue.put([Message("t", b"") for _ in range(3)])
        options = {"auto_commit": False, "client": client, "group": "g"}
        with hqueue.Consumer(QUEUE, **options) as consumer:  # type: ignore[arg-type]
            assert len(consumer.poll(QUICK_S * 1e3)) == 3
            (key,) = consumer.assignment()

            def commit() -> None:
                consumer.commit({key: consumer.position(key)})

            handler.calls = [commit, consumer.commit_async]
            for _ in each_place(quick(commit), handle=handler):
                pass
            assert consumer.committed() == {key: consumer.position(key)}
    assert handler.came["done"] > handler.came["refused"] > 10

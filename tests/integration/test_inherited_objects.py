"""What a forked child inherits and can't use says so, whatever locks were held at the fork."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

import hqueue
from hqueue import Consumer, Message, MessageID, PartitionKey, Subscription
from hqueue.topics import HubProducer
from tests.support.backends import MemoryBackend
from tests.support.consuming import put_numbered, take

BOUND_S = 20
REFUSED = "ClosedError"
Calls = Mapping[str, Callable[[], object]]


@pytest.fixture
def client() -> Iterator[hqueue.Client]:
    with MemoryBackend().connect() as connected:
        connected.create_queue("q", partitions=1)
        yield connected


@contextlib.contextmanager
def held(*locks: Any) -> Iterator[None]:
    """Locks that another thread holds: in a child nobody ever releases them."""
    taken, released = threading.Event(), threading.Event()

    def hold() -> None:
        with contextlib.ExitStack() as stack:
            for lock in locks:
                stack.enter_context(getattr(lock, "_lock", lock))  # Of a condition, too.
            taken.set()
            released.wait(BOUND_S)

    holding = threading.Thread(target=hold)
    holding.start()
    assert taken.wait(BOUND_S)
    try:
        yield
    finally:
        released.set()
        holding.join()


def in_child(calls: Calls) -> dict[str, str]:
    """What becomes of calls in a forked child: the error's name, or what was returned."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            signal.alarm(BOUND_S)  # It ends a child that hangs.
            outcomes = {}
            for name, call in calls.items():
                try:
                    outcomes[name] = repr(call())
                except Exception as exc:
                    outcomes[name] = type(exc).__name__
            os.write(writing, json.dumps(outcomes).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with open(reading, "rb") as answer:
        found: dict[str, str] = json.loads(answer.read() or b"{}")
    os.waitpid(child, 0)
    return found


def all_calls(owner: object, arguments: Mapping[str, tuple[object, ...]]) -> dict[str, Any]:
    """A call of every public method, with these arguments, and a look at every property."""
    calls: dict[str, Any] = {}
    for name in dir(type(owner)):
        found = getattr(type(owner), name)
        if name.startswith("_") and name != "__iter__":
            continue
        if isinstance(found, property):
            calls[name] = lambda name=name: getattr(owner, name)
        elif name in ("__iter__", "messages", "arrow_batches"):
            calls[name] = lambda name=name: next(iter(getattr(owner, name)()))
        elif callable(found):
            given = arguments.get(name, ())
            calls[name] = lambda name=name, given=given: getattr(owner, name)(*given)
    return calls


def test_a_consumer_and_its_streams_have_nothing_in_a_forked_child(client: hqueue.Client) -> None:
    put_numbered(client.queue("q"), 10)
    key = PartitionKey("q", 0)
    with Consumer("q", group="g", client=client) as consumer:
        (taken, *_) = take(2, consumer)
        messages = consumer.messages()
        next(messages)
        consumption = consumer._consumption
        locks = (
            consumption.lock, consumption.committer._lock, consumption.streams[0]._intake._work,
        )  # fmt: skip
        arguments: dict[str, tuple[object, ...]] = {
            "assign": ([key],),
            "position": (key,),
            "reject": (taken,),
            "seek": (key, MessageID(0)),
            "subscribe": ("q",),
        }
        calls = all_calls(consumer, arguments) | {"an iterator": lambda: next(messages)}
        with held(*locks):
            outcomes = in_child(calls)
        harmless = {name: said for name, said in outcomes.items() if said != REFUSED}
        assert outcomes.keys() == calls.keys()
        assert harmless == {
            "close": "None", "request_stop": "None", "consumer_id": repr(consumer.consumer_id),
        }  # fmt: skip
        assert consumer.assignment() == {key}, "the parent's stays its own"
    with hqueue.ParallelConsumer("q", group="h", client=client, streams=1) as parallel:
        (stream,) = parallel.streams
        take(2, stream)
        calls = all_calls(stream, {})
        with held(parallel._consumption.lock, parallel._consumption.committer._lock):
            assert in_child(calls) == dict.fromkeys(calls, REFUSED)
        assert stream.assignment() == {key}


def test_a_producer_takes_nothing_and_promises_nothing_in_a_forked_child(
    client: hqueue.Client,
) -> None:
    message = Message("t", b"x")
    publishing = threading.Event()
    hub = HubProducer(lambda topic, sent: publishing.wait(BOUND_S) and None)  # type: ignore[arg-type, return-value]
    with client.queue("q").producer(linger_ms=60_000) as producer:
        for made, arguments in (
            (producer, {"send": (message,), "send_value": ("t", b"x"), "send_batch": ([message],)}),
            (hub, {"send": (message,)}),
        ):
            sent = made.send(message)
            calls = all_calls(made, arguments) | {
                "done": sent.done, "result": sent.result, "exception": sent.exception,
            }  # fmt: skip
            with held(made._buffer._lock, sent._future._condition):
                outcomes = in_child(calls)
            assert outcomes == {**dict.fromkeys(calls, REFUSED), "close": "True"}
        publishing.set()
        assert producer.flush()
        assert sent.done() or hub.flush()
    hub.close()


@pytest.mark.parametrize("shared", [False, True])
def test_a_subscriber_is_nowhere_in_a_forked_child(client: hqueue.Client, shared: bool) -> None:
    queue = client.queue("q")
    subscriber = queue.subscriber(
        Subscription("s"), lambda messages: None, host="127.0.0.1", shared=shared
    )
    with subscriber:
        calls = all_calls(subscriber, {})
        with held(subscriber._reception.lock, subscriber._reception.serving.wanted_end._changed):
            outcomes = in_child(calls)
        assert outcomes == {
            "name": "'s'", "address": "None", "partitions": REFUSED, "start": REFUSED,
            "stop": "True", "request_stop": "None", "run": REFUSED, "wait": REFUSED,
            "failure": "None",
        }  # fmt: skip


def test_a_scanner_that_a_thread_was_reading_with_says_so_in_a_forked_child(
    client: hqueue.Client,
) -> None:
    put_numbered(client.queue("q"), 3)
    with client.queue("q").scan() as scanner:
        calls = all_calls(scanner, {})
        with held(scanner._reading.lock):
            outcomes = in_child(calls)
        read = {name for name, said in outcomes.items() if said == REFUSED}
        assert read == {"__iter__", "next", "arrow_batches"}
        assert outcomes.keys() == calls.keys()
        assert len(list(scanner)) == 3

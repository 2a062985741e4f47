"""A `__del__` of a program that the collector calls in one of the library's own threads."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

import pytest

import hqueue
from hqueue import ClosedError, Consumer, InvalidInputError, Message
from hqueue.runtime.loop import background, compute
from tests.support.backends import MemoryBackend
from tests.support.waiting import wait_for

Call = Callable[[], object]


class Finalized:
    """Garbage that only the collector finds, and that calls something then."""

    def __init__(self, call: Call, came: list[object]) -> None:
        self.itself = self
        self._call, self._came = call, came

    def __del__(self) -> None:
        try:
            result = self._call()
        except BaseException as exc:
            result = exc
        self._came += [threading.current_thread().name, result]


@pytest.fixture
def client() -> Iterator[hqueue.Client]:
    with MemoryBackend().connect() as client:
        yield client


@pytest.fixture
def queue(client: hqueue.Client) -> hqueue.Queue:
    return client.create_queue("q", partitions=1)


def finalize(call: Call, *, computing: bool = False) -> list[object]:
    """The thread's name, and what came of a call that is made when garbage is collected there."""
    came: list[object] = []
    loop = background()
    assert loop is not None
    gc.disable()
    try:
        Finalized(call, came)
        if computing:
            compute(gc.collect)
        else:
            loop.call(gc.collect)
        wait_for(lambda: len(came) == 2, "it was collected")
    finally:
        gc.enable()
    return came


def goes_on(queue: hqueue.Queue) -> list[bytes]:
    """What is in the queue, when a producer has written something more."""
    with queue.producer() as producer:
        producer.send(Message("t", b"after")).result(10)
    return sorted(message.value for message in queue.scan())


@pytest.mark.parametrize("computing", [False, True], ids=["loop", "compute"])
@pytest.mark.parametrize("what", ["close", "flush", "result"])
def test_what_waits_for_a_producer_is_refused_and_what_was_sent_is_written(
    queue: hqueue.Queue, what: str, computing: bool
) -> None:
    producer = queue.producer(linger_ms=50)

    def send_and_wait() -> object:
        sent = producer.send(Message("t", b"sent"))
        return {"close": producer.close, "flush": producer.flush, "result": sent.result}[what]()

    name, result = finalize(send_and_wait, computing=computing)
    assert name == ("hqueue-loop-compute" if computing else "hqueue-loop")
    assert isinstance(result, InvalidInputError)
    assert b"after" in goes_on(queue)
    wait_for(lambda: len(list(queue.scan())) == 2, "what was sent is written")
    producer.close()


def test_a_send_that_finds_no_room_is_refused_at_once(queue: hqueue.Queue) -> None:
    producer = queue.producer(linger_ms=60_000, buffer_bytes_max=1_000)
    producer.send(Message("t", bytes(2_000)))
    _, result = finalize(lambda: producer.send(Message("t", b"late")))
    assert isinstance(result, InvalidInputError)
    assert len(goes_on(queue)) == 1
    producer.close()


def test_reading_on_is_refused(queue: hqueue.Queue) -> None:
    queue.put(Message("t", b"one"))
    with queue.scan() as scanner:
        _, result = finalize(lambda: list(scanner))
    assert isinstance(result, InvalidInputError)
    assert goes_on(queue) == [b"after", b"one"]


def test_a_put_is_made(queue: hqueue.Queue) -> None:
    _, result = finalize(lambda: queue.put(Message("t", b"put")))
    assert isinstance(result, hqueue.MessageID)
    assert goes_on(queue) == [b"after", b"put"]


def test_a_scanner_is_closed(queue: hqueue.Queue) -> None:
    queue.put(Message("t", b"one"))
    scanner = queue.scan(follow=True)
    assert next(iter(scanner)).value == b"one"
    assert finalize(scanner.close)[1] is None
    assert goes_on(queue) == [b"after", b"one"]
    assert list(scanner) == []


def test_a_consumer_is_closed_and_leaves_its_group(
    client: hqueue.Client, queue: hqueue.Queue
) -> None:
    queue.put(Message("t", b"one"))
    consumer = Consumer("q", group="g", client=client)
    wait_for(lambda: consumer.poll(100), "it has what was put")
    assert finalize(consumer.close)[1] is None
    with pytest.raises(ClosedError):
        consumer.poll(0)
    queue.put(Message("t", b"two"))
    with Consumer("q", group="g", client=client) as other:
        wait_for(lambda: other.poll(100), "the partition has gone to another one")
    assert goes_on(queue) == [b"after", b"one", b"two"]


def test_a_commit_is_made(client: hqueue.Client, queue: hqueue.Queue) -> None:
    queue.put(Message("t", b"one"))
    with Consumer("q", group="g", client=client, auto_commit=False) as consumer:
        wait_for(lambda: consumer.poll(100), "it has what was put")
        _, result = finalize(consumer.commit)
        assert result is None
        assert len(consumer.committed()) == 1
    assert goes_on(queue) == [b"after", b"one"]


def test_a_client_is_closed() -> None:
    client = MemoryBackend().connect()
    queue = client.create_queue("q", partitions=1)
    queue.put(Message("t", b"one"))
    assert finalize(client.close)[1] is None
    with pytest.raises(ClosedError):
        queue.put(Message("t", b"two"))


def test_a_child_that_is_forked_there_may_wait(queue: hqueue.Queue) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", FORKED], capture_output=True, timeout=60, check=False
    )
    assert (ended.returncode, ended.stdout) == (0, b"InvalidInputError\n[b'child']\n"), ended


FORKED = """
import os, sys
from hqueue import Message
from hqueue.runtime.loop import background
from tests.support.backends import MemoryBackend

queue = MemoryBackend().connect().create_queue("q", partitions=1)
producer = queue.producer()

def fork():
    try:
        producer.flush()
    except Exception as exc:
        print(type(exc).__name__, flush=True)
    child = os.fork()
    if not child:
        with queue.producer() as own:
            own.send(Message("t", b"child")).result(10)
        print([message.value for message in queue.scan()], flush=True)
        os._exit(0)
    return os.waitpid(child, 0)[1]

async def run():
    return fork()

sys.exit(background().start(run).result(30))
"""


ENDING = """
import atexit, gc, threading

atexit.register(lambda: collect())  # Called after what the library does at the end.

from hqueue import Message
from hqueue.runtime.loop import background
from tests.support.backends import MemoryBackend

queue = MemoryBackend().connect().create_queue("q", partitions=1)
producer = queue.producer(linger_ms=60_000)
producer.send(Message("t", b"before"))

class Finalized:
    def __init__(self):
        self.itself = self
    def __del__(self):
        try:
            producer.send(Message("t", b"while it ends"))
        except Exception as exc:
            print(type(exc).__name__, flush=True)
        finalized.set()

finalized = threading.Event()

def collect():
    Finalized()
    background().call(gc.collect)
    finalized.wait(30)
    print([message.value for message in queue.scan()], flush=True)

gc.disable()
"""


def test_a_send_while_the_program_ends_is_refused_and_the_program_ends() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", ENDING], capture_output=True, timeout=60, check=False
    )
    assert ended.returncode == 0, ended
    assert ended.stdout == b"ClosedError\n[b'before']\n", ended

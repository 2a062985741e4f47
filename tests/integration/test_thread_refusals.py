"""The system refuses a thread once, the first, the second and so on of an operation: that works
without, or raises an error; and afterwards all works, and nothing is missing.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence

import pytest

import hqueue
from hqueue import Consumer, HQueueError, Message
from hqueue.client import Client
from hqueue.runtime import loop
from hqueue.runtime.thread_pool import ThreadPool
from tests.support.backends import MemoryBackend
from tests.support.hubs import HubThread
from tests.support.memory.metadata import MemoryServer
from tests.support.thread_refusal import loop_not_begun, threads_refused
from tests.support.waiting import wait_for

MESSAGES = 200
QUICK_S = 10.0
QUEUE = "refused"


@pytest.fixture
def memory() -> MemoryBackend:
    return MemoryBackend(coordination=MemoryServer(session_timeout_ms=1_000))


@pytest.fixture
def client(memory: MemoryBackend) -> Iterator[Client]:
    with memory.connect(operation_timeout_ms=4_000) as connected:
        queue = connected.create_queue(QUEUE, partitions=2)
        for partition in range(2):
            half = [Message("t", b"%d" % n) for n in range(partition, MESSAGES, 2)]
            for first in range(0, len(half), 10):
                queue.put(half[first : first + 10], partition=partition)
        yield connected


@contextlib.contextmanager
def refusing(number: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Refuse the n-th thread of the library that is started; its name, when that has happened.
    The process has no loop thread yet.
    """
    left, refused = [number], list[str]()

    def is_refused(thread: threading.Thread) -> bool:
        if not thread.name.startswith("hqueue"):
            return False
        left[0] -= 1
        if left[0] == 0:
            refused.append(thread.name)
        return left[0] == 0

    with (
        threads_refused(is_refused=is_refused),
        loop_not_begun(),
        monkeypatch.context() as patching,
    ):
        patching.setattr(loop, "_blocking", ThreadPool(loop.BLOCKING_MAX, "hqueue-loop-call"))
        yield refused


def each_refusal(
    monkeypatch: pytest.MonkeyPatch, operation: Callable[[], object]
) -> Iterator[tuple[str, HQueueError | None]]:
    """Do something with its first thread refused, then with its second, until it needs no more;
    which it was, and what the operation raised.
    """
    number = 0
    while True:
        number += 1
        error: HQueueError | None = None
        with refusing(number, monkeypatch) as refused:
            try:
                operation()
            except HQueueError as exc:
                error = exc
        if not refused:
            assert error is None
            assert number > 1, "no thread was started"
            return
        yield refused[0], error


def consumed(consumer: Consumer, count: int) -> set[bytes]:
    values: set[bytes] = set()
    ends_s = time.monotonic() + QUICK_S
    while len(values) < count and time.monotonic() < ends_s:
        values.update(each.value for each in consumer.poll(100))
    return values


def test_a_scan_reads_all_or_says_that_it_does_not(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = client.queue(QUEUE)
    counts: list[int] = []
    for refused, error in each_refusal(
        monkeypatch, lambda: counts.append(sum(1 for _ in queue.scan(bytes_max=1_000)))
    ):
        assert error is not None or counts.pop() == MESSAGES, refused
        if len(counts) > 20:
            break
    assert sum(1 for _ in queue.scan()) == MESSAGES


def test_a_consumer_gets_all_and_commits(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    groups = iter(range(1_000))
    committed: list[object] = []

    def consume() -> None:
        with Consumer(QUEUE, group=f"g{next(groups)}", client=client, auto_commit=False) as one:
            assert len(consumed(one, MESSAGES)) == MESSAGES
            called = threading.Event()
            one.commit_async(on_commit=lambda moved, error: called.set())
            assert called.wait(QUICK_S)
            one.commit()
            committed.append(one.committed())

    for number, (refused, error) in enumerate(each_refusal(monkeypatch, consume)):
        assert error is not None or len(committed.pop()) == 2, refused  # type: ignore[arg-type]
        if number > 12:
            break


def test_a_member_that_could_not_begin_leaves_its_partitions_to_others(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def join() -> None:
        Consumer(QUEUE, group="g", client=client).close()

    for refused, _ in each_refusal(monkeypatch, join):
        with Consumer(QUEUE, group="g", client=client, auto_commit=False) as other:
            began_s = time.monotonic()
            assert len(consumed(other, MESSAGES)) == MESSAGES, refused
            assert time.monotonic() - began_s < QUICK_S / 2


def test_a_producer_writes_all_or_is_not_made_and_leaves_no_thread(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = client.queue(QUEUE)

    def produce() -> None:
        with queue.producer() as producer:
            deliveries = [producer.send(Message("t", b"more")) for _ in range(10)]
            assert producer.flush(QUICK_S)
            assert all(delivery.result(0) for delivery in deliveries)

    for refused, error in each_refusal(monkeypatch, produce):
        assert error is None, refused
        wait_for(
            lambda: not [t for t in threading.enumerate() if t.name.startswith("hqueue-producer")],
            "its threads end",
        )


def test_following_and_first_puts_need_no_thread_that_is_refused(
    client: Client, memory: MemoryBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = client.queue(QUEUE)

    def put_first() -> None:
        with memory.connect(operation_timeout_ms=4_000, notify_workers=True) as first:
            first.queue(QUEUE).put(Message("t", b"first"))

    for number, (refused, error) in enumerate(each_refusal(monkeypatch, put_first)):
        assert error is None, refused
        if number > 5:
            break
    with refusing(1, monkeypatch):
        assert sum(1 for _ in queue.scan(follow=True, idle_ms_max=100)) >= MESSAGES


def test_a_topic_is_followed_by_hubs_or_not_subscribed_to(
    memory: MemoryBackend, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    came: list[bytes] = []
    numbers = iter(range(1_000))
    with (
        memory.connect() as served,
        HubThread(served, QUEUE) as hub,
        hqueue.connect_hubs(hub.address, queue=QUEUE, operation_timeout_ms=4_000) as topics,
    ):

        def take(messages: Sequence[hqueue.ReceivedMessage]) -> None:
            came.extend(each.value for each in messages)

        def subscribe() -> None:
            with topics.topic("topic").subscribe("sub", take, host="127.0.0.1"):
                value = b"%d" % next(numbers)
                topics.topic("topic").publish(value)
                wait_for(lambda: value in came, "it is served")

        for number, _ in enumerate(each_refusal(monkeypatch, subscribe)):
            if number > 20:
                break
        subscribe()


def test_a_subscriber_that_could_not_start_is_gone_and_another_starts(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = client.queue(QUEUE)

    async def listener(messages: object) -> None:
        """An event loop runs for it."""

    def subscribe() -> None:
        subscription = hqueue.Subscription("s")
        with queue.subscriber(subscription, listener, host="127.0.0.1"):
            pass

    for number, _ in enumerate(each_refusal(monkeypatch, subscribe)):
        subscribe()
        assert number < 20

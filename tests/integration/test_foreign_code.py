"""The program's own functions in threads of the library: whatever they raise ends none of these,
and nobody waits for ever.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable

import pytest

import hqueue
from hqueue import ClosedError, Consumer, InvalidInputError, Message, MessageID, PartitionKey
from tests.support.consuming import put_numbered, settle, take
from tests.support.waiting import wait_for

MakeQueue = Callable[..., hqueue.Queue]
Join = Callable[..., Consumer]

pytestmark = pytest.mark.in_memory


def exits() -> None:
    sys.exit(1)


def is_interrupted() -> None:
    raise KeyboardInterrupt


def is_cancelled() -> None:
    raise asyncio.CancelledError


def fails_its_test() -> None:
    pytest.fail("what pytest raises is no Exception")


RAISES = [exits, is_interrupted, is_cancelled, fails_its_test]


@pytest.mark.parametrize("raises", RAISES)
def test_a_delivery_callback_that_raises_anything_ends_no_thread_of_its_producer(
    raises: Callable[[], None], make_queue: MakeQueue, caplog: pytest.LogCaptureFixture
) -> None:
    queue = make_queue(2)
    called: list[object] = []

    def callback(message_id: MessageID | None, error: BaseException | None) -> None:
        called.append(message_id)
        raises()

    with queue.producer(linger_ms=0) as producer:
        for n in range(20):
            producer.send(Message("t", b"%d" % n), partition=n % 2, callback=callback)
        assert producer.flush(30)
        assert len(called) == 20
        assert producer.send(Message("t", b"on")).result(30)
        assert producer.close(30)
    assert "a delivery callback raised" in caplog.text


@pytest.fixture
def consumer(make_queue: MakeQueue, join_in_threads: Join) -> Consumer:
    """One that was handed out ten messages."""
    queue = make_queue(1)
    put_numbered(queue, 10)
    joined = join_in_threads(queue, auto_commit=False)
    take(10, joined)
    return joined


def at_end(consumer: Consumer) -> None:
    """Committed is all that was handed out, and the consumer goes on."""
    (key,) = consumer.assignment()
    consumer.commit()
    assert consumer.committed() == {key: consumer.position(key)}
    assert consumer.poll(50) == []


@pytest.mark.parametrize("raises", RAISES)
def test_a_callback_of_a_commit_that_raises_anything_holds_up_no_later_commit(
    raises: Callable[[], None], consumer: Consumer
) -> None:
    called = threading.Event()

    def on_commit(moved: object, error: object) -> None:
        called.set()
        raises()

    consumer.commit_async(on_commit=on_commit)
    assert called.wait(30)
    second = threading.Event()
    consumer.commit_async(on_commit=lambda moved, error: second.set())
    assert second.wait(30)
    at_end(consumer)


def test_a_callback_of_a_commit_may_commit_now_or_later(consumer: Consumer) -> None:
    ended: list[object] = []

    def on_commit(moved: dict[PartitionKey, MessageID], error: object) -> None:
        try:
            consumer.commit(moved)
            consumer.commit()
            consumer.commit_async(moved, lambda again, error: ended.append(again == moved))
        except BaseException as exc:
            ended.append(exc)

    consumer.commit_async(on_commit=on_commit)
    wait_for(lambda: ended, "it has committed")
    assert ended == [True]
    at_end(consumer)


def test_a_commit_without_places_in_a_callback_passes_nothing_that_is_worked_on(
    make_queue: MakeQueue, join_in_threads: Join
) -> None:
    queue = make_queue(1)
    put_numbered(queue, 4)
    consumer = join_in_threads(queue, auto_commit=False)
    messages = consumer.messages(idle_ms_max=60_000)
    first, second = next(messages), next(messages)
    handed_out, committed = threading.Event(), threading.Event()

    def on_commit(moved: object, error: object) -> None:
        assert handed_out.wait(30)
        consumer.commit()
        committed.set()

    consumer.commit_async(first, on_commit)
    worked_on = next(messages)
    handed_out.set()
    assert committed.wait(30)
    assert second.id < consumer.committed()[PartitionKey(queue.name, 0)] <= worked_on.id


@pytest.mark.in_memory_first
def test_a_callback_of_a_commit_may_close_its_consumer(consumer: Consumer) -> None:
    closed = threading.Event()

    def on_commit(moved: object, error: object) -> None:
        consumer.close()
        closed.set()

    consumer.commit_async(on_commit=on_commit)
    assert closed.wait(30)
    with pytest.raises(ClosedError):
        consumer.poll()


@pytest.mark.parametrize("ends", ["close", "a block", "unsubscribe", "another member"])
@pytest.mark.parametrize("later", [False, True])
def test_what_on_revoked_commits_is_committed_however_the_partitions_go(
    ends: str, later: bool, make_queue: MakeQueue, join_in_threads: Join
) -> None:
    queue = make_queue(2)
    put_numbered(queue, 10)
    errors: list[object] = []
    consumer = join_in_threads(auto_commit=False)

    def on_revoked(partitions: list[PartitionKey]) -> None:
        assert partitions
        if later:
            consumer.commit_async(on_commit=lambda _, error: errors.append(error))
        else:
            consumer.commit()
            errors.append(None)

    consumer.subscribe(queue.name, on_revoked=on_revoked)
    handed_out = take(10, consumer)
    ends_of = {each.partition: each.id.next() for each in handed_out}
    if ends == "close":
        consumer.close()
    elif ends == "a block":
        with consumer:
            pass
    elif ends == "unsubscribe":
        consumer.unsubscribe()
    other = join_in_threads(queue, auto_commit=False)
    if ends == "another member":
        settle(consumer, other, shares=[1, 1])
    else:
        settle(other, shares=[2])
    wait_for(lambda: errors == [None], "it is committed")
    (freed, *_) = other.assignment()
    assert other.committed([freed]) == {freed: ends_of[freed.partition]}


def test_what_a_callback_for_partitions_can_t_do_is_refused_at_once(
    make_queue: MakeQueue, join_in_threads: Join
) -> None:
    queue = make_queue(1)
    put_numbered(queue, 3)
    consumer = join_in_threads(auto_commit=False)
    calls: list[Callable[[], object]] = [
        consumer.close,
        consumer.unsubscribe,
        consumer.poll,
        lambda: next(iter(consumer)),
        lambda: consumer.subscribe(queue.name),
    ]
    refused: list[str] = []

    def on_assigned(partitions: list[PartitionKey]) -> None:
        for call in calls:
            with pytest.raises(InvalidInputError, match="a callback for assigned") as error:
                call()
            refused.append(error.value.text)

    consumer.subscribe(queue.name, on_assigned=on_assigned)
    assert len(take(3, consumer)) == 3
    assert len(refused) == len(calls)
    consumer.close()

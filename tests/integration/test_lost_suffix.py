"""What readers and writers do when a log has lost its newest batches, which some of them have seen:
as a queue with `durability` `SYNC_WAL` may when all servers lose power.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable
from typing import Any

import pytest

import hqueue
from hqueue import Consumer, OffsetOutOfRangeError, ShareConsumer, Subscription
from hqueue_workers.delivery import poller
from tests.support.backends import Backend
from tests.support.consuming import put_numbered, take, values
from tests.support.hubs import HubThread
from tests.support.lost_suffix import lose_suffix
from tests.support.past import DAY_MS, put_in_the_past
from tests.support.raw import RawTables
from tests.support.waiting import wait_for

from .pushing import Received, put_numbers

pytestmark = pytest.mark.in_memory_first

MakeQueue = Callable[..., hqueue.Queue]
OLD = [0, 0, 0]
"""What `put_in_the_past` puts."""


@pytest.fixture
def queue(make_queue: MakeQueue, raw: RawTables) -> hqueue.Queue:
    """A queue with messages of yesterday, and six of now."""
    queue = make_queue(1)
    put_in_the_past(raw, queue, [DAY_MS])
    put_numbered(queue, 6, first=1)
    return queue


def contents(queue: hqueue.Queue) -> list[int]:
    """All messages of a log, which is sound."""
    assert not list(queue.verify())[-1].findings
    return [int(message.value) for message in queue.scan()]


@pytest.mark.parametrize("after", [1, 3, 5])
def test_a_follower_that_saw_what_is_lost_gets_all_that_comes_then(
    queue: hqueue.Queue, raw: RawTables, after: int
) -> None:
    with queue.scan(follow=True) as scanner:
        got: list[int] = []
        wanted = len(OLD) + 6 + after
        values = (int(message.value) for message in scanner)
        following = threading.Thread(
            target=lambda: got.extend(itertools.islice(values, wanted)), daemon=True
        )
        following.start()
        wait_for(lambda: len(got) == len(OLD) + 6, "it follows")
        lose_suffix(raw, queue, 3)
        put_numbered(queue, after, first=7)
        following.join(60)
    assert got == [*OLD, *range(1, 7 + after)]
    assert contents(queue) == [*OLD, 1, 2, 3, *range(7, 7 + after)]


def test_a_scan_from_beyond_the_end_gets_all_that_comes_then(
    queue: hqueue.Queue, raw: RawTables
) -> None:
    end = queue.offsets()[0].end
    lose_suffix(raw, queue, 3)
    assert list(queue.scan(start=end)) == []
    put_numbered(queue, 5, first=7)
    assert [int(message.value) for message in queue.scan(start=end)] == [7, 8, 9, 10, 11]


@pytest.mark.parametrize("while_away", [False, True])
def test_a_group_that_consumed_what_is_lost_gets_what_comes_then_and_nothing_again(
    client: hqueue.Client,
    queue: hqueue.Queue,
    raw: RawTables,
    queue_name: str,
    while_away: bool,
) -> None:
    consumer = Consumer([queue.name], group=queue_name, client=client)
    assert values(take(9, consumer)) == [*OLD, 1, 2, 3, 4, 5, 6]
    if while_away:
        consumer.close()
    assert lose_suffix(raw, queue, 3) == 6
    put_numbered(queue, 2, first=7)
    if while_away:
        consumer = Consumer([queue.name], group=queue_name, client=client)
    with consumer:
        assert values(take(2, consumer)) == [7, 8]
        put_numbered(queue, 2, first=9)
        assert values(take(2, consumer)) == [9, 10]
        consumer.commit()
    assert client.describe_group(queue_name).partitions[0].lag.messages == 0  # type: ignore[union-attr]


def test_a_group_that_is_ahead_of_a_log_to_which_nothing_comes_waits_at_its_end(
    backend: Backend, queue: hqueue.Queue, raw: RawTables, queue_name: str
) -> None:
    with (
        backend.connect(operation_timeout_ms=1_000) as client,
        Consumer([queue.name], group=queue_name, client=client) as consumer,
    ):
        assert len(take(9, consumer)) == 9
        lose_suffix(raw, queue, 3)
        end = queue.offsets()[0].end

        def stands_at_the_end() -> bool:
            assert not consumer.poll(50)
            return consumer.position((queue.name, 0)) == end

        wait_for(stands_at_the_end, "it has seen that the log is shorter")
        put_numbered(queue, 2, first=7)
        assert values(take(2, consumer)) == [7, 8]


def test_a_group_that_wants_an_error_gets_one_until_it_seeks(
    client: hqueue.Client, queue: hqueue.Queue, raw: RawTables, queue_name: str
) -> None:
    with Consumer([queue.name], group=queue_name, client=client) as first:
        end = take(9, first)[-1].id
    lose_suffix(raw, queue, 3)
    put_numbered(queue, 2, first=7)
    options: Any = {"group": queue_name, "client": client, "auto_offset_reset": "error"}
    with Consumer([queue.name], **options) as consumer:
        for _ in range(2):
            with pytest.raises(OffsetOutOfRangeError, match="lost its newest messages"):
                take(1, consumer)
        consumer.seek((queue.name, 0), end)
        assert values(take(2, consumer)) == [7, 8]


def test_a_put_with_the_idempotency_key_of_a_lost_batch_appends_it_again(
    queue: hqueue.Queue, raw: RawTables
) -> None:
    def put(number: int) -> hqueue.MessageID:
        message = hqueue.Message("t", b"%d" % number)
        (found,) = queue.put([message], partition=0, idempotency_key=b"%d" % number)
        return found

    before = [put(number) for number in (7, 8, 9)]
    lose_suffix(raw, queue, 2)
    after = [put(number) for number in (7, 8, 9)]
    assert after[0] == before[0]
    assert after[1] > before[2]
    assert contents(queue) == [*OLD, 1, 2, 3, 4, 5, 6, 7, 8, 9]


def test_a_share_group_that_had_what_is_lost_gets_what_comes_then(
    client: hqueue.Client, queue: hqueue.Queue, raw: RawTables, queue_name: str
) -> None:
    options: Any = {"group": queue_name, "client": client, "auto_acknowledge": False}

    def got(count: int, consumer: ShareConsumer) -> list[int]:
        found: list[int] = []

        def turn() -> bool:
            for message in consumer.poll(100):
                found.append(int(message.value))
                if message.value in (b"2", b"5"):
                    consumer.release(message)
                elif message.value != b"6":
                    consumer.acknowledge(message)
            consumer.commit()
            return len(found) >= count

        wait_for(turn, f"{count} messages")
        return found

    with ShareConsumer(queue.name, **options) as consumer:
        assert [int(m.value) for m in consumer.poll(1_000, 9)] == [*OLD, 1, 2, 3, 4, 5, 6]
    with ShareConsumer(queue.name, **options) as consumer:
        # Some are acknowledged, some released, and one it has when they are lost.
        assert got(9, consumer)[:9] == [*OLD, 1, 2, 3, 4, 5, 6]
        lose_suffix(raw, queue, 3)
        put_numbered(queue, 2, first=7)
        wait_for(lambda: {7, 8} <= set(got(1, consumer)), "what came then")


def test_a_subscriber_of_push_that_had_what_is_lost_gets_what_comes_then(
    make: Any, start: Any, raw: RawTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Of a worker in a thread; another one takes a minute to look.
    monkeypatch.setattr(poller, "CHECK_EVERY_MS", 1_000.0)
    queue = make(1)
    start(checkpoint_ms=50)
    received = Received()
    with queue.subscriber(Subscription("s"), received):
        received.await_values(put_numbers(queue, range(6)))
        lose_suffix(raw, queue, 3)
        received.await_values(put_numbers(queue, range(6, 9)), timeout_s=120)
        assert received.values == [b"%d" % number for number in range(9)]


@pytest.mark.parametrize("taken_over", [False, True])
def test_a_subscriber_of_a_hub_that_had_what_is_lost_gets_what_comes_then(
    backend: Backend, make_queue: MakeQueue, raw: RawTables, taken_over: bool
) -> None:
    queue = make_queue(1)
    with contextlib.ExitStack() as stack:
        hubs = [
            stack.enter_context(
                HubThread(stack.enter_context(backend.connect()), queue.name, balance_ms=3_600_000)
            )
            for _ in range(2)
        ]
        addresses = ",".join(str(hub.address) for hub in hubs)
        topic = stack.enter_context(hqueue.connect_hubs(addresses, queue=queue.name)).topic("t")
        received = Received()
        stack.enter_context(topic.subscribe("s", received))
        for number in range(6):
            last = topic.publish(b"%d" % number)
        received.await_values([b"5"])
        lose_suffix(raw, queue, 3)
        if taken_over:
            for hub in hubs:
                hub.hosted(queue.name).topics.abandon("t").result(60)
        for number in range(6, 9):
            again = topic.publish(b"%d" % number)
        received.await_values([b"6", b"7", b"8"])
        assert received.values == [b"%d" % number for number in range(9)]
        assert again > last
        with queue.scan_topic("t") as scanner:
            assert [message.value for message in scanner] == [b"0", b"1", b"2", b"6", b"7", b"8"]

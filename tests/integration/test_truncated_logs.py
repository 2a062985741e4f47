"""What consumers and followers get of a log that began again: its queue was truncated, or deleted
and made again.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import hqueue
from hqueue import Consumer, MessageID, OffsetOutOfRangeError
from tests.support.backends import Backend
from tests.support.consuming import put_numbered, settle, take, values
from tests.support.past import DAY_MS, put_in_the_past
from tests.support.raw import RawTables
from tests.support.waiting import wait_for

pytestmark = pytest.mark.in_memory_first

MakeQueue = Callable[..., hqueue.Queue]
Join = Callable[..., Consumer]


@pytest.fixture
def join(backend: Backend, queue_name: str) -> Iterator[Join]:
    """Consumers of one group, which believe soon that a log is too short."""
    made: list[Consumer] = []
    with backend.connect(operation_timeout_ms=2_000) as client:

        def make(*queues: hqueue.Queue, **options: Any) -> Consumer:
            names = [queue.name for queue in queues]
            consumer = Consumer(names, group=queue_name, client=client, **options)
            made.append(consumer)
            return consumer

        yield make
        for consumer in made:
            consumer.close(commit=False)


def make_again(client: hqueue.Client, queue: hqueue.Queue) -> None:
    client.disable_queue(queue.name)
    client.delete_queue(queue.name)
    client.create_queue(queue.name, partitions=queue.partitions)


@pytest.mark.parametrize("reset", ["earliest", "latest"])
@pytest.mark.parametrize("begin_again", [lambda c, q: c.truncate_queue(q.name), make_again])
def test_a_consumer_that_listened_gets_the_new_log_from_its_first_message_on(
    client: hqueue.Client, make_queue: MakeQueue, join: Join, reset: str, begin_again: Any
) -> None:
    queue = make_queue(1)
    consumer = join(queue, auto_offset_reset=reset)
    settle(consumer, shares=[1])
    put_numbered(queue, 3)
    assert values(take(3, consumer)) == [0, 1, 2]
    begin_again(client, queue)
    again = client.queue(queue.name)
    got: list[int] = []
    for number in range(5):
        put_numbered(again, 1, first=number)
        got += values(take(1, consumer))
    assert got == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("reset", ["earliest", "latest"])
def test_a_consumer_that_comes_later_gets_the_new_log_from_its_first_message_on(
    client: hqueue.Client, make_queue: MakeQueue, join: Join, reset: str
) -> None:
    queue = make_queue(1)
    put_numbered(queue, 5)
    with join(queue) as first:
        take(5, first)
    client.truncate_queue(queue.name)
    put_numbered(queue, 3, first=5)
    assert values(take(3, join(queue, auto_offset_reset=reset))) == [5, 6, 7]


def consume_the_future(raw: RawTables, queue: hqueue.Queue, join: Join) -> MessageID:
    """Consume what a writer wrote whose clock was ahead by a day; where the group is then."""
    put_in_the_past(raw, queue, [-DAY_MS])
    with join(queue) as consumer:
        consumed = take(3, consumer)
    return consumed[-1].id.next()


@pytest.mark.parametrize("reset", ["earliest", "latest"])
def test_an_offset_that_the_new_log_does_not_reach_hides_no_message(
    client: hqueue.Client, make_queue: MakeQueue, raw: RawTables, join: Join, reset: str
) -> None:
    queue = make_queue(1)
    beyond = consume_the_future(raw, queue, join)
    client.truncate_queue(queue.name)
    put_numbered(queue, 3)
    consumer = join(queue, auto_offset_reset=reset)
    assert values(take(3, consumer)) == [0, 1, 2]
    put_numbered(queue, 2, first=3)
    assert values(take(2, consumer)) == [3, 4]
    assert consumer.position((queue.name, 0)) < beyond


def test_an_offset_that_the_new_log_does_not_reach_is_an_error_where_one_is_wanted_until_it_seeks(
    client: hqueue.Client, make_queue: MakeQueue, raw: RawTables, join: Join
) -> None:
    queue = make_queue(1)
    consume_the_future(raw, queue, join)
    client.truncate_queue(queue.name)
    put_numbered(queue, 3)
    consumer = join(queue, auto_offset_reset="error")
    for _ in range(2):
        with pytest.raises(OffsetOutOfRangeError, match="truncated or created again"):
            take(1, consumer)
    consumer.seek_to_beginning()
    assert values(take(3, consumer)) == [0, 1, 2]


def test_a_follower_from_the_end_gets_the_new_log_from_its_first_message_on(
    client: hqueue.Client, make_queue: MakeQueue
) -> None:
    queue = make_queue(1)
    put_numbered(queue, 3)
    end = queue.offsets()[0].end
    with queue.scan(start=end, follow=True) as scanner:
        got: list[bytes] = []
        following = threading.Thread(
            target=lambda: got.extend(itertools.islice((m.value for m in scanner), 4)), daemon=True
        )
        following.start()
        put_numbered(queue, 1, first=3)
        wait_for(lambda: got, "it follows")
        client.truncate_queue(queue.name)
        put_numbered(queue, 3, first=4)
        following.join(60)
    assert got == [b"3", b"4", b"5", b"6"]

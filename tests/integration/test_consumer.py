"""Consumers of a group: they share partitions, and each message is handed out and committed."""

from __future__ import annotations

from collections.abc import Callable

import hqueue
from hqueue import Consumer, PartitionKey
from tests.support.consuming import (
    EXTRAS,
    put_numbered,
    put_with_extras,
    settle,
    take,
    values,
)

MakeQueue = Callable[..., hqueue.Queue]
Join = Callable[..., Consumer]


def test_one_that_is_alone_gets_every_message_once_and_in_order(
    make_queue: MakeQueue, join: Join
) -> None:
    queue = make_queue(4)
    put_numbered(queue, 200)
    taken = take(200, join(queue), messages_max=7)
    assert values(taken) == list(range(200))
    assert {message.queue for message in taken} == {queue.name}
    for partition in range(4):
        ids = [message.id for message in taken if message.partition == partition]
        assert ids == sorted(ids)
        assert len(ids) == 50


def test_batches_with_and_without_keys_and_headers_are_handed_out_as_one(
    make_queue: MakeQueue, join: Join
) -> None:
    queue = make_queue(1)
    put_with_extras(queue)
    taken = take(EXTRAS, join(queue))
    assert [(m.value, m.key, m.headers, m.id) for m in taken] == [
        (m.value, m.key, m.headers, m.id) for m in queue.scan()
    ]
    assert {m.key for m in taken} == {None, b"", b"k"}
    assert all(m.timestamp == m.id.timestamp for m in taken)


def test_members_share_the_partitions_and_nothing_is_handed_out_twice(
    make_queue: MakeQueue, join: Join
) -> None:
    queue = make_queue(5)
    first = join(queue)
    settle(first, shares=[5])
    second, third = join(queue), join(queue)
    settle(first, second, third, shares=[1, 2, 2])
    put_numbered(queue, 100)
    assert values(take(100, first, second, third)) == list(range(100))
    second.close()
    settle(first, third, shares=[2, 3])
    put_numbered(queue, 100, first=100)
    assert values(take(100, first, third)) == list(range(100, 200))


def test_what_was_committed_is_where_the_next_one_goes_on(
    make_queue: MakeQueue, join: Join
) -> None:
    queue = make_queue(2)
    put_numbered(queue, 20)
    first = join(queue, auto_commit=False)
    done = take(10, first, messages_max=1)
    first.commit()
    take(4, first)
    assert sum(lag.messages for lag in first.lag().values()) == 6
    first.close()
    second = join(queue)
    assert values(done + take(10, second)) == list(range(20))
    second.close()
    third = join(queue)
    settle(third, shares=[2])
    assert third.committed() == {key: third.position(key) for key in third.assignment()}


def test_a_partition_that_stays_is_not_stopped_when_another_member_joins(
    make_queue: MakeQueue, join: Join
) -> None:
    queue = make_queue(4)
    revoked: list[PartitionKey] = []
    assigned: list[PartitionKey] = []
    first = join()
    first.subscribe(queue.name, on_assigned=assigned.extend, on_revoked=revoked.extend)
    settle(first, shares=[4])
    second = join(queue)
    settle(first, second, shares=[2, 2])
    assert set(revoked) == second.assignment()
    assert len(assigned) == 4


def test_a_static_member_that_comes_back_has_its_partitions_and_nothing_moves(
    make_queue: MakeQueue, join: Join
) -> None:
    queue = make_queue(4)
    moved: list[PartitionKey] = []
    other = join()
    other.subscribe(queue.name, on_assigned=moved.extend, on_revoked=moved.extend)
    first = join(queue, instance_id="static")
    settle(other, first, shares=[2, 2])
    had = first.assignment()
    first.close()
    moved.clear()
    again = join(queue, instance_id="static")
    settle(other, again, shares=[2, 2])
    assert again.assignment() == had
    assert moved == []

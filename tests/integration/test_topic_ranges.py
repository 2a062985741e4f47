"""A topic that moves from owner to owner: its ranges, who is fenced, and who reads all of it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest

import hqueue
from hqueue import ClosedError, InvalidInputError, Message
from hqueue.errors import BadVersionError, NoTopicPersistenceInfoError, TopicFencedError
from hqueue.store import StorePort
from tests.support.queue_faces import queue_face_of
from tests.support.topic_owners import TopicOwner


@pytest.fixture(params=["threads", pytest.param("asyncio", marks=pytest.mark.in_memory)])
def queue(
    make_queue: Callable[..., hqueue.Queue], client: hqueue.Client, request: pytest.FixtureRequest
) -> Iterator[hqueue.Queue]:
    with queue_face_of(request.param) as face:
        yield face(client, make_queue(partitions=2))


@pytest.fixture
def start(
    client: hqueue.Client, store: StorePort, queue: hqueue.Queue
) -> Iterator[Callable[[int], TopicOwner]]:
    """Starts a hub that has a partition."""
    with contextlib.ExitStack() as stack:

        def start_one(partition: int) -> TopicOwner:
            metadata = stack.enter_context(client.topic_metadata(queue.name))
            return TopicOwner(metadata, store, queue.name, partition)

        yield start_one


def values(queue: hqueue.Queue, **bounds: object) -> list[bytes]:
    with queue.scan_topic("t", **bounds) as scanner:  # type: ignore[arg-type]
        found = list(scanner)
    assert [m.id for m in found] == sorted(m.id for m in found)
    return [m.value for m in found]


def test_a_topic_is_read_over_all_its_ranges_and_a_deposed_owner_is_fenced(
    start: Callable[[int], TopicOwner], queue: hqueue.Queue
) -> None:
    a, b = start(0), start(1)
    a.take()
    a.publish(b"1", b"2")
    queue.put(Message("u", b"another topic's"), partition=0)
    queue.put([Message("t", b"put past the owner")] * 3, partition=0)
    b.take()
    with pytest.raises(TopicFencedError):
        a.publish(b"late")
    assert a.fenced == [("t", 2)]
    b.publish(b"3")
    queue.put(Message("t", b"past this one, too"), partition=1)
    b.take()  # From itself, as after a session that it lost.
    b.publish(b"4")
    a.take()
    with pytest.raises(TopicFencedError):
        b.publish(b"later")
    a.publish(b"5")
    assert values(queue) == [b"1", b"2", b"3", b"4", b"5"]
    ranges, _ = a.read()
    assert [each.epoch for each in ranges] == [1, 2, 3, 4]
    assert values(queue, start=ranges[1].first, stop=ranges[3].first) == [b"3", b"4"]
    assert values(queue, start=ranges[3].first) == [b"5"]
    last = {check.partition: check for check in queue.verify(ranges={"t": ranges})}
    assert [(each.findings, each.unfinished) for each in last.values()] == [([], [])] * 2
    assert sum(each.outside for each in last.values()) == 4
    with queue.scan_topic("t") as scanner:
        rows = [row for batch in scanner.arrow_batches() for row in batch.to_pylist()]
    assert [row["value"] for row in rows] == [b"1", b"2", b"3", b"4", b"5"]


def test_of_two_that_take_it_over_at_once_one_has_it(
    start: Callable[[int], TopicOwner], queue: hqueue.Queue
) -> None:
    a, b, c = (start(partition) for partition in (0, 1, 0))
    a.take()
    a.publish(b"1")
    seen_by_b, seen_by_c = b.read(), c.read()
    c.change(*seen_by_c)
    c.publish(b"2")
    with pytest.raises(BadVersionError):
        b.change(*seen_by_b)
    c.publish(b"3")  # The record of the one that lost has no higher epoch.
    assert c.fenced == []
    with pytest.raises(TopicFencedError):
        a.publish(b"late")
    b.take()
    b.publish(b"4")
    with pytest.raises(TopicFencedError):
        c.publish(b"late")
    assert values(queue) == [b"1", b"2", b"3", b"4"]


def test_a_topic_that_nobody_owned_and_senseless_bounds_are_refused(queue: hqueue.Queue) -> None:
    queue.put(Message("t", b"put, and not published"))
    with pytest.raises(NoTopicPersistenceInfoError):
        queue.scan_topic("t")
    with pytest.raises(InvalidInputError):
        queue.scan_topic("")
    with pytest.raises(InvalidInputError):
        queue.scan_topic("t", start=2_000, stop=1_000)
    assert [m.value for m in queue.scan(topics=["t"])] == [b"put, and not published"]


def test_a_scanner_that_was_closed_says_so(
    start: Callable[[int], TopicOwner], queue: hqueue.Queue
) -> None:
    hub = start(0)
    hub.take()
    hub.publish(b"1")
    scanner = queue.scan_topic("t")
    assert scanner.next() is not None
    assert scanner.next() is None
    assert scanner.expired == 0
    scanner.close()
    with pytest.raises(ClosedError):
        scanner.next()
    with pytest.raises(InvalidInputError):
        queue.scan_topic("t", bytes_max=0)

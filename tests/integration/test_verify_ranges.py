"""`Queue.verify` over a queue that owners wrote: what they say of ranges, and what the log has."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence

import pytest

import hqueue
from hqueue import Message, MessageID, PartitionVerification
from hqueue.metadata.managers import LogRange, TopicMetadata, TopicPersistenceInfo
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
def metadata(client: hqueue.Client, queue: hqueue.Queue) -> Iterator[TopicMetadata]:
    with client.topic_metadata(queue.name) as opened:
        yield opened


@pytest.fixture
def owners(
    metadata: TopicMetadata, store: StorePort, queue: hqueue.Queue
) -> tuple[TopicOwner, TopicOwner]:
    """Two, that had topic "t" in turns: it has three ranges."""
    a, b = (TopicOwner(metadata, store, queue.name, partition) for partition in range(2))
    for owner, value in ((a, b"1"), (b, b"2"), (a, b"3")):
        owner.take()
        owner.publish(value)
    return a, b


def check(
    queue: hqueue.Queue, ranges: Mapping[str, Sequence[LogRange]] | None
) -> list[PartitionVerification]:
    last = {result.partition: result for result in queue.verify(ranges=ranges)}
    return [last[partition] for partition in sorted(last)]


def planted(metadata: TopicMetadata, *ranges: LogRange) -> dict[str, Sequence[LogRange]]:
    """Let the metadata say this of the topic."""
    known = metadata.persistence.read_topic_persistence_info("t").result()
    assert known is not None
    metadata.persistence.write_topic_persistence_info(
        "t", TopicPersistenceInfo(ranges), known.version
    ).result()
    return {"t": ranges}


def problems(queue: hqueue.Queue, ranges: Mapping[str, Sequence[LogRange]]) -> list[str]:
    return [finding.problem for result in check(queue, ranges) for finding in result.findings]


def test_what_owners_wrote_is_in_order(
    owners: tuple[TopicOwner, TopicOwner], queue: hqueue.Queue
) -> None:
    ranges, _ = owners[0].read()
    queue.put(Message("t", b"put under the topic's name"), partition=1)
    for given in (None, {"t": ranges}):
        results = check(queue, given)
        assert [result.findings for result in results] == [[], []]
        assert [result.unfinished for result in results] == [[], []]
        assert [result.control_records for result in results] == [1, 1]
    assert [result.outside for result in results] == [0, 1]


def test_ranges_that_the_log_contradicts_are_found(
    owners: tuple[TopicOwner, TopicOwner], queue: hqueue.Queue, metadata: TopicMetadata
) -> None:
    (first, second, third), _ = owners[0].read()
    assert first.last is not None
    beyond = MessageID.from_int(int(first.last) + 1)
    wrong = planted(metadata, dataclasses.replace(first, last=beyond), second, third)
    assert any("no control record lies" in problem for problem in problems(queue, wrong))
    wrong = planted(metadata, first, dataclasses.replace(second, epoch=first.epoch), third)
    assert any("epoch" in problem for problem in problems(queue, wrong))
    wrong = planted(metadata, dataclasses.replace(first, last=None))
    assert any("after the control record" in problem for problem in problems(queue, wrong))
    wrong = planted(metadata, first, second, dataclasses.replace(third, partition=9))
    assert any("does not exist" in problem for problem in problems(queue, wrong))
    assert problems(queue, planted(metadata, first, second, third)) == []


def test_a_take_over_that_was_not_finished_is_said_and_is_no_damage(
    owners: tuple[TopicOwner, TopicOwner], queue: hqueue.Queue, metadata: TopicMetadata
) -> None:
    (first, second, third), _ = owners[0].read()
    owners[1].close("t", third.epoch + 1, third)
    results = check(queue, {"t": [first, second, third]})
    assert [result.findings for result in results] == [[], []]
    (one,) = results[0].unfinished
    assert "still said to be open" in one.problem
    assert results[1].unfinished == []


def test_a_topic_that_moved_since_its_ranges_were_read_is_not_judged(
    owners: tuple[TopicOwner, TopicOwner], queue: hqueue.Queue
) -> None:
    old, _ = owners[0].read()
    owners[0].take()  # In the same partition, where messages follow the record then.
    owners[0].publish(b"4")
    results = check(queue, {"t": old})
    assert [result.findings for result in results] == [[], []]
    (one,) = results[0].unfinished
    assert "it moved during the check" in one.problem

"""A program that is no member of a group commits its positions to the group, fenced."""

from __future__ import annotations

import queue
from collections.abc import Iterator

import pytest

import hqueue
from hqueue import Consumer, HQueueError, Message, MessageID
from hqueue.engine import Engine, StandaloneOffsets
from hqueue.errors import CommitFailedError, GroupActiveError, InvalidInputError
from hqueue.groups.offsets import GroupOffsets
from hqueue.groups.paths import GroupPaths
from hqueue.metadata import PartitionKey
from hqueue.metadata.ports import ANY, Change
from tests.support.backends import MemoryBackend
from tests.support.waiting import wait_for

AT = MessageID(1_700_000_000_000)


@pytest.fixture
def client() -> Iterator[hqueue.Client]:
    with MemoryBackend().connect() as connected:
        connected.create_queue("q", partitions=2)
        yield connected


@pytest.fixture
def standalone(client: hqueue.Client) -> StandaloneOffsets:
    return Engine(client).standalone_offsets("g", "q")


def test_what_is_committed_is_seen_as_the_offsets_of_a_group(
    client: hqueue.Client, standalone: StandaloneOffsets
) -> None:
    opened = client.queue("q")
    opened.put([Message("t", b"v")] * 3, partition=0)
    assert standalone.committed(range(2)) == {}
    standalone.begin(range(2))
    assert standalone.committed(range(2)) == {}, "a group without an offset stays so"
    second = next(iter(opened.scan(partition=0))).id.next()
    standalone.commit({0: (second, 1), 1: (MessageID(0), 0)})
    assert standalone.committed(range(2)) == {0: (second, 1)}, "1 begins with the oldest message"
    first, other = client.describe_group("g").partitions
    assert (first.committed, first.lag and first.lag.messages) == (second, 2)
    assert (other.owner, other.lag and other.lag.messages) == (None, 0)
    assert other.committed is not None
    with Consumer("q", group="g", client=client) as consumer:
        got = wait_for(lambda: consumer.poll(100), "the group's next messages")
        assert got[0].id == second, "a consumer goes on there"


def test_a_group_with_consumers_is_refused_and_not_changed(
    client: hqueue.Client, standalone: StandaloneOffsets
) -> None:
    with Consumer("q", group="g", client=client, auto_commit=False) as consumer:
        wait_for(lambda: consumer.poll(50) or len(consumer.assignment()) == 2, "it has both")
        with pytest.raises(GroupActiveError, match="stop them first"):
            standalone.begin(range(2))
        assert standalone.partitions == frozenset()
        consumer.commit({("q", 0): consumer.position(("q", 0))})


def test_others_that_take_the_offsets_over_fence_it(
    client: hqueue.Client, standalone: StandaloneOffsets
) -> None:
    standalone.begin(range(2))
    standalone.commit({0: (AT, 7)})
    successor = Engine(client).standalone_offsets("g", "q")
    successor.begin([0])
    with pytest.raises(CommitFailedError) as refused:
        standalone.commit({0: (AT.next(), 8), 1: (AT, 0)})
    assert refused.value.facts["partitions"] == [PartitionKey("q", 0)]
    assert refused.value.facts["committed"] == [PartitionKey("q", 1)]
    assert successor.committed([0]) == {0: (AT, 7)}
    successor.commit({0: (AT.next(), 8)})
    client.reset_group("g", "q", "earliest")
    with pytest.raises(CommitFailedError):
        successor.commit({0: (AT.next(), 8)})
    assert successor.committed([0]) == {}


def test_a_commit_in_the_background_calls_back(
    client: hqueue.Client, standalone: StandaloneOffsets
) -> None:
    ends: queue.Queue[HQueueError | None] = queue.Queue()
    standalone.begin([0])
    standalone.commit_later({0: (AT, None)}, ends.put)
    assert ends.get(timeout=30) is None
    assert standalone.committed([0]) == {0: (AT, None)}
    Engine(client).standalone_offsets("g", "q").begin([0])
    standalone.commit_later({0: (AT.next(), None)}, ends.put)
    assert isinstance(ends.get(timeout=30), CommitFailedError)


def test_an_offset_that_can_t_be_read_is_an_error_that_names_it(
    client: hqueue.Client, standalone: StandaloneOffsets
) -> None:
    standalone.begin([0])
    path = GroupPaths("/hqueue", "g").offset(PartitionKey("q", 0))
    client.coordination.store.records.write({path: Change(b"?", ANY)})
    with pytest.raises(HQueueError, match="can't be read") as caught:
        standalone.committed([0, 1])
    assert caught.value.facts["partition"] == 0
    assert GroupOffsets(client.coordination.store, GroupPaths("/hqueue", "g")).list()


def test_names_that_no_group_and_no_queue_can_have_are_refused(client: hqueue.Client) -> None:
    for group, name in (("", "q"), ("g", "no queue")):
        with pytest.raises(InvalidInputError):
            Engine(client).standalone_offsets(group, name)

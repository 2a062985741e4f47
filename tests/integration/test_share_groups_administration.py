"""Share groups are listed, described, reset and deleted, and their names are no other group's."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import hqueue
from hqueue import Consumer, MessageID, PartitionKey, ShareConsumer
from hqueue.errors import GroupActiveError, GroupNotFoundError
from hqueue.groups.paths import GroupPaths
from hqueue.metadata.ports import ANY, Change
from tests.integration.administering import offsets_of
from tests.support.client_faces import FACES, client_by

pytestmark = pytest.mark.in_memory

WAIT_MS = 20_000
BEGINNING = MessageID(0, 1)


@pytest.fixture(params=FACES)
def client(request: pytest.FixtureRequest, client: hqueue.Client) -> Iterator[hqueue.Client]:
    """By each face of the administration."""
    with client_by(request.param, client) as face:
        yield face


@pytest.fixture
def share(client: hqueue.Client, filled: hqueue.Queue, group: str) -> Iterator[Any]:
    """Makes consumers of a share group."""
    made: list[ShareConsumer] = []

    def make(**options: Any) -> ShareConsumer:
        given = {"group": group, "client": client, "auto_acknowledge": False, **options}
        made.append(ShareConsumer(filled.name, **given))
        return made[-1]

    yield make
    for each in made:
        each.close()


def listed(client: hqueue.Client, group: str) -> list[tuple[int, tuple[str, ...], str]]:
    found = [each for each in client.list_groups() if each.group == group]
    return [(each.members, each.queues, each.kind) for each in found]


@pytest.mark.in_memory_first
def test_a_group_is_listed_and_described_with_what_its_consumers_have(
    client: hqueue.Client, filled: hqueue.Queue, group: str, share: Callable[..., ShareConsumer]
) -> None:
    a, b = share(), share()
    assert listed(client, group) == [(2, (), "share")]
    messages = a.poll(WAIT_MS, 3)
    a.acknowledge(messages[1])
    a.release(messages[2])
    a.commit()
    assert listed(client, group) == [(2, (filled.name,), "share")]
    described = client.describe_group(group)
    assert described.kind == "share"
    streams = {filled.name: 1}
    assert described.members == {a.consumer_id: streams, b.consumer_id: streams}
    first = described.partitions[0]
    assert (first.queue, first.partition, first.owner) == (filled.name, 0, None)
    assert first.committed == BEGINNING
    assert first.lag is not None
    assert first.shared is not None
    assert (first.lag.messages, first.lag.passed) == (3, 0)
    counts = (first.shared.acquired, first.shared.redelivered, first.shared.released)
    assert counts == (1, 0, 1)
    assert first.shared.holders == {a.consumer_id: 1}
    assert first.shared.acquired_age_ms > 0
    (again, _) = b.poll(WAIT_MS)
    assert again.id == messages[2].id
    shared = client.describe_group(group).partitions[0].shared
    assert shared is not None
    assert (shared.acquired, shared.redelivered, shared.released) == (3, 1, 0)
    assert shared.holders == {a.consumer_id: 1, b.consumer_id: 2}
    client.disable_queue(filled.name)
    described = client.describe_group(group, queue=filled.name)
    assert {each.lag for each in described.partitions} == {None}
    client.enable_queue(filled.name)
    assert client.describe_group(group, queue="another").partitions == ()


@pytest.mark.in_memory_first
def test_a_group_is_reset_when_its_consumers_have_left(
    client: hqueue.Client, filled: hqueue.Queue, group: str, share: Callable[..., ShareConsumer]
) -> None:
    a = share()
    messages = a.poll(WAIT_MS)
    with pytest.raises(GroupActiveError, match="stop them first"):
        client.reset_group(group, filled.name, "earliest")
    a.acknowledge(*messages)
    a.close()
    assert client.reset_group(group, filled.name, messages[2].id, partitions=[0]) == {
        0: messages[2].id
    }
    assert [(m.id, m.deliveries) for m in share().poll(WAIT_MS)] == [
        (m.id, 1) for m in messages[2:]
    ]


def test_a_consumer_that_was_taken_for_dead_goes_on_with_the_group_that_was_deleted(
    client: hqueue.Client, filled: hqueue.Queue, group: str, share: Callable[..., ShareConsumer]
) -> None:
    a = share()
    messages = a.poll(WAIT_MS)
    store, paths = client.coordination.store, GroupPaths("/hqueue", group)
    a.release(messages[1])
    store.records.delete({paths.share(PartitionKey(filled.name, 0)): ANY})
    a.acknowledge(*messages)
    a.commit()
    again = a.poll(WAIT_MS)
    assert [(m.id, m.deliveries) for m in again] == [(m.id, 1) for m in messages]


@pytest.mark.in_memory_first
def test_a_group_is_deleted_with_its_records_and_keeps_its_dead_letters(
    client: hqueue.Client, filled: hqueue.Queue, group: str, share: Callable[..., ShareConsumer]
) -> None:
    a = share()
    messages = a.poll(WAIT_MS)
    a.reject(messages[0])
    a.commit()
    with pytest.raises(GroupActiveError):
        client.delete_group(group)
    a.close()
    below = f"{GroupPaths('/hqueue', group).share(PartitionKey(filled.name, 0))}/delayed"
    client.coordination.store.records.create({below: b""})
    with pytest.raises(GroupNotFoundError):
        client.delete_group(group, queue="another")
    client.delete_group(group, queue=filled.name)
    assert listed(client, group) == []
    assert not client.coordination.store.records.keys(GroupPaths("/hqueue", group).top, 1)
    with pytest.raises(GroupNotFoundError):
        client.delete_group(group)
    letters = client.queue(filled.name).dead_letters
    assert [m.message.value for m in letters.waiting(group=group)] == [messages[0].value]
    with Consumer(filled.name, group=group, client=client) as consumer:
        assert len(consumer.poll(WAIT_MS)) == 4, "the name is free for a group of either kind"


def test_a_record_that_can_not_be_read_is_reported_and_replaced_by_a_reset(
    client: hqueue.Client, filled: hqueue.Queue, group: str, share: Callable[..., ShareConsumer]
) -> None:
    share().close()
    path = GroupPaths("/hqueue", group).share(PartitionKey(filled.name, 0))
    records = client.coordination.store.records
    known = records.create({path.rpartition("/")[0]: b"", path: b"?"})
    records.write({path: Change(b"?", known[path].version)})
    (first,) = client.describe_group(group).partitions
    assert (first.unreadable is not None, first.lag, first.shared) == (True, None, None)
    client.reset_group(group, filled.name, "earliest")
    assert all(each.unreadable is None for each in client.describe_group(group).partitions)


@pytest.mark.in_memory_first
def test_a_name_is_that_of_one_kind_of_group(
    client: hqueue.Client, filled: hqueue.Queue, group: str, share: Callable[..., ShareConsumer]
) -> None:
    a = share()
    refused = "share group has this name"
    with pytest.raises(GroupActiveError, match=refused):
        Consumer(filled.name, group=group, client=client)
    with (
        Consumer(group=group, client=client) as consumer,
        pytest.raises(GroupActiveError, match=refused),
    ):
        consumer.assign([(filled.name, 0)])
    assert a.poll(WAIT_MS)
    a.close()
    with pytest.raises(GroupActiveError, match=refused):
        Consumer(filled.name, group=group, client=client)
    assert listed(client, group) == [(0, (filled.name,), "share")], "it is in no group's list"
    assert not offsets_of(client, group).list(), "nothing was made of it"
    with (
        Consumer(filled.name, group=f"{group}2", client=client),
        pytest.raises(GroupActiveError, match="consumer group with offsets has this name"),
    ):
        share(group=f"{group}2")


def test_of_two_kinds_that_begin_at_once_one_at_most_goes_on(
    client: hqueue.Client, filled: hqueue.Queue, group: str
) -> None:
    begun: list[str] = []
    gate = threading.Barrier(2)

    def begin(kind: type[Consumer] | type[ShareConsumer], name: str) -> None:
        gate.wait()
        try:
            made.append(kind(filled.name, group=name, client=client))
        except GroupActiveError:
            return
        begun.append(name)

    for number in range(10):
        made: list[Consumer | ShareConsumer] = []
        name = f"{group}{number}"
        threads = [
            threading.Thread(target=begin, args=(kind, name)) for kind in (Consumer, ShareConsumer)
        ]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        for one in made:
            one.close()
        assert begun.count(name) <= 1

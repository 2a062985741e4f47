"""Groups are set elsewhere and forgotten, and never under a live consumer."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

import hqueue
from hqueue import Consumer, MessageID, Outcome, PartitionKey
from hqueue.errors import GroupActiveError, GroupNotFoundError
from hqueue.groups.offsets import Position
from hqueue.groups.paths import GroupPaths
from tests.integration.administering import before_each, consume, join, offsets_of
from tests.support.client_faces import FACES, client_by

pytestmark = pytest.mark.in_memory_first

MakeQueue = Callable[..., hqueue.Queue]
BEGINNING = MessageID(0, 1)


@pytest.fixture(params=FACES)
def client(request: pytest.FixtureRequest, client: hqueue.Client) -> Iterator[hqueue.Client]:
    """By each face of the administration."""
    with client_by(request.param, client) as face:
        yield face


@pytest.mark.parametrize("operation", ["reset", "delete"])
def test_what_a_consumer_takes_over_meanwhile_is_left_to_it(
    client: hqueue.Client, filled: hqueue.Queue, group: str, operation: str
) -> None:
    consume(client, filled, group, 2)
    offsets = offsets_of(client, group)
    key = PartitionKey(filled.name, 0)
    at = offsets.read([key])[key].position
    method = {"reset": "commit", "delete": "delete"}[operation]
    consumers: list[Consumer] = []

    def come() -> None:
        """Between the look at the group and the change a consumer has come."""
        if not consumers:
            consumers.append(Consumer(group=group, client=client))
            join(consumers[0], filled)

    change = {
        "reset": lambda: client.reset_group(group, filled.name, "earliest"),
        "delete": lambda: client.delete_group(group),
    }[operation]
    try:
        with before_each(method, come), pytest.raises(GroupActiveError):
            change()
        assert offsets.read([key])[key].position == at
        assert [m.value for m in consumers[0].poll(20_000)] == [b"2", b"3"]
        consumers[0].commit()
    finally:
        for consumer in consumers:
            consumer.close()
    assert client.describe_group(group).partitions[0].committed == (
        list(filled.scan(partition=0))[-1].id.next()
    )


@pytest.mark.parametrize("operation", ["reset", "delete"])
def test_when_a_consumer_takes_over_some_partitions_meanwhile_the_outcome_is_unknown(
    client: hqueue.Client, filled: hqueue.Queue, group: str, operation: str
) -> None:
    consume(client, filled, group, 4)
    offsets, paths = offsets_of(client, group), GroupPaths("/hqueue", group)
    taken, other = (PartitionKey(filled.name, partition) for partition in range(2))
    before = offsets.read([taken])[taken].position
    ephemerals, member = client.coordination.store.ephemerals, paths.member("late")
    method = {"reset": "commit", "delete": "delete"}[operation]

    def come() -> None:
        offsets.take_over("late", [taken])
        ephemerals.put(
            [{member: b'{"version": 1, "streams": {"%b": 1}}' % filled.name.encode()}],
            is_own=lambda _: False,
            parents=True,
        )

    change = {
        "reset": lambda: client.reset_group(group, filled.name, "earliest"),
        "delete": lambda: client.delete_group(group),
    }[operation]
    try:
        with before_each(method, come), pytest.raises(GroupActiveError) as active:
            change()
    finally:
        ephemerals.release([member])
    assert active.value.outcome is Outcome.UNKNOWN
    found = offsets.read([taken, other])
    assert found[taken].position == before, "its consumer has it"
    assert (other in found) == (operation == "reset")
    change()
    assert offsets.read([taken]).keys() == ({taken} if operation == "reset" else set())


def test_an_offset_that_others_change_is_reset_all_the_same(
    client: hqueue.Client, filled: hqueue.Queue, group: str
) -> None:
    consume(client, filled, group, 4)
    offsets, key = offsets_of(client, group), PartitionKey(filled.name, 1)
    rivals = iter(range(3))

    def disturb() -> None:
        for _ in rivals:
            offsets.take_over("rival", [key])
            break

    with before_each("commit", disturb):
        assert client.reset_group(group, filled.name, "earliest") == {0: BEGINNING, 1: BEGINNING}
    found = offsets.read([PartitionKey(filled.name, 0), key])
    assert {offset.position for offset in found.values()} == {Position(BEGINNING)}


def test_a_zombie_commits_nothing_after_a_reset(
    client: hqueue.Client, filled: hqueue.Queue, group: str
) -> None:
    offsets, key = offsets_of(client, group), PartitionKey(filled.name, 0)
    known = offsets.take_over("zombie", [key])[key]
    client.reset_group(group, filled.name, "latest")
    ids = [m.id for m in filled.scan(partition=0)]
    assert offsets.commit("zombie", {key: (known, Position(ids[1]))}) == {}
    assert client.describe_group(group).partitions[0].committed == ids[-1].next()


def test_a_consumer_whose_record_can_not_be_read_counts_as_one_of_every_queue(
    client: hqueue.Client, filled: hqueue.Queue, group: str
) -> None:
    consume(client, filled, group, 1)
    path = GroupPaths("/hqueue", group).member("newer")
    ephemerals = client.coordination.store.ephemerals
    ephemerals.put([{path: b'{"version": 2}'}], is_own=lambda _: False, parents=True)
    try:
        with pytest.raises(GroupActiveError):
            client.reset_group(group, filled.name, "earliest")
    finally:
        ephemerals.release([path])
    client.reset_group(group, filled.name, "earliest")


def test_a_group_with_consumers_of_the_queue_is_neither_reset_nor_deleted(
    client: hqueue.Client,
    filled: hqueue.Queue,
    make_queue: MakeQueue,
    consumer: Consumer,
    group: str,
) -> None:
    with pytest.raises(GroupActiveError) as active:
        client.reset_group(group, filled.name, "latest")
    assert active.value.consumers == [consumer.consumer_id]
    assert active.value.outcome is Outcome.NOT_APPLIED
    for queue in (None, filled.name):
        with pytest.raises(GroupActiveError):
            client.delete_group(group, queue=queue)
    # What it does not consume may be set.
    other = make_queue(1)
    assert client.reset_group(group, other.name, "latest") == {0: BEGINNING}
    client.delete_group(group, queue=other.name)
    with pytest.raises(GroupNotFoundError):
        client.delete_group(group, queue=other.name)
    # And the consumer noticed nothing.
    assert len(consumer.poll(20_000)) == 4
    consumer.commit()

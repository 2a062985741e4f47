"""Groups are listed, described, set elsewhere, and forgotten."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator

import pytest

import hqueue
from hqueue import Consumer, InvalidInputError, Message, MessageID, PartitionKey, QueueNotFoundError
from hqueue.errors import GroupNotFoundError
from hqueue.groups.offsets import UNSET
from hqueue.groups.paths import GroupPaths
from tests.integration.administering import consume, offsets_of
from tests.support.client_faces import FACES, client_by

pytestmark = pytest.mark.in_memory

MakeQueue = Callable[..., hqueue.Queue]
BEGINNING = MessageID(0, 1)


@pytest.fixture(params=FACES)
def client(request: pytest.FixtureRequest, client: hqueue.Client) -> Iterator[hqueue.Client]:
    """By each face of the administration."""
    with client_by(request.param, client) as face:
        yield face


def names(client: hqueue.Client) -> list[str]:
    return [listing.group for listing in client.list_groups()]


@pytest.mark.in_memory_first
def test_a_group_is_listed_with_its_consumers_and_the_queues_it_has_offsets_in(
    client: hqueue.Client, filled: hqueue.Queue, group: str
) -> None:
    assert group not in names(client)
    with Consumer(filled.name, group=group, client=client) as consumer:
        assert len(consumer.poll(20_000)) == 4
        (listed,) = (each for each in client.list_groups() if each.group == group)
        assert (listed.members, listed.queues) == (1, (filled.name,))
    (listed,) = (each for each in client.list_groups() if each.group == group)
    assert (listed.members, listed.queues) == (0, (filled.name,))


def test_what_hqueue_did_not_make_beside_the_groups_is_left_out(client: hqueue.Client) -> None:
    records = client.coordination.store.records
    strange = "/hqueue/consumers/not escaped/ids/somebody"
    records.create({strange.rpartition("/")[0].rpartition("/")[0]: b"", strange: b""})
    try:
        assert "not escaped" not in names(client)
    finally:
        records.delete({strange: hqueue.metadata.ports.ANY}, levels_above=2)


@pytest.mark.in_memory_first
def test_a_group_is_described_with_owners_offsets_and_lag(
    client: hqueue.Client, filled: hqueue.Queue, consumer: Consumer, group: str
) -> None:
    ids = [m.id for m in filled.scan(partition=0)]
    consumer.commit({(filled.name, 0): ids[1]})
    described = client.describe_group(group)
    assert described.members == {consumer.consumer_id: {filled.name: 1}}
    first, second = described.partitions
    assert (first.queue, first.partition, first.owner) == (filled.name, 0, consumer.consumer_id)
    assert first.committed == ids[1]
    assert first.lag is not None
    assert (first.lag.messages, first.lag.passed) == (3, 1)
    assert (second.partition, second.owner) == (1, consumer.consumer_id)
    assert second.committed is None
    assert second.lag is not None
    assert second.lag.messages == 0
    consumer.close(commit=False)
    gone = client.describe_group(group)
    assert gone.members == {}
    assert [(each.owner, each.committed) for each in gone.partitions] == [
        (None, ids[1]),
        (None, None),
    ]


def test_one_queue_of_a_group_is_described_alone(
    client: hqueue.Client, make_queue: MakeQueue, group: str
) -> None:
    queues = [make_queue(1) for _ in range(2)]
    for queue in queues:
        queue.put(Message("t", b"x"))
        consume(client, queue, group, 1)
    assert len(client.describe_group(group).partitions) == 2
    (only,) = client.describe_group(group, queue=queues[1].name).partitions
    assert only.queue == queues[1].name
    assert client.describe_group(group, queue="another").partitions == ()


@pytest.mark.in_memory_first
def test_the_lag_in_a_queue_that_is_gone_or_disabled_is_not_known(
    client: hqueue.Client, filled: hqueue.Queue, group: str
) -> None:
    consume(client, filled, group, 3)
    client.disable_queue(filled.name)
    described = client.describe_group(group).partitions
    assert [(each.partition, each.lag) for each in described] == [(0, None), (1, None)]
    client.enable_queue(filled.name)
    (lag, _) = (each.lag for each in client.describe_group(group).partitions)
    assert lag is not None
    assert lag.messages == 1
    missing = PartitionKey("never-created", 0)
    offsets_of(client, group).take_over("test", [missing])
    (only,) = client.describe_group(group, queue=missing.queue).partitions
    assert only.lag is None
    client.delete_group(group, queue="never-created")


def test_a_group_that_is_not_there_is_an_error(client: hqueue.Client, filled: hqueue.Queue) -> None:
    with pytest.raises(GroupNotFoundError) as nobody:
        client.describe_group("nobody")
    assert nobody.value.group == "nobody"
    with pytest.raises(GroupNotFoundError):
        client.reset_group("nobody", filled.name, "earliest")
    with pytest.raises(GroupNotFoundError):
        client.delete_group("nobody")
    assert "nobody" not in names(client), "nothing was made of it"
    with pytest.raises(InvalidInputError):
        client.describe_group("")


@pytest.mark.in_memory_first
def test_a_group_goes_on_where_it_is_reset_to(
    client: hqueue.Client, filled: hqueue.Queue, group: str
) -> None:
    messages = list(filled.scan(partition=0))
    end = messages[-1].id.next()
    assert consume(client, filled, group, 4) == [b"0", b"1", b"2", b"3"]
    assert client.reset_group(group, filled.name, "earliest") == {0: BEGINNING, 1: BEGINNING}
    assert consume(client, filled, group, 4) == [b"0", b"1", b"2", b"3"]
    second = messages[2].id
    assert client.reset_group(group, filled.name, second, partitions=[0]) == {0: second}
    assert consume(client, filled, group, 2) == [b"2", b"3"]
    at_ms = messages[0].id.timestamp
    assert client.reset_group(group, filled.name, at_ms)[0] == MessageID(at_ms)
    assert client.reset_group(group, filled.name, messages[0].id.datetime)[0].timestamp == at_ms
    assert consume(client, filled, group, 1) == [b"0"]
    assert client.reset_group(group, filled.name, "latest") == {0: end, 1: BEGINNING}
    assert [each.lag and each.lag.messages for each in client.describe_group(group).partitions] == [
        0,
        0,
    ]
    filled.put(Message("t", b"new"), partition=0)
    assert consume(client, filled, group, 1) == [b"new"]


def test_a_partition_that_ends_before_the_start_goes_on_at_its_end(
    client: hqueue.Client, filled: hqueue.Queue, group: str
) -> None:
    consume(client, filled, group, 1)
    newest = list(filled.scan(partition=0))[-1].id
    end = newest.next()
    assert client.reset_group(group, filled.name, newest) == {0: newest, 1: BEGINNING}
    now = datetime.datetime.now(datetime.timezone.utc)
    assert client.reset_group(group, filled.name, now) == {0: end, 1: BEGINNING}


def test_a_time_that_is_said_as_a_text_is_that_time(
    client: hqueue.Client, filled: hqueue.Queue, group: str
) -> None:
    consume(client, filled, group, 1)
    newest = list(filled.scan(partition=0))[-1].id
    end = newest.next()
    for time in ("1h ago", (newest.datetime - datetime.timedelta(hours=1)).isoformat()):
        moved = client.reset_group(group, filled.name, time)
        assert BEGINNING < moved[0] < newest, "not the end: what was written since is not hidden"
        assert moved[1] == BEGINNING
    assert client.reset_group(group, filled.name, "now")[0] == end
    assert client.reset_group(group, filled.name, str(newest))[0] == newest
    with pytest.raises(InvalidInputError, match="beyond the end"):
        client.reset_group(group, filled.name, str(end.next()))


def test_a_start_beyond_the_end_is_refused_and_nothing_changed(
    client: hqueue.Client, filled: hqueue.Queue, group: str
) -> None:
    consume(client, filled, group, 2)
    before = client.describe_group(group)
    end = list(filled.scan(partition=0))[-1].id.next()
    day_ms = 86_400_000
    for start in (end.next(), MessageID(end.timestamp + day_ms), end.timestamp + day_ms):
        with pytest.raises(InvalidInputError, match="beyond the end"):
            client.reset_group(group, filled.name, start)
    for wrong in ("soon", datetime.datetime(2024, 5, 1), -1, None):
        with pytest.raises(InvalidInputError):
            client.reset_group(group, filled.name, wrong)  # type: ignore[arg-type]
    for partitions in ([2], [0, -1], ["0"], []):
        with pytest.raises(InvalidInputError):
            client.reset_group(group, filled.name, "earliest", partitions=partitions)  # type: ignore[arg-type]
    with pytest.raises(QueueNotFoundError):
        client.reset_group(group, "no-such-queue", "earliest")
    after = client.describe_group(group)
    assert [each.committed for each in after.partitions] == [
        each.committed for each in before.partitions
    ]


@pytest.mark.in_memory_first
def test_a_group_is_deleted_with_all_its_nodes_and_can_come_back(
    client: hqueue.Client, filled: hqueue.Queue, group: str
) -> None:
    consume(client, filled, group, 4)
    client.delete_group(group)
    assert group not in names(client)
    with pytest.raises(GroupNotFoundError):
        client.describe_group(group)
    with pytest.raises(GroupNotFoundError):
        client.delete_group(group)
    top = GroupPaths("/hqueue", group).top
    assert top not in client.coordination.store.records.keys("/hqueue/consumers", 1)
    assert consume(client, filled, group, 4) == [b"0", b"1", b"2", b"3"]


def test_the_offsets_of_one_queue_are_deleted_also_when_it_is_gone(
    client: hqueue.Client, make_queue: MakeQueue, filled: hqueue.Queue, group: str
) -> None:
    consume(client, filled, group, 4)
    gone = PartitionKey("gone-long-ago", 5)
    offsets_of(client, group).take_over("test", [gone])
    client.delete_group(group, queue=gone.queue)
    (listed,) = (each for each in client.list_groups() if each.group == group)
    assert listed.queues == (filled.name,)
    client.delete_group(group, queue=filled.name)
    assert group not in names(client)


def test_a_group_whose_records_can_not_be_read_is_deleted_all_the_same(
    client: hqueue.Client, filled: hqueue.Queue, group: str
) -> None:
    consume(client, filled, group, 1)
    path = GroupPaths("/hqueue", group).offset(PartitionKey(filled.name, 0))
    store = client.coordination.store
    version = store.records.read([path])[path].version
    store.records.write({path: hqueue.metadata.ports.Change(b"no record", version)})
    (described,) = client.describe_group(group).partitions[:1]
    assert described.unreadable is not None
    assert described.unreadable.path == path
    client.delete_group(group)
    assert group not in names(client)


def test_an_offset_that_can_not_be_read_is_replaced_by_a_reset_of_its_partition(
    client: hqueue.Client, filled: hqueue.Queue, group: str
) -> None:
    consume(client, filled, group, 1)
    path = GroupPaths("/hqueue", group).offset(PartitionKey(filled.name, 0))
    records = client.coordination.store.records
    for garbage in (b"", b"no record", b'{"version": 2}', b"x" * 1_000_000):
        records.write({path: hqueue.metadata.ports.Change(garbage, hqueue.metadata.ports.ANY)})
        assert client.reset_group(group, filled.name, "earliest", partitions=[0]) == {0: BEGINNING}
        described = client.describe_group(group).partitions[0]
        assert (described.committed, described.unreadable) == (BEGINNING, None)


def test_a_new_partition_of_a_group_has_no_offset_until_one_is_committed(
    client: hqueue.Client, filled: hqueue.Queue, group: str
) -> None:
    key = PartitionKey(filled.name, 0)
    taken = offsets_of(client, group).take_over("test", [key])
    assert taken[key].position == UNSET
    (only,) = client.describe_group(group).partitions
    assert only.committed is None
    assert only.lag is not None
    assert only.lag.messages == 4, "all there is"

"""The metadata of a queue's topics goes with the queue, wherever it lies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

import hqueue
from hqueue.client import cluster_of
from hqueue.errors import QueueEnabledError, StoreUnavailableError
from hqueue.metadata import Address
from hqueue.metadata.managers import HubInfo, TopicMetadata
from hqueue.metadata.ports import NEW
from tests.support.backends import MemoryBackend
from tests.support.client_faces import FACES, client_by
from tests.support.metadata_kinds import owner, ranges, subscription

STORES = ("zookeeper", "hbase", "memory")
WAIT_S = 60.0


@pytest.fixture(params=FACES)
def client(request: pytest.FixtureRequest, client: hqueue.Client) -> Iterator[hqueue.Client]:
    """By each face of the administration."""
    with client_by(request.param, client) as face:
        yield face


def opened(client: hqueue.Client, queue: str) -> Iterator[TopicMetadata]:
    for store in STORES:
        with client.topic_metadata(queue, store=store) as metadata:
            yield metadata


def fill(client: hqueue.Client, queue: str, topics: int = 2) -> None:
    for metadata in opened(client, queue):
        asked = [metadata.ownership.write_owner_info("t/0", owner(0), NEW)]
        for number in range(topics):
            topic = f"t/{number}"
            asked += [
                metadata.persistence.write_topic_persistence_info(topic, ranges(1), NEW),
                *(
                    metadata.subscriptions.create_subscription_data(topic, name, subscription(1))
                    for name in ("a", "b")
                ),
            ]
        for future in asked:
            future.result(WAIT_S)


def entries(client: hqueue.Client, queue: str) -> list[int]:
    """How many there are in each store."""
    return [len([*metadata.entries()]) for metadata in opened(client, queue)]


def regions(client: hqueue.Client) -> Sequence[str]:
    """Those that ZooKeeper knows of."""
    found = client.coordination.store.records.keys(f"{client.coordination.paths.root}/regions", 1)
    return [key.rpartition("/")[2] for key in found]


def test_what_is_known_of_a_queue_s_topics_goes_with_it_and_nothing_else(
    client: hqueue.Client, queue_name: str
) -> None:
    other = f"{queue_name}0"
    client.create_queue(queue_name, partitions=1)
    for queue in (queue_name, other):
        fill(client, queue)
    with client.topic_metadata(queue_name) as metadata:
        metadata.hubs.register(HubInfo(Address("127.0.0.1", 4_080), "gone")).close()
    whole = entries(client, other)
    assert entries(client, queue_name) == whole == [7, 7, 7]
    with pytest.raises(QueueEnabledError):
        client.delete_queue(queue_name)
    assert entries(client, queue_name) == whole
    client.disable_queue(queue_name)
    client.delete_queue(queue_name)
    assert queue_name not in regions(client)  # To look for its records is to watch where they lay.
    assert entries(client, queue_name) == [0, 0, 0]
    assert entries(client, other) == whole
    fill(client, queue_name)
    assert entries(client, queue_name) == whole, "it can be written again"


def test_what_was_moved_goes_too_and_hubs_that_run_on_agree_where_new_records_lie() -> None:
    backend, queue = MemoryBackend(), "moved"
    with backend.connect() as client, client.topic_metadata(queue) as metadata:
        client.create_queue(queue, partitions=1)
        fill(client, queue, topics=1)
        for store in ("hbase", "zookeeper"):
            client.metadata_migration(queue).move(store)
        client.disable_queue(queue)
        client.delete_queue(queue)
        assert entries(client, queue) == [0, 0, 0]
        assert client.metadata_migration(queue).clear() == 0
        metadata.persistence.write_topic_persistence_info("t", ranges(1), NEW).result(WAIT_S)
        with backend.connect() as other, other.topic_metadata(queue) as there:
            for face in (there, metadata):
                assert [*face.persistence.topics()] == ["t"]


def test_a_deletion_that_fails_half_way_is_done_by_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    backend, queue, batches = MemoryBackend(), "half-way", 0
    with backend.connect() as client:
        rows = cluster_of(client).fields()._rows  # type: ignore[attr-defined]
        delete = rows.delete

        def fail(keys: Sequence[bytes]) -> None:
            nonlocal batches
            batches += 1
            if batches == 2:
                raise hqueue.RequestRefusedError("not now")
            delete(keys)

        monkeypatch.setattr(rows, "delete", fail)
        client.create_queue(queue, partitions=1)
        fill(client, queue, topics=90)
        whole = entries(client, queue)
        client.disable_queue(queue)
        with pytest.raises(hqueue.RequestRefusedError):
            client.delete_queue(queue)
        assert 0 < entries(client, queue)[STORES.index("hbase")] < whole[STORES.index("hbase")]
        assert [each.name for each in client.list_queues()] == [queue]
        client.delete_queue(queue)
        assert entries(client, queue) == [0, 0, 0]
        assert client.list_queues() == []


def test_a_queue_stays_while_what_is_known_of_its_topics_can_t_be_deleted() -> None:
    backend = MemoryBackend()
    with backend.connect() as client:
        client.create_queue("stays", partitions=1)
        client.disable_queue("stays")
        with backend.lossy() as way, way.connect(operation_timeout_ms=200) as cut_off:
            way.cut()
            with pytest.raises(StoreUnavailableError):
                cut_off.delete_queue("stays")
        assert [each.name for each in client.list_queues()] == ["stays"]


def test_deleting_a_queue_creates_no_table_of_records() -> None:
    backend = MemoryBackend()
    with backend.connect() as client:
        client.create_queue("alone", partitions=1)
        client.disable_queue("alone")
        client.delete_queue("alone")
        assert not backend.raw.exists(client.settings.metadata_table)

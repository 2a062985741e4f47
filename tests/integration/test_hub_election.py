"""Hubs elect the owners of topics, whose records lie in HBase while hubs are in ZooKeeper."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

import hqueue
from hqueue.metadata import Address
from hqueue.metadata.managers import HubInfo, TopicMetadata, Verdict
from hqueue.metadata.ports import Version
from tests.support.backends import Backend

WAIT_S = 60.0
TOPICS = [f"t/{number}" for number in range(20)]

Open = Callable[[int], tuple[hqueue.Client, TopicMetadata, HubInfo]]


@pytest.fixture
def open_hub(backend: Backend, queue_name: str) -> Iterator[Open]:
    """Hubs of a queue, each with a client of its own, and available."""
    clients: list[hqueue.Client] = []

    def open_hub(number: int) -> tuple[hqueue.Client, TopicMetadata, HubInfo]:
        client = backend.connect(metadata_store="hbase", zookeeper_session_timeout_ms=4_000)
        clients.append(client)
        metadata = client.topic_metadata(queue_name)
        hub = HubInfo(Address("127.0.0.1", 4_080 + number), uuid.uuid4().hex)
        metadata.hubs.register(hub, number)
        return client, metadata, hub

    yield open_hub
    for client in clients:
        client.close()


def acquire(metadata: TopicMetadata, hub: HubInfo) -> list[Verdict]:
    asked = [metadata.election.acquire(topic, hub) for topic in TOPICS]
    return [future.result(WAIT_S) for future in asked]


def test_of_two_hubs_one_owns_each_topic_and_takes_over_when_the_other_is_gone(
    open_hub: Open,
) -> None:
    (first_client, first, a), (_, second, b) = open_hub(1), open_hub(2)
    with ThreadPoolExecutor(2) as pool:
        ours, theirs = pool.map(acquire, (first, second), (a, b))
    versions: list[dict[HubInfo, set[Version]]] = []
    for one, other in zip(ours, theirs, strict=True):
        assert (one.won, other.won) in ((True, False), (False, True))
        assert one.owner == other.owner
        versions.append({one.owner: {(one if one.won else other).version}})
    again = acquire(first, a)
    assert [verdict.won for verdict in again] == [verdict.won for verdict in ours]
    first_client.close()
    taken = acquire(second, b)
    assert all(verdict.won and verdict.owner == b for verdict in taken)
    for topic, seen, before, after in zip(TOPICS, versions, again, taken, strict=True):
        if before.won:
            assert after.version not in {before.version, *seen[a]}, topic
            assert not second.election.release(topic, before).result(WAIT_S)
        assert second.election.release(topic, after).result(WAIT_S)
    _, third, c = open_hub(3)
    for verdict, before in zip(acquire(third, c), taken, strict=True):
        assert verdict.won
        assert verdict.version != before.version, "a deleted record's version is never used again"

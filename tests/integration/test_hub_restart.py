"""A killed hub that owned tens of thousands of topics, and a ZooKeeper that starts after it."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator

import pytest
from kazoo.client import KazooClient

from hqueue import Settings, StoreUnavailableError
from hqueue.metadata import Address
from hqueue.metadata.fields import FieldRecords
from hqueue.metadata.managers import HubInfo, TopicMetadata, open_topic_metadata
from hqueue.zookeeper import ZooKeeperCoordination
from tests.support.waiting import wait_for
from tests.support.zookeeper_server import ZooKeeperServer

from .running import Program

TOPICS = 30_000
TOGETHER = 500
SESSION_MS = 6_000
JUTE_BYTES_MAX = 1024 * 1024
WAIT_S = 120.0
SAMPLED_EVERY = 50
"""So that each of the hub's sessions owned some of those that are asked about."""


@pytest.fixture
def zookeeper() -> Iterator[ZooKeeperServer]:
    with ZooKeeperServer() as server:
        yield server


def no_rows() -> FieldRecords:
    raise AssertionError("all is on ZooKeeper")


@pytest.fixture
def metadata(zookeeper: ZooKeeperServer) -> Iterator[TopicMetadata]:
    """Of the other hub."""
    settings = Settings(
        zookeeper=zookeeper.zookeeper, zookeeper_session_timeout_ms=SESSION_MS, hbase="native"
    )
    coordination = ZooKeeperCoordination(settings)
    with open_topic_metadata(
        "q",
        session=coordination.store,
        root=coordination.paths.root,
        first="zookeeper",
        rows=no_rows,
        wait_s=WAIT_S,
    ) as opened:
        yield opened
    coordination.close()


def create_topics(kazoo: KazooClient) -> None:
    """As hubs do, but many in one transaction: that is no matter of the test."""
    topics = "/hqueue/regions/q/topics"
    kazoo.ensure_path(topics)
    sent = []
    for first in range(0, TOPICS, TOGETHER):
        transaction = kazoo.transaction()
        for number in range(first, first + TOGETHER):
            transaction.create(f"{topics}/topic-{number}")
        sent.append(transaction.commit_async())
    assert all(isinstance(done, str) for result in sent for done in result.get(timeout=60))


def take_over(metadata: TopicMetadata, hub: HubInfo) -> bool:
    """Whether the hub has all topics that it asked for."""
    asked = [
        metadata.election.acquire(f"topic-{number}", hub)
        for number in range(0, TOPICS, SAMPLED_EVERY)
    ]
    try:
        verdicts = [future.result(WAIT_S) for future in asked]
        return all(verdict.won for verdict in verdicts)
    except StoreUnavailableError:  # It is not available itself yet.
        return False


@pytest.mark.servers
@pytest.mark.thorough("a hub with tens of thousands of topics")
def test_zookeeper_starts_again_after_a_hub_with_30000_topics_was_killed(
    zookeeper: ZooKeeperServer, metadata: TopicMetadata
) -> None:
    environment = {
        **{k: v for k, v in os.environ.items() if not k.startswith("HQUEUE_")},
        "HQUEUE_ZOOKEEPER": zookeeper.zookeeper,
        "HQUEUE_ZOOKEEPER_SESSION_TIMEOUT_MS": str(SESSION_MS),
        "HQUEUE_OPERATION_TIMEOUT_MS": "300000",
        "HQUEUE_CONFIG": os.devnull,
    }
    other = HubInfo(Address("127.0.0.1", 4_081), uuid.uuid4().hex)
    metadata.hubs.register(other)
    kazoo = KazooClient(zookeeper.zookeeper, timeout=40)
    kazoo.start()
    create_topics(kazoo)
    kazoo.stop()
    kazoo.close()
    with Program("own_many_topics", "q", 4_080, TOPICS, environment=environment) as hub:
        hub.await_ready()
        assert not take_over(metadata, other)
    wait_for(lambda: take_over(metadata, other), "the other takes over", timeout_s=WAIT_S)
    ended = max(zookeeper.transaction_bytes())
    assert ended < JUTE_BYTES_MAX / 2, "no session's end is more than ZooKeeper reads back"

    zookeeper.kill()
    zookeeper.start()
    wait_for(lambda: take_over(metadata, other), "it owns them still, or again", timeout_s=WAIT_S)

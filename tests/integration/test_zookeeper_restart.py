"""The largest queue that there can be, killed processes, and a ZooKeeper that starts after it."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from kazoo.client import KazooClient

from hqueue import MessageID
from hqueue.metadata.encoding import encode_checkpoint
from hqueue.zookeeper.allocation import SESSION_BYTES_MAX
from tests.support.waiting import wait_for
from tests.support.zookeeper_server import ZooKeeperServer

from .running import Program

PARTITIONS = 32_000
SESSION_MS = 10_000
JUTE_BYTES_MAX = 1024 * 1024
TOGETHER = 500


@pytest.fixture
def zookeeper() -> Iterator[ZooKeeperServer]:
    with ZooKeeperServer() as server:
        yield server


@pytest.fixture
def kazoo(zookeeper: ZooKeeperServer) -> Iterator[KazooClient]:
    client = KazooClient(zookeeper.zookeeper, timeout=40)
    client.start()
    yield client
    client.stop()
    client.close()


def create_checkpoints(kazoo: KazooClient) -> None:
    """As `Checkpoints.create` does, but many in one transaction: that is no matter of the test."""
    checkpoint = encode_checkpoint(MessageID(0))
    for path in ("/hqueue/queues/q", "/hqueue/owners/q"):
        kazoo.ensure_path(path)
    sent = []
    for first in range(0, PARTITIONS, TOGETHER):
        transaction = kazoo.transaction()
        for partition in range(first, min(first + TOGETHER, PARTITIONS)):
            transaction.create(f"/hqueue/queues/q/{partition}")
            transaction.create(f"/hqueue/queues/q/{partition}/s", checkpoint)
        sent.append(transaction.commit_async())
    assert all(isinstance(done, str) for result in sent for done in result.get(timeout=60))


def present(kazoo: KazooClient) -> bool:
    """Whether the subscriber is in any of so many partitions that each session owns some."""
    sent = [
        kazoo.exists_async(f"/hqueue/queues/q/{partition}/s/address")
        for partition in range(0, PARTITIONS, 100)
    ]
    return any(result.get(timeout=60) is not None for result in sent)


@pytest.mark.servers
@pytest.mark.thorough("as many partitions as there can be, 80 s")
def test_zookeeper_starts_again_after_processes_with_32000_partitions_were_killed(
    zookeeper: ZooKeeperServer, kazoo: KazooClient
) -> None:
    create_checkpoints(kazoo)
    environment = {
        **{k: v for k, v in os.environ.items() if not k.startswith("HQUEUE_")},
        "HQUEUE_ZOOKEEPER": zookeeper.zookeeper,
        "HQUEUE_ZOOKEEPER_SESSION_TIMEOUT_MS": str(SESSION_MS),
        "HQUEUE_OPERATION_TIMEOUT_MS": "300000",
        "HQUEUE_CONFIG": os.devnull,
    }
    with (
        Program(
            "be_present", "subscriber", PARTITIONS, SESSION_BYTES_MAX, environment=environment
        ) as one,
        Program(
            "be_present", "worker", PARTITIONS, SESSION_BYTES_MAX, environment=environment
        ) as other,
    ):
        one.await_ready()
        other.await_ready()
    wait_for(lambda: not kazoo.retry(present, kazoo), "the subscriber has disappeared")
    wait_for(lambda: not kazoo.get_children("/hqueue/owners/q"), "all claims have disappeared")
    assert max(zookeeper.transaction_bytes()) < JUTE_BYTES_MAX / 2

    zookeeper.kill()
    zookeeper.start()
    wait_for(lambda: kazoo.connected, "it serves again")
    assert len(kazoo.get_children("/hqueue/queues/q")) == PARTITIONS
    assert not present(kazoo)

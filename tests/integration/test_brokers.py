"""A worker registers its cluster with its queues; consumers, and other clusters, go by that."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Callable, Iterator

import pytest

import hqueue
from hqueue import Message, SettingsError
from hqueue.client import Client
from hqueue.engine import Engine
from hqueue_workers import Worker, WorkerSettings
from tests.integration.pushing import WorkerThread
from tests.support.backends import Backend, GatewayBackend
from tests.support.memory.cluster import MemoryCluster
from tests.support.memory.gateway import GatewayPair
from tests.support.memory.memory_store import MemoryStore
from tests.support.memory.metadata import MemoryCoordination, MemorySession
from tests.support.waiting import wait_for

SESSION_MS = 4_000
NEVER_MS = 3_600_000

Connect = Callable[[], Client]


@pytest.fixture
def connect(backend: Backend) -> Iterator[Connect]:
    """Opens clients that share a part of ZooKeeper with nobody else."""
    settings: dict[str, object] = {"zookeeper_session_timeout_ms": SESSION_MS}
    if isinstance(backend, GatewayBackend):
        settings["zookeeper_root"] = f"/hqueue-{uuid.uuid4().hex[:12]}"
    with contextlib.ExitStack() as stack:
        yield lambda: stack.enter_context(backend.connect(**settings))


@contextlib.contextmanager
def another_cluster(client: Client) -> Iterator[Client]:
    """A client of another cluster that shares the coordination service with this one."""
    cluster, session = MemoryCluster(), client.coordination.store
    if isinstance(session, MemorySession):
        server = session.server
        store = MemoryStore(cluster, client.settings)
        with Client(
            client.settings, store, lambda loop: MemoryCoordination(server, loop=loop)
        ) as other:
            yield other
        return
    names = ("zookeeper", "zookeeper_root", "zookeeper_session_timeout_ms")
    shared = {name: getattr(client.settings, name) for name in names}
    with (
        contextlib.closing(GatewayPair(cluster)) as pair,
        hqueue.connect(pair.settings(**shared)) as other,
    ):
        yield other


def await_registered(client: Client, *queues: str) -> None:
    wait_for(
        lambda: (
            {(queue, 0) for queue in queues} <= client.coordination.brokers.list_queues().keys()
        ),
        "the worker has registered the queues",
    )


@contextlib.contextmanager
def queue_of(client: Client, name: str, partitions: int = 2) -> Iterator[hqueue.Queue]:
    queue = client.create_queue(name, partitions=partitions)
    try:
        yield queue
    finally:
        client.disable_queue(name)
        client.delete_queue(name)


@pytest.mark.in_memory_first
def test_a_pattern_takes_in_a_created_queue_at_once_while_a_worker_runs(
    connect: Connect, queue_name: str
) -> None:
    client, prefix = connect(), queue_name
    with (
        queue_of(client, f"{prefix}-a"),
        WorkerThread(connect()),
        hqueue.Consumer(group="g", client=client, metadata_age_ms_max=NEVER_MS) as consumer,
    ):
        await_registered(client, f"{prefix}-a")
        consumer.subscribe(pattern=f"{prefix}-.*")
        wait_for(lambda: not consumer.poll() and len(consumer.assignment()) == 2, "the first queue")
        with queue_of(client, f"{prefix}-b", partitions=3) as later:
            later.put(Message("t", b"first"), partition=2)
            found = wait_for(lambda: consumer.poll(100), "the later queue's message", timeout_s=20)
            assert [(each.queue, each.value) for each in found] == [(f"{prefix}-b", b"first")]
            assert consumer.subscription() == {f"{prefix}-a", f"{prefix}-b"}


@pytest.mark.in_memory_first
def test_without_a_worker_consumers_read_hbase_and_go_on(connect: Connect, queue_name: str) -> None:
    client = connect()
    with queue_of(client, queue_name) as queue:
        queue.put(Message("t", b"1"))
        with hqueue.Consumer(queue_name, group="g", client=client) as consumer:
            found = wait_for(lambda: consumer.poll(100), "the message")
        assert [each.value for each in found] == [b"1"]
        assert client.coordination.brokers.list() == {}


def test_a_worker_and_a_consumer_of_a_second_cluster_with_the_same_id_are_refused(
    connect: Connect, queue_name: str
) -> None:
    client = connect()
    with WorkerThread(connect()), another_cluster(client) as other:
        wait_for(client.coordination.brokers.list, "the first cluster is registered")
        ours = Engine(client).cluster_id()

        async def run() -> None:
            settings = WorkerSettings(host="127.0.0.1", metrics_port=0)
            await Worker(other, settings).run(asyncio.Event())

        with queue_of(other, queue_name):
            for attempt in (
                lambda: asyncio.run(run()),
                lambda: hqueue.Consumer(queue_name, group="g", client=other),
                lambda: hqueue.Consumer(group="g", client=other).assign([(queue_name, 0)]),
            ):
                with pytest.raises(SettingsError) as caught:
                    attempt()
                assert caught.value.broker_id == 0
                assert caught.value.registered_cluster == ours
                assert caught.value.own_cluster == Engine(other).cluster_id() != ours
            # Who has no group has nothing to share.
            with hqueue.Consumer(client=other) as alone:
                alone.assign([(queue_name, 0)])
        (registered,) = client.coordination.brokers.list().values()
        assert registered.cluster == ours
        assert client.coordination.workers.list().keys() == other.coordination.workers.list().keys()
        assert len(client.coordination.workers.list()) == 1, "the refused one left nothing"


def test_a_second_worker_of_the_cluster_takes_the_registration_over(
    connect: Connect, queue_name: str
) -> None:
    client = connect()
    with queue_of(client, queue_name), contextlib.ExitStack() as second:
        with WorkerThread(connect()):
            await_registered(client, queue_name)
            first = client.coordination.brokers.list()[0]
            second.enter_context(WorkerThread(connect()))
            wait_for(lambda: len(client.coordination.workers.list()) == 2, "both are there")
            assert client.coordination.brokers.list() == {0: first}
        wait_for(
            lambda: (found := client.coordination.brokers.list()) and found[0] != first,
            "the second worker has registered the cluster",
        )
        assert client.coordination.brokers.list()[0].cluster == first.cluster
        await_registered(client, queue_name)

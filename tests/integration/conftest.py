"""Fixtures of the integration tests. The servers are in ``tests/conftest.py``."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

import hqueue
from hqueue import local
from tests.support.raw import RawHBase

from .pushing import SESSION_MS, WorkerProcess


@pytest.fixture(scope="session")
def hbase(server: local.LocalServer) -> RawHBase:
    """The standalone server's HBase, without hqueue: what no other store has."""
    return RawHBase(server.gateways[0])


@pytest.fixture
def start(
    server_environment: dict[str, str], pushing: hqueue.Client
) -> Iterator[Callable[..., WorkerProcess]]:
    """Callable[..., WorkerProcess]s workers, which are killed after the test."""
    started: list[WorkerProcess] = []

    def start_worker(**settings: object) -> WorkerProcess:
        environment = {
            **server_environment,
            "HQUEUE_ZOOKEEPER_ROOT": pushing.settings.zookeeper_root,
            "HQUEUE_ZOOKEEPER_SESSION_TIMEOUT_MS": str(SESSION_MS),
        }
        worker = WorkerProcess(environment, pushing, **settings)
        started.append(worker)
        return worker.__enter__()

    yield start_worker
    for worker in started:
        worker.__exit__()


@pytest.fixture
def pushing(server: local.LocalServer, queue_name: str) -> Iterator[hqueue.Client]:
    """A client with a root of its own in ZooKeeper: other tests' workers don't see it."""
    settings = server.settings(
        zookeeper_root=f"/{queue_name}", zookeeper_session_timeout_ms=SESSION_MS
    )
    with hqueue.connect(settings) as connected:
        yield connected


@pytest.fixture
def make(
    make_queue: Callable[..., hqueue.Queue], pushing: hqueue.Client
) -> Callable[..., hqueue.Queue]:
    """Creates queues, and opens them with that client."""
    return lambda *arguments, **options: pushing.queue(make_queue(*arguments, **options).name)

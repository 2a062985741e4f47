"""Fixtures of the integration tests. The servers are in ``tests/conftest.py``."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

import hqueue
from hqueue import Consumer, Message, ParallelConsumer, local
from tests.support.backends import Backend, MemoryBackend
from tests.support.consumer_faces import LoopedConsumer
from tests.support.hub_faces import face_of
from tests.support.native_hbase import SHOWN_IN_CLEAR, NativeHBase
from tests.support.raw import RawHBase

from . import administering
from .pushing import SESSION_MS, WorkerProcess, WorkerThread


@pytest.fixture
def hub_face(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The face of the clients of hubs: see `both_faces`."""
    with face_of(request.param, monkeypatch):
        yield request.param


@pytest.fixture(scope="session")
def hbase(server: local.LocalServer) -> RawHBase:
    """The standalone server's HBase, without hqueue: what no other store has."""
    return RawHBase(server.gateways[0])


@pytest.fixture(
    scope="session",
    params=[
        pytest.param("clear", marks=pytest.mark.servers),
        pytest.param("secured", marks=[pytest.mark.servers, SHOWN_IN_CLEAR]),
    ],
)
def native_hbase(request: pytest.FixtureRequest) -> NativeHBase:
    """HBase without gateways: in clear, and by Kerberos in TLS."""
    if request.param == "secured":
        gateway = partial(request.getfixturevalue, "secure_gateway")
        return NativeHBase(request.getfixturevalue("secure_server"), gateway)
    server = request.getfixturevalue("server")
    return NativeHBase(server, lambda: server.gateways[0])


@pytest.fixture
def connect(
    backend: Backend, queue_name: str, request: pytest.FixtureRequest
) -> Callable[[], hqueue.Client]:
    """Opens clients whose workers and subscribers no other test sees."""
    if isinstance(backend, MemoryBackend):
        apart = backend.apart(SESSION_MS)
        return lambda: apart.connect(notify_workers=True)
    served: local.LocalServer = request.getfixturevalue("server")
    settings = served.settings(
        zookeeper_root=f"/{queue_name}", zookeeper_session_timeout_ms=SESSION_MS
    )
    return lambda: hqueue.connect(settings)


@pytest.fixture
def pushing(connect: Callable[[], hqueue.Client]) -> Iterator[hqueue.Client]:
    with connect() as connected:
        yield connected


@pytest.fixture
def start(
    backend: Backend,
    connect: Callable[[], hqueue.Client],
    pushing: hqueue.Client,
    request: pytest.FixtureRequest,
) -> Iterator[Callable[..., WorkerProcess | WorkerThread]]:
    """Starts workers, which end with the test."""
    with contextlib.ExitStack() as started:

        def start_worker(**settings: object) -> WorkerProcess | WorkerThread:
            if isinstance(backend, MemoryBackend):
                client = started.enter_context(connect())
                return started.enter_context(WorkerThread(client, **settings))
            environment = {
                **request.getfixturevalue("server_environment"),
                "HQUEUE_ZOOKEEPER_ROOT": pushing.settings.zookeeper_root,
                "HQUEUE_ZOOKEEPER_SESSION_TIMEOUT_MS": str(SESSION_MS),
            }
            return started.enter_context(WorkerProcess(environment, pushing, **settings))

        yield start_worker


@pytest.fixture
def make(
    make_queue: Callable[..., hqueue.Queue], pushing: hqueue.Client
) -> Callable[..., hqueue.Queue]:
    """Creates queues, and opens them with that client."""
    return lambda *arguments, **options: pushing.queue(make_queue(*arguments, **options).name)


@pytest.fixture(params=[Consumer, LoopedConsumer], ids=["threads", "asyncio"])
def join(
    backend: Backend, queue_name: str, request: pytest.FixtureRequest
) -> Iterator[Callable[..., Any]]:
    """Consumers of one group, each on a client of its own; by both faces."""
    with joining(backend, queue_name) as join_one:
        yield partial(join_one, request.param)


@pytest.fixture
def join_in_threads(backend: Backend, queue_name: str) -> Iterator[Callable[..., Any]]:
    """The same, by the blocking face alone; with streams, if that is an option."""
    with joining(backend, queue_name) as join_one:
        yield lambda *queues, **options: join_one(
            ParallelConsumer if "streams" in options else Consumer, *queues, **options
        )


@contextlib.contextmanager
def joining(backend: Backend, queue_name: str) -> Iterator[Callable[..., Any]]:
    with contextlib.ExitStack() as clients, contextlib.ExitStack() as joined:

        def join_one(kind: Callable[..., Any], *queues: hqueue.Queue, **options: object) -> Any:
            client = clients.enter_context(backend.connect())
            names = [queue.name for queue in queues] or None
            options = {"group": f"{queue_name}, a group/", **options}
            made = kind(names, client=client, **options)
            joined.callback(made.close, commit=False)
            return made

        yield join_one


@pytest.fixture
def group(queue_name: str) -> str:
    """A name that needs escaping, and that no other test has."""
    return f"a/b c.{queue_name}"


@pytest.fixture
def filled(make_queue: Callable[..., hqueue.Queue]) -> hqueue.Queue:
    """A queue with four messages in the first of its two partitions."""
    queue = make_queue(2)
    queue.put([Message("t", b"%d" % number) for number in range(4)], partition=0)
    return queue


@pytest.fixture
def consumer(client: hqueue.Client, filled: hqueue.Queue, group: str) -> Iterator[Consumer]:
    """A consumer that has both partitions."""
    with contextlib.closing(Consumer(group=group, client=client)) as made:
        administering.join(made, filled)
        yield made

"""The back ends that the suites run through. A further one is a further fixture parameter."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Protocol, cast

import pytest

from hqueue import Settings
from hqueue.hbase.thrift.gateway_store import GatewayStore
from hqueue.metadata import Coordination, MetadataStore
from hqueue.zookeeper import ZooKeeperStore
from hqueue.zookeeper.allocation import SESSION_BYTES_MAX
from tests.support import backends, zookeeper_faults
from tests.support.looped_store import LoopedStore
from tests.support.memory.metadata import MemoryServer, MemorySession
from tests.support.memory.zookeeper import MemoryZooKeeper
from tests.support.topic_managers import (
    ManagersBackend,
    MemoryManagers,
    TopicManagers,
    blobs_in_memory,
    row_managers,
    zookeeper_managers,
)

Open = Callable[[], Coordination]
"""Opens a session of its own; all of a test see the same records."""

SPREAD_BYTES_MAX = 512
"""So little that nearly every test needs several sessions at ZooKeeper."""


SESSION_MS = 5_000
"""Longer than a busy machine stands still; what needs a session's end brings it about."""

SHOWN_IN_MEMORY = pytest.mark.thorough("the same over a ZooKeeper in memory is in `make check`")
SHOWN_ON_SERVERS = pytest.mark.thorough("in memory and on servers the same is in `make test`")

OVER_FEW_METADATA_STORES = pytest.mark.parametrize(
    "metadata_backend",
    [
        "memory",
        pytest.param("zookeeper-in-memory", marks=SHOWN_ON_SERVERS),
        pytest.param("zookeeper", marks=pytest.mark.servers),
        pytest.param("zookeeper-spread", marks=[pytest.mark.servers, SHOWN_ON_SERVERS]),
    ],
    indirect=True,
)
"""For what stands on the two primitives, and not for what they are made of."""


class MetadataBackend(Protocol):
    """Where sessions are opened; all of a test see the same records."""

    root: str
    """What exists, and nothing below it."""

    def open(self) -> MetadataStore:
        """A session of its own."""

    def expire(self, store: MetadataStore) -> None:
        """End a session at the server. When this returns, the next one has begun."""


class ZooKeeperBackend:
    def __init__(self, settings: Settings, session_bytes_max: int, *, looped: bool) -> None:
        self._settings = settings
        self._session_bytes_max = session_bytes_max
        self._looped = looped
        self.root = settings.zookeeper_root

    def open(self) -> MetadataStore:
        store = ZooKeeperStore(self._settings, session_bytes_max=self._session_bytes_max)
        return cast(MetadataStore, LoopedStore(store)) if self._looped else store

    def expire(self, store: MetadataStore) -> None:
        store = store.store if isinstance(store, LoopedStore) else store
        assert isinstance(store, ZooKeeperStore)
        zookeeper_faults.expire(store)


class MemoryBackend:
    root = "/hqueue"

    def __init__(self) -> None:
        self._server = MemoryServer(session_timeout_ms=200)

    def open(self) -> MetadataStore:
        return self._server.open()

    def expire(self, store: MetadataStore) -> None:
        assert isinstance(store, MemorySession)
        store.expire()


@pytest.fixture(
    params=[
        "memory",
        "zookeeper-in-memory",
        "zookeeper-in-memory-by-loop",
        pytest.param("zookeeper", marks=pytest.mark.servers),
        pytest.param("zookeeper-by-loop", marks=pytest.mark.servers),
        pytest.param("zookeeper-spread", marks=[pytest.mark.servers, SHOWN_IN_MEMORY]),
    ]
)
def metadata_backend(request: pytest.FixtureRequest) -> Iterator[MetadataBackend]:
    """An empty metadata store."""
    root, looped = f"/hqueue-{uuid.uuid4().hex[:12]}", request.param.endswith("-by-loop")
    if request.param == "memory":
        yield MemoryBackend()
    elif request.param.startswith("zookeeper-in-memory"):
        with MemoryZooKeeper() as server:
            settings = Settings(
                zookeeper=f"127.0.0.1:{server.port}",
                zookeeper_root=root,
                zookeeper_session_timeout_ms=SESSION_MS,
            )
            yield ZooKeeperBackend(settings, SPREAD_BYTES_MAX, looped=looped)
    else:
        settings = request.getfixturevalue("server").settings(
            zookeeper_root=root, zookeeper_session_timeout_ms=SESSION_MS
        )
        bytes_max = SPREAD_BYTES_MAX if request.param == "zookeeper-spread" else SESSION_BYTES_MAX
        yield ZooKeeperBackend(settings, bytes_max, looped=looped)


@pytest.fixture(
    params=["in-memory", pytest.param("server", marks=[pytest.mark.servers, SHOWN_IN_MEMORY])]
)
def zookeeper(request: pytest.FixtureRequest) -> Iterator[str]:
    """The connection string of a ZooKeeper."""
    if request.param == "in-memory":
        with MemoryZooKeeper() as server:
            yield f"127.0.0.1:{server.port}"
    else:
        yield request.getfixturevalue("server").zookeeper


@pytest.fixture
def open_store(metadata_backend: MetadataBackend) -> Iterator[Callable[[], MetadataStore]]:
    """Sessions with an empty metadata store. They are closed after the test."""
    opened: list[MetadataStore] = []

    def open_session() -> MetadataStore:
        opened.append(metadata_backend.open())
        return opened[-1]

    yield open_session
    for store in opened:
        store.close()


@pytest.fixture
def open_coordination(
    metadata_backend: MetadataBackend, open_store: Callable[[], MetadataStore]
) -> Open:
    """Sessions on an empty coordination service."""
    return lambda: Coordination(open_store(), metadata_backend.root)


@pytest.fixture
def coordination(open_coordination: Open) -> Coordination:
    """One session."""
    return open_coordination()


@pytest.fixture(
    params=[
        "memory",
        "blobs-in-memory",
        "rows-in-memory",
        pytest.param("zookeeper-in-memory", marks=SHOWN_ON_SERVERS),
        pytest.param("zookeeper", marks=pytest.mark.servers),
        pytest.param("zookeeper-spread", marks=[pytest.mark.servers, SHOWN_IN_MEMORY]),
        pytest.param("hbase", marks=[pytest.mark.servers, SHOWN_IN_MEMORY]),
    ]
)
def managers_backend(request: pytest.FixtureRequest) -> Iterator[ManagersBackend]:
    """An empty store of topics' metadata."""
    backend: ManagersBackend
    root = f"/hqueue-{uuid.uuid4().hex[:12]}"
    if request.param == "memory":
        yield MemoryManagers()
    elif request.param == "blobs-in-memory":
        with blobs_in_memory() as backend:
            yield backend
    elif request.param == "rows-in-memory":
        with row_managers(backends.MemoryBackend().store, root) as backend:
            yield backend
    elif request.param == "hbase":
        settings = request.getfixturevalue("server").settings()
        with row_managers(lambda: GatewayStore(settings), root) as backend:
            yield backend
    elif request.param == "zookeeper-in-memory":
        with MemoryZooKeeper() as server:
            settings = Settings(zookeeper=f"127.0.0.1:{server.port}", zookeeper_root=root)
            with zookeeper_managers(settings, session_bytes_max=SPREAD_BYTES_MAX) as backend:
                yield backend
    else:
        settings = request.getfixturevalue("server").settings(zookeeper_root=root)
        bytes_max = SESSION_BYTES_MAX if request.param == "zookeeper" else SPREAD_BYTES_MAX
        with zookeeper_managers(settings, session_bytes_max=bytes_max) as backend:
            yield backend


@pytest.fixture
def managers(managers_backend: ManagersBackend) -> Iterator[TopicManagers]:
    """One hub's managers of topics' metadata."""
    opened = managers_backend.open()
    yield opened
    opened.close()

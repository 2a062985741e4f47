"""Topics' metadata is linearizable on every store, also where answers are lost."""

from __future__ import annotations

import contextlib
import itertools
import random
import threading
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from hqueue import Settings
from hqueue.metadata.blobs import BlobRecords
from hqueue.metadata.managers import MemoryFields, Rows, Tree
from hqueue.metadata.ports import MetadataStore
from hqueue.zookeeper import ZooKeeperStore
from tests.support.backends import Backend, GatewayBackend, MemoryBackend
from tests.support.linearizability import History, described, violation
from tests.support.memory.metadata import MemoryServer
from tests.support.memory.zookeeper import MemoryZooKeeper
from tests.support.metadata_histories import FaultyFields, FaultyRecords, take_history
from tests.support.metadata_kinds import KINDS, MetadataKind
from tests.support.proxy import Fate, Proxy
from tests.support.raw import RawHBase
from tests.support.topic_managers import (
    ManagersBackend,
    TopicManagers,
    row_managers,
    zookeeper_managers,
)
from tests.support.zookeeper_faults import expire, zookeeper_proxy

EACH_KIND = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)

LASTING = [kind for kind in KINDS if kind.name != "ownership"]
"""Those whose records don't go with the session."""


def check(history: History) -> None:
    """It is linearizable, and says something: most of what was asked for has an outcome."""
    wrong = violation(history)
    assert wrong is None, described(wrong)
    done = [each for each in history if each.answer is not None]
    assert len(done) > len(history) / 10
    assert {each.kind for each in done} == {"read", "write", "delete"}


@EACH_KIND
def test_what_many_hubs_do_at_once_is_linearizable(
    managers_backend: ManagersBackend, kind: MetadataKind
) -> None:
    hubs = [managers_backend.open() for _ in range(3)]
    check(take_history(hubs, kind, seed=1, operations=25))


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("store", ["fields", "blobs"])
@EACH_KIND
def test_lost_requests_and_answers_in_memory(kind: MetadataKind, store: str, seed: int) -> None:
    hubs = []
    fields, server = MemoryFields(), MemoryServer()
    for number in range(3):
        one = seed * 10 + number
        tree = Tree("/hqueue", "q")
        faulty = (
            FaultyFields(fields, one)
            if store == "fields"
            else BlobRecords(FaultyRecords(server.open().records, one), leading=tree.leading)
        )
        layout = Rows("/hqueue", "q") if store == "fields" else tree
        hubs.append(TopicManagers(faulty, faulty, layout))
    history = take_history(hubs, kind, seed=seed, operations=40)
    assert any(each.is_unknown for each in history)
    check(history)


@pytest.mark.parametrize("seed", range(2))
def test_lost_requests_and_answers_of_rows_in_memory(seed: int) -> None:
    lossy(MemoryBackend(), KINDS[1], seed, operations=40)


@pytest.mark.servers
@pytest.mark.thorough("over rows in memory it is in `make check`")
@pytest.mark.parametrize("seed", range(2))
@EACH_KIND
def test_lost_requests_and_answers_of_hbase(
    request: pytest.FixtureRequest, kind: MetadataKind, seed: int
) -> None:
    server = request.getfixturevalue("server")
    lossy(GatewayBackend(server, RawHBase(server.gateways[0])), kind, seed, operations=100)


def lossy(backend: Backend, kind: MetadataKind, seed: int, *, operations: int) -> None:
    """Hubs that lose some requests, and some answers."""
    chance = random.Random(seed)
    root = f"/hqueue-{uuid.uuid4().hex[:12]}"

    def fate(method: str) -> Fate:
        return chance.choices([Fate.PASS, Fate.LOSE_REQUEST, Fate.LOSE_ANSWER], [94, 2, 4])[0]

    with (
        backend.lossy() as way,
        row_managers(lambda: way.store(operation_timeout_ms=20_000), root) as managers,
    ):
        hubs = [managers.open() for _ in range(2)]
        for hub in hubs:
            kind.read(hub, "a").result()  # The table is there.
        way.set_fate(fate)
        history = take_history(hubs, kind, seed=seed, operations=operations)
        way.set_fate(lambda method: Fate.PASS)
    check(history)


def test_connections_that_break_in_memory() -> None:
    with MemoryZooKeeper() as server:
        broken(f"127.0.0.1:{server.port}", KINDS[0], 1, operations=30)


@pytest.mark.servers
@pytest.mark.thorough("over a ZooKeeper in memory it is in `make check`")
@pytest.mark.parametrize("seed", range(2))
@EACH_KIND
def test_connections_that_break(
    request: pytest.FixtureRequest, kind: MetadataKind, seed: int
) -> None:
    broken(request.getfixturevalue("server").zookeeper, kind, seed, operations=300)


@contextlib.contextmanager
def hubs_of(proxy: Proxy) -> Iterator[list[TopicManagers]]:
    """Two hubs behind a proxy."""
    settings = Settings(
        zookeeper=f"127.0.0.1:{proxy.port}",
        zookeeper_root=f"/hqueue-{uuid.uuid4().hex[:12]}",
        zookeeper_session_timeout_ms=10_000,
    )
    with zookeeper_managers(settings) as backend:
        yield [backend.open() for _ in range(2)]


@contextlib.contextmanager
def breaking(proxy: Proxy, chance: random.Random) -> Iterator[None]:
    """Break connections now and then: before a request is carried out, or after it."""
    over = threading.Event()

    def fate(method: str) -> Fate:
        return chance.choices([Fate.PASS, Fate.LOSE_REQUEST, Fate.LOSE_ANSWER], [94, 2, 4])[0]

    def alternate() -> None:
        for number in itertools.count():
            proxy.fate = fate if number % 2 else lambda method: Fate.PASS
            if over.wait(0.1):
                return

    thread = threading.Thread(target=alternate)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        proxy.fate = lambda method: Fate.PASS


def broken(zookeeper: str, kind: MetadataKind, seed: int, *, operations: int) -> None:
    """Hubs whose connections break, half of the times after a request was carried out."""
    chance = random.Random(seed)
    with zookeeper_proxy(zookeeper) as proxy, hubs_of(proxy) as hubs, breaking(proxy, chance):
        history = take_history(hubs, kind, seed=seed, operations=operations)
    check(history)


@pytest.mark.servers
@pytest.mark.thorough("`tests/unit/metadata` has sessions in memory that end")
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("kind", LASTING, ids=lambda kind: kind.name)
def test_sessions_that_end(request: pytest.FixtureRequest, kind: MetadataKind, seed: int) -> None:
    settings = request.getfixturevalue("server").settings(
        zookeeper_root=f"/hqueue-{uuid.uuid4().hex[:12]}"
    )
    with zookeeper_managers(settings) as backend:
        hubs = [backend.open() for _ in range(2)]
        with ending([hub.session for hub in hubs], random.Random(seed)):
            history = take_history(hubs, kind, seed=seed, operations=300)
    check(history)


@contextlib.contextmanager
def ending(sessions: Sequence[MetadataStore | None], chance: random.Random) -> Iterator[None]:
    """End sessions at ZooKeeper, one after the other."""
    over = threading.Event()

    def end() -> int:
        for count in itertools.count():
            if over.wait(chance.uniform(0, 0.2)):
                return count
            store = chance.choice(sessions)
            assert isinstance(store, ZooKeeperStore)
            expire(store)
        raise AssertionError

    with ThreadPoolExecutor(1) as pool:
        ended = pool.submit(end)
        try:
            yield
        finally:
            over.set()
        assert ended.result() > 1

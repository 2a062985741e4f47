"""What names a cluster's servers: ZooKeeper's nodes, and masters."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Protocol

import pytest

from hqueue import GatewayAddress, Outcome, Settings, StoreUnavailableError, local
from hqueue.hbase.native.native_store import open_registry
from hqueue.hbase.native.opening import Opener
from hqueue.hbase.native.security import Security
from hqueue.hbase.native.servers import Servers
from hqueue.hbase.thrift.gateway_store import GatewayStore
from hqueue.runtime.steps import Wait
from hqueue.settings.addresses import Address
from hqueue.zookeeper import ZooKeeperNodes
from tests.support.native_hbase import SHOWN_IN_CLEAR
from tests.support.registries import (
    NOWHERE,
    AskedRegistry,
    Named,
    NamingMaster,
    NamingNodes,
    master_of,
)
from tests.support.scripted_server import ScriptedServer

FIRST = Named("0f3e-id", Address("region1", 16_020), Address("master1", 16_000))
SECOND = Named("0f3e-id", Address("region2", 16_021), Address("master2", 16_001))
NOTHING = Named(None, None, None)
SHORT_MS = 400


class Cluster(Protocol):
    """A cluster that names its servers in a way."""

    named: Named

    def open(self) -> AskedRegistry: ...


class Scripted(Cluster, Protocol):
    """One that names what a test says."""

    away: bool


class _Nodes(NamingNodes):
    def open(self) -> AskedRegistry:
        settings = Settings()
        return AskedRegistry(Servers(settings), open_registry(settings, self.asked))


class _Masters:
    def __init__(self, stack: contextlib.ExitStack, named: Named) -> None:
        self._stack = stack
        self._masters = [NamingMaster(named) for _ in range(2)]
        self._servers = [
            stack.enter_context(contextlib.closing(ScriptedServer(each))) for each in self._masters
        ]

    @property
    def named(self) -> Named:
        return self._masters[0].named

    @named.setter
    def named(self, named: Named) -> None:
        for each in self._masters:
            each.named = named

    @property
    def away(self) -> bool:
        return False

    @away.setter
    def away(self, away: bool) -> None:
        for each in self._servers:
            each.close()

    def open(self) -> AskedRegistry:
        settings = Settings(hbase_masters=tuple(each.address for each in self._servers))
        servers = self._stack.enter_context(contextlib.closing(Servers(settings)))
        return AskedRegistry(servers, open_registry(settings, _no_node))


class _Real:
    def __init__(self, stack: contextlib.ExitStack, settings: Settings, named: Named) -> None:
        self._stack = stack
        self._settings = settings
        self.named = named

    def open(self) -> AskedRegistry:
        read = (
            _no_node if self._settings.hbase_masters else ZooKeeperNodes(self._settings).read.asked
        )
        opener = Opener(Security.of(self._settings)).open
        servers = self._stack.enter_context(contextlib.closing(Servers(self._settings, opener)))
        return AskedRegistry(servers, open_registry(self._settings, read))


def _no_node(path: str) -> Wait:
    raise AssertionError("masters are asked, and ZooKeeper is not")


WAYS = ("zookeeper", "masters")
SECURED = [pytest.mark.servers, SHOWN_IN_CLEAR]


@pytest.fixture(
    params=[
        *(f"{way}-in-memory" for way in WAYS),
        *(pytest.param(way, marks=pytest.mark.servers) for way in WAYS),
        *(pytest.param(f"{way}-secured", marks=SECURED) for way in WAYS),
    ]
)
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with contextlib.ExitStack() as stack:
        if request.param == "zookeeper-in-memory":
            yield _Nodes(FIRST)
        elif request.param == "masters-in-memory":
            yield _Masters(stack, FIRST)
        else:
            way, _, secured = request.param.partition("-")
            server, named = _served(request, "secure_" if secured else "")
            settings = server.settings(hbase="native")
            if way == "masters":
                settings = server.settings(hbase_masters=named.master, zookeeper=str(NOWHERE))
            yield _Real(stack, settings, named)


def _served(request: pytest.FixtureRequest, kind: str) -> tuple[local.LocalServer, Named]:
    """A local server, and what its own ports, and gateways before it, say."""
    server = request.getfixturevalue(f"{kind}server")
    gateway = request.getfixturevalue("secure_gateway") if kind else server.gateways[0]
    return server, _named(server, gateway)


def _named(server: local.LocalServer, gateway: GatewayAddress) -> Named:
    (ports,) = [process.ports for process in server.processes if process.name == "master"]
    with contextlib.closing(GatewayStore(Settings(gateways=(gateway,)))) as store:
        return Named(
            store.cluster_id(),
            Address("127.0.0.1", ports["regionserver"]),
            master_of(server),
        )


@pytest.fixture(params=WAYS)
def scripted(request: pytest.FixtureRequest) -> Iterator[Scripted]:
    with contextlib.ExitStack() as stack:
        yield _Nodes(FIRST) if request.param == "zookeeper" else _Masters(stack, FIRST)


def named_by(registry: AskedRegistry) -> Named:
    return Named(registry.cluster_id(), registry.meta(), registry.master())


def test_it_names_the_cluster_its_master_and_the_server_of_meta(cluster: Cluster) -> None:
    registry = cluster.open()
    assert named_by(registry) == named_by(registry) == named_by(cluster.open()) == cluster.named


@pytest.mark.parametrize(
    "kind", [pytest.param("", marks=pytest.mark.servers), pytest.param("secure_", marks=SECURED)]
)
def test_a_region_server_answers_as_masters_do(request: pytest.FixtureRequest, kind: str) -> None:
    server, named = _served(request, kind)
    settings = server.settings(hbase_masters=named.meta, zookeeper=str(NOWHERE))
    with contextlib.ExitStack() as stack:
        assert named_by(_Real(stack, settings, named).open()) == named


def test_what_is_doubted_is_asked_for_again(cluster: Cluster) -> None:
    registry = cluster.open()
    named = named_by(registry)
    for _ in range(3):
        registry.doubt_meta(registry.meta())
        registry.doubt_master(registry.master())
        assert named_by(registry) == named


def test_what_was_named_is_kept_until_just_that_is_doubted(scripted: Scripted) -> None:
    registry = scripted.open()
    assert named_by(registry) == FIRST
    scripted.named = SECOND
    assert SECOND.meta is not None
    registry.doubt_meta(SECOND.meta)
    assert (registry.meta(), registry.master()) == (FIRST.meta, FIRST.master)
    registry.doubt_meta(registry.meta())
    assert (registry.meta(), registry.master()) == (SECOND.meta, FIRST.master)
    registry.doubt_master(registry.master())
    assert named_by(registry) == SECOND


ASKED: list[Callable[[AskedRegistry], object]] = [
    lambda registry: registry.cluster_id(),
    lambda registry: registry.meta(),
    lambda registry: registry.master(),
]


def test_what_is_known_outlives_who_named_it_and_nothing_else_does(scripted: Scripted) -> None:
    registry = scripted.open()
    assert named_by(registry) == FIRST
    scripted.away = True
    assert (registry.meta(), registry.master()) == (FIRST.meta, FIRST.master)
    registry.doubt_meta(registry.meta())
    registry.doubt_master(registry.master())
    _expect_nothing(registry)


@pytest.mark.parametrize(
    "named",
    [
        NOTHING,
        Named("", Address("", 16_000), Address("host", 0)),
        Named("", Address("host", 65_536), Address("a" * 64 + "..b", 16_000)),
    ],
)
def test_what_is_no_address_is_not_known(scripted: Scripted, named: Named) -> None:
    scripted.named = named
    registry = scripted.open()
    _expect_nothing(registry)
    scripted.named = FIRST
    assert named_by(registry) == FIRST


@pytest.mark.parametrize("way", WAYS)
def test_nobody_to_ask_is_an_error_in_time(way: str) -> None:
    given = {"hbase_masters": f"{NOWHERE},{NOWHERE}"} if way == "masters" else {"hbase": "native"}
    settings = Settings(request_timeout_ms=SHORT_MS, zookeeper=str(NOWHERE), **given)  # type: ignore[arg-type]
    with contextlib.closing(Servers(settings)) as servers:
        registry = AskedRegistry(
            servers, open_registry(settings, ZooKeeperNodes(settings).read.asked)
        )
        began_s = time.monotonic()
        _expect_nothing(registry)
        assert time.monotonic() - began_s < 10


def _expect_nothing(registry: AskedRegistry) -> None:
    for ask in ASKED:
        with pytest.raises(StoreUnavailableError) as caught:
            ask(registry)
        assert caught.value.outcome is Outcome.NOT_APPLIED

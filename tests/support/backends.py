"""What stores and behaviour are tested over: clusters in memory, and a real HBase."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

from hqueue import Client, Settings
from hqueue.connecting import open_client, open_store
from hqueue.hbase.native import NativeStore
from hqueue.hbase.thrift.gateway_store import GatewayStore
from hqueue.local import LocalServer
from hqueue.runtime.clock import SYSTEM_CLOCK, Clock, SystemClock
from hqueue.store import StorePort
from hqueue.zookeeper import ZooKeeperCoordination, ZooKeeperNodes
from tests.support.memory.cluster import MemoryCluster
from tests.support.memory.memory_store import MemoryStore
from tests.support.memory.metadata import MemoryCoordination, MemoryServer
from tests.support.memory.network import Network
from tests.support.native_proxies import CLUSTER_ID_NODE, NativeProxies
from tests.support.proxy import Fate, Proxies, Served
from tests.support.raw import RawTables
from tests.support.secured_relays import SecuredRelay

__all__ = [
    "Backend",
    "GatewayBackend",
    "LossyWay",
    "MemoryBackend",
    "NativeBackend",
    "SecureBackend",
]


class LossyWay(Protocol):
    """A way to the store on which requests and answers get lost, as the test chooses."""

    def connect(self, **settings: object) -> Client:
        """A client that goes this way."""

    def set_fate(self, fate: Callable[[str], Fate]) -> None:
        """What becomes of each request, by the name of the port's method where one is a request:
        as ``put_if_absent`` and ``describe``.
        """

    def store(self, **settings: object) -> StorePort:
        """A store that goes this way."""

    def cut(self) -> None:
        """Let no request even leave, for good."""

    def deliver(self) -> int:
        """Bring what was held to the store; returns how many requests that were."""


class Backend(Protocol):
    """A cluster: what opens clients of it, and what looks at it past hqueue."""

    @property
    def raw(self) -> RawTables: ...

    def connect(self, clock: Clock = SYSTEM_CLOCK, **settings: object) -> Client:
        """A client, as a process of its own has one."""

    def store(self, clock: Clock = SYSTEM_CLOCK, **settings: object) -> StorePort:
        """The store alone."""

    def lossy(self) -> contextlib.AbstractContextManager[LossyWay]:
        """A way on which things get lost."""


class MemoryBackend:
    """A cluster in memory. Its bodies expire by the clock that it is given."""

    def __init__(
        self, clock: Clock = SYSTEM_CLOCK, coordination: MemoryServer | None = None
    ) -> None:
        self.raw = MemoryCluster(clock)
        self._coordination = coordination or MemoryServer()

    def connect(self, clock: Clock = SYSTEM_CLOCK, **settings: object) -> Client:
        return _client(self.raw, self._coordination, Network(), clock, **settings)

    def apart(self, session_timeout_ms: int) -> MemoryBackend:
        """The same cluster with another coordination service: nobody is there."""
        apart = copy.copy(self)
        apart._coordination = MemoryServer(session_timeout_ms=session_timeout_ms)
        return apart

    def store(self, clock: Clock = SYSTEM_CLOCK, **settings: object) -> MemoryStore:
        return MemoryStore(self.raw, Settings(**settings), clock)  # type: ignore[arg-type]

    @contextlib.contextmanager
    def lossy(self) -> Iterator[LossyWay]:
        yield _LossyNetwork(self.raw, self._coordination)


def _client(
    cluster: MemoryCluster,
    coordination: MemoryServer,
    network: Network,
    clock: Clock,
    **settings: object,
) -> Client:
    made = Settings(**{"notify_workers": False, **settings})  # type: ignore[arg-type]
    store = MemoryStore(cluster, made, clock, network)
    return Client(made, store, lambda loop: MemoryCoordination(coordination, loop=loop), clock)


class HastyClock(SystemClock):
    """This machine's clock, but that its sleeps take a tenth: those between two tries."""

    def sleep_ms(self, duration_ms: float) -> None:
        super().sleep_ms(duration_ms / 10)


class _LossyNetwork:
    def __init__(self, cluster: MemoryCluster, coordination: MemoryServer) -> None:
        self._cluster = cluster
        self._coordination = coordination
        self._network = Network()

    def connect(self, **settings: object) -> Client:
        return _client(self._cluster, self._coordination, self._network, HastyClock(), **settings)

    def store(self, **settings: object) -> MemoryStore:
        made = Settings(**settings)  # type: ignore[arg-type]
        return MemoryStore(self._cluster, made, HastyClock(), self._network)

    def cut(self) -> None:
        self._network.down = True

    def set_fate(self, fate: Callable[[str], Fate]) -> None:
        self._network.fate = fate

    def deliver(self) -> int:
        return self._network.deliver()


class GatewayBackend:
    """A cluster behind Thrift gateways: a real HBase, or one in memory."""

    def __init__(self, served: Served, raw: RawTables) -> None:
        self.raw = raw
        self.gateways = served.gateways
        self.zookeeper = served.settings().zookeeper
        self._served = served

    def connect(self, clock: Clock = SYSTEM_CLOCK, **settings: object) -> Client:
        return open_client(self._served.settings(**settings), clock)

    def store(self, clock: Clock = SYSTEM_CLOCK, **settings: object) -> GatewayStore:
        return GatewayStore(self._served.settings(**settings), clock)

    @contextlib.contextmanager
    def lossy(self) -> Iterator[LossyWay]:
        with Proxies(self._served) as proxies:
            yield _LossyProxies(proxies)


class NativeBackend:
    """A real HBase, spoken to without gateways."""

    def __init__(self, served: Served, raw: RawTables) -> None:
        self.raw = raw
        self._served = served

    def connect(self, clock: Clock = SYSTEM_CLOCK, **settings: object) -> Client:
        return open_client(self._settings(settings), clock)

    def store(self, clock: Clock = SYSTEM_CLOCK, **settings: object) -> StorePort:
        return open_store(self._settings(settings), clock)

    @contextlib.contextmanager
    def lossy(self) -> Iterator[LossyWay]:
        with contextlib.closing(NativeProxies(self._relay())) as proxies:
            yield _LossyNative(self, proxies)

    def _relay(self) -> SecuredRelay | None:
        """How proxies stand before it."""
        return None

    def _settings(self, settings: Mapping[str, object]) -> Settings:
        return self._served.settings(hbase="native", gateways=(), **settings)

    def store_through(self, proxies: NativeProxies, settings: Mapping[str, object]) -> NativeStore:
        """A store that goes through proxies."""
        made = self._settings(settings)
        nodes = ZooKeeperNodes(made)
        return NativeStore(
            made,
            lambda path: proxies.read_node(nodes.read.asked, path),
            route=proxies.route,
        )

    def client_through(self, proxies: NativeProxies, settings: Mapping[str, object]) -> Client:
        """A client that goes through proxies."""
        made = self._settings(settings)
        store = self.store_through(proxies, settings)
        return Client(
            made, store, lambda loop: ZooKeeperCoordination(made, loop=loop), SYSTEM_CLOCK
        )


class SecureBackend(NativeBackend):
    """A real HBase that asks for Kerberos, by TLS."""

    def __init__(self, served: LocalServer, raw: RawTables) -> None:
        super().__init__(served, raw)
        self._certificate = served.home / "conf" / "security" / "server.pem"

    def _relay(self) -> SecuredRelay:
        return SecuredRelay(self._settings({}), self._certificate)


NATIVE_METHODS = {
    "Mutate": "put_if_absent",
    "Scan": "locate",
    CLUSTER_ID_NODE: "cluster_id",
    "GetTableDescriptors": "describe",
    "CreateTable": "create",
    "ModifyTable": "alter",
    "EnableTable": "enable",
    "DisableTable": "disable",
    "DeleteTable": "delete",
    "truncateTable": "truncate",
    "Snapshot": "create_snapshot",
    "RestoreSnapshot": "restore_snapshot",
    "DeleteSnapshot": "delete_snapshot",
}
"""The methods of HBase's services, and the node of ZooKeeper's, that tests choose a fate for, and
the ports' methods that make them."""


class _LossyNative:
    def __init__(self, backend: NativeBackend, proxies: NativeProxies) -> None:
        self._backend = backend
        self._proxies = proxies

    def connect(self, **settings: object) -> Client:
        return self._backend.client_through(self._proxies, settings)

    def store(self, **settings: object) -> NativeStore:
        return self._backend.store_through(self._proxies, settings)

    def cut(self) -> None:
        self._proxies.cut()

    def set_fate(self, fate: Callable[[str], Fate]) -> None:
        self._proxies.fate = lambda method: fate(NATIVE_METHODS.get(method, method))

    def deliver(self) -> int:
        return self._proxies.deliver()


METHODS = {
    "checkAndPut": "put_if_absent",
    "getAllRegionLocations": "locate",
    "getClusterId": "cluster_id",
    "getTableDescriptor": "describe",
    "createTable": "create",
    "modifyTable": "alter",
    "enableTable": "enable",
    "disableTable": "disable",
    "deleteTable": "delete",
    "truncateTable": "truncate",
}
"""The gateways' methods that tests choose a fate for, and the ports' that make them."""


class _LossyProxies:
    def __init__(self, proxies: Proxies) -> None:
        self._proxies = proxies

    def connect(self, **settings: object) -> Client:
        return open_client(self._proxies.settings(**settings))

    def store(self, **settings: object) -> GatewayStore:
        return GatewayStore(self._proxies.settings(**settings))

    def cut(self) -> None:
        for proxy in self._proxies:
            proxy.close()

    def set_fate(self, fate: Callable[[str], Fate]) -> None:
        self._proxies.set_fate(lambda method: fate(METHODS.get(method, method)))

    def deliver(self) -> int:
        return sum(proxy.deliver() for proxy in self._proxies)

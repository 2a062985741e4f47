"""What names a cluster's servers, for tests: ZooKeeper's nodes, and masters that answer."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from hqueue import Outcome, local
from hqueue.errors import StoreUnavailableError
from hqueue.hbase.native.native_store import open_registry
from hqueue.hbase.native.protocol import pb
from hqueue.hbase.native.registry import Registry
from hqueue.hbase.native.servers import Servers
from hqueue.hbase.native.zookeeper_registry import ReadNode
from hqueue.runtime.steps import Wait
from hqueue.settings.addresses import Address
from hqueue.zookeeper import ZooKeeperNodes
from tests.support.scripted_server import Asked, answer

__all__ = [
    "META",
    "NOWHERE",
    "AskedRegistry",
    "Named",
    "NamingMaster",
    "NamingNodes",
    "host_of_meta",
    "master_of",
    "node",
    "reading",
]

NOWHERE = Address("127.0.0.1", 1)
"""Where nothing listens."""

_NAME = pb.TableName(namespace=b"hbase", qualifier=b"meta")
META = pb.RegionInfo(region_id=1, table_name=_NAME)
"""The region of ``hbase:meta``."""


class Named(NamedTuple):
    """What a cluster's servers are said to be; None for what is not known."""

    cluster_id: str | None
    meta: Address | None
    master: Address | None


def master_of(server: local.LocalServer, name: str = "master") -> Address:
    """Where a master of a local server listens."""
    (found,) = [process for process in server.processes if process.name == name]
    return Address(found.host, found.ports["master"])


def host_of_meta(server: local.LocalServer, *, than: str = "") -> str:
    """The host whose region server has ``hbase:meta``, as ZooKeeper says now; empty if it is still
    `than`.
    """
    settings = server.settings(hbase="native")
    with contextlib.closing(Servers(settings)) as servers:
        host = servers.carry_out(
            open_registry(settings, ZooKeeperNodes(settings).read.asked).meta()
        ).host
    return host if host != than else ""


class AskedRegistry:
    """A registry whose questions are asked in the caller's thread."""

    def __init__(self, servers: Servers, registry: Registry) -> None:
        self._servers = servers
        self._registry = registry
        self.doubt_meta = registry.doubt_meta
        self.doubt_master = registry.doubt_master

    def cluster_id(self) -> str:
        return self._servers.carry_out(self._registry.cluster_id())

    def meta(self) -> Address:
        return self._servers.carry_out(self._registry.meta())

    def master(self) -> Address:
        return self._servers.carry_out(self._registry.master())


def node(message: Any) -> bytes:
    """A node of HBase's in ZooKeeper."""
    return b"\xff\0\0\0\x02me" + b"PBUF" + bytes(message.SerializeToString())


def _server(address: Address | None) -> Any:
    return address and pb.ServerName(host_name=address.host, port=address.port, start_code=1)


def reading(read: Callable[[str], bytes | None]) -> ReadNode:
    """A `ReadNode` that calls a function: in a loop, too."""

    def ask(path: str) -> Wait:
        async def in_loop() -> bytes | None:
            return read(path)

        return Wait(partial(read, path), in_loop)

    return ask


class NamingNodes:
    """ZooKeeper's nodes of a cluster: `asked` is a `ReadNode`.

    Args:
        named: what they say.
    """

    def __init__(self, named: Named) -> None:
        self.named = named
        self.away = False

    @property
    def asked(self) -> ReadNode:
        return reading(self.read)

    def read(self, path: str) -> bytes | None:
        if self.away:
            raise StoreUnavailableError("ZooKeeper is away", outcome=Outcome.NOT_APPLIED)
        named = self.named
        nodes = {
            "/hbase/hbaseid": named.cluster_id and pb.ClusterId(cluster_id=named.cluster_id),
            "/hbase/meta-region-server": named.meta
            and pb.MetaRegionServer(server=_server(named.meta)),
            "/hbase/master": named.master and pb.Master(master=_server(named.master)),
        }
        message = nodes[path]
        return node(message) if message else None


@dataclasses.dataclass
class NamingMaster:
    """A master, active or on standby; it is the script of a `ScriptedServer`.

    Args:
        named: what it says.
    """

    named: Named

    def __post_init__(self) -> None:
        self.asked: list[str] = []
        """The methods that were called."""

    def __call__(self, asked: Asked) -> list[bytes]:
        self.asked.append(asked.method)
        methods = {
            "GetClusterId": self._cluster_id,
            "GetActiveMaster": self._active_master,
            "GetMetaRegionLocations": self._meta_locations,
        }
        return [answer(asked, methods[asked.method]())]

    def _cluster_id(self) -> Any:
        return pb.GetClusterIdResponse(cluster_id=self.named.cluster_id)

    def _active_master(self) -> Any:
        return pb.GetActiveMasterResponse(server_name=_server(self.named.master))

    def _meta_locations(self) -> Any:
        """With a replica before the region itself, and one that is nowhere."""
        replicas = [pb.RegionInfo(region_id=1, table_name=_NAME, replica_id=n) for n in (1, 2)]
        locations = [
            pb.RegionLocation(region_info=replicas[0], server_name=_server(Address("replica", 1))),
            pb.RegionLocation(region_info=META, server_name=_server(self.named.meta)),
            pb.RegionLocation(region_info=replicas[1]),
        ]
        return pb.GetMetaRegionLocationsResponse(meta_locations=locations)

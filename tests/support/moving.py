"""Regions that move, as HBase's balancer moves them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

from hqueue import Settings
from hqueue.hbase.native.exchanges import Asking, Request
from hqueue.hbase.native.native_store import open_registry
from hqueue.hbase.native.opening import Opener
from hqueue.hbase.native.protocol import pb
from hqueue.hbase.native.regions import Meta
from hqueue.hbase.native.registry import Registry
from hqueue.hbase.native.security import Security
from hqueue.hbase.native.servers import Servers
from hqueue.hbase.native.wire import MASTER, field
from hqueue.settings.addresses import Address
from hqueue.zookeeper import ZooKeeperNodes

__all__ = ["RegionMover"]


class RegionMover:
    """Moves regions of a table.

    Args:
        settings: reach HBase natively.
        table: the table.
    """

    def __init__(self, settings: Settings, table: str) -> None:
        self._settings = settings
        self._table = table

    def regions(self) -> dict[bytes, Address]:
        """Where each region is now, by its name."""
        with self._servers() as servers:
            return self._read(servers)

    def move_from(self, before: Mapping[bytes, Address]) -> None:
        """Have those regions that are still where they were move to another region server, which
        the master chooses. So it may be called again after an answer that came late.
        """
        with self._servers() as servers:
            master = servers.carry_out(self._registry.master())
            for name, address in self._read(servers).items():
                if address != before[name]:
                    continue
                # A region's name ends with its encoded one, between dots.
                region = pb.RegionSpecifier(
                    type=pb.RegionSpecifier.ENCODED_REGION_NAME,
                    value=name.rstrip(b".").rpartition(b".")[2],
                )
                message = field(b"\x0a", region.SerializeToString())
                servers.ask(
                    Request(master, b"MoveRegion", message, service=MASTER), self._table, 60_000
                )

    @contextlib.contextmanager
    def _servers(self) -> Iterator[Servers]:
        opener = Opener(Security.of(self._settings)).open
        with contextlib.closing(Servers(self._settings, opener)) as servers:
            yield servers

    @property
    def _registry(self) -> Registry:
        return open_registry(self._settings, ZooKeeperNodes(self._settings).read.asked)

    def _read(self, servers: Servers) -> dict[bytes, Address]:
        def read() -> Asking[dict[bytes, Address]]:
            found = yield from Meta(self._registry).read(self._table)
            return {region.name: region.address for region in found.regions}

        return servers.carry_out(read())

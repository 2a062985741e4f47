"""Regions that move, as HBase's balancer moves them."""

from __future__ import annotations

import contextlib

from hqueue import Settings
from hqueue.hbase.native.exchanges import Asking, Request
from hqueue.hbase.native.greeting import Security
from hqueue.hbase.native.native_store import open_registry
from hqueue.hbase.native.opening import Opener
from hqueue.hbase.native.protocol import pb
from hqueue.hbase.native.regions import Meta
from hqueue.hbase.native.servers import Servers
from hqueue.hbase.native.wire import MASTER, field
from hqueue.zookeeper import ZooKeeperNodes

__all__ = ["move_regions"]


def move_regions(settings: Settings, table: str) -> None:
    """Have each region of a table move to another region server, which the master chooses."""
    registry = open_registry(settings, ZooKeeperNodes(settings).read.asked)

    def names() -> Asking[list[bytes]]:
        found = yield from Meta(registry).read(table)
        return [region.name for region in found.regions]

    opener = Opener(Security.of(settings)).open
    with contextlib.closing(Servers(settings, opener)) as servers:
        master = servers.carry_out(registry.master())
        for name in servers.carry_out(names()):
            # A region's name ends with its encoded one, between dots.
            encoded = name.rstrip(b".").rpartition(b".")[2]
            region = pb.RegionSpecifier(type=pb.RegionSpecifier.ENCODED_REGION_NAME, value=encoded)
            message = field(b"\x0a", region.SerializeToString())
            servers.ask(Request(master, b"MoveRegion", message, service=MASTER), table, 60_000)

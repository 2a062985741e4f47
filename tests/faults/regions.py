"""A table's regions, asked of HBase itself and past the proxies."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from hqueue import Settings
from hqueue.hbase.native.exchanges import Request
from hqueue.hbase.native.native_store import open_registry
from hqueue.hbase.native.regions import Meta, Region
from hqueue.hbase.native.registry import Registry
from hqueue.hbase.native.servers import Servers
from hqueue.hbase.native.wire import varint
from hqueue.zookeeper import ZooKeeperNodes

__all__ = ["Regions"]

ADMIN = "AdminService"


class Regions:
    """Reads where regions are, and asks for compactions. Each call has connections of its own.

    Args:
        settings: of the cluster.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def host_of_meta(self) -> str:
        """The host whose region server has ``hbase:meta``.

        Raises:
            HQueueError: it can't be found out now.
        """
        with self._servers() as servers:
            return servers.carry_out(self._registry().meta()).host

    def all(self, table: str) -> list[Region]:
        """All regions of a table, by start key. Raises as `host_of_meta`."""
        with self._servers() as servers:
            found = servers.carry_out(Meta(self._registry()).read(table))
            found.check()
            return found.regions

    def compact(self, table: str, name: bytes) -> None:
        """Ask for a major compaction of the region of this name. Raises as `host_of_meta`."""
        (region,) = [each for each in self.all(table) if each.name == name]
        specifier = region.specifier.SerializeToString()
        # CompactRegionRequest: the region is its field 1, and that it is a major one its field 2.
        message = b"\x0a%b%b\x10\x01" % (varint(len(specifier)), specifier)
        with self._servers() as servers:
            servers.ask(Request(region.address, b"CompactRegion", message, service=ADMIN), table)

    def flush(self, table: str, name: bytes) -> None:
        """Let the region of this name write its memory to a file. Raises as `host_of_meta`."""
        (region,) = [each for each in self.all(table) if each.name == name]
        specifier = region.specifier.SerializeToString()
        message = b"\x0a%b%b" % (varint(len(specifier)), specifier)  # FlushRegionRequest
        with self._servers() as servers:
            servers.ask(Request(region.address, b"FlushRegion", message, service=ADMIN), table)

    def _registry(self) -> Registry:
        return open_registry(self._settings, ZooKeeperNodes(self._settings).read.asked)

    @contextlib.contextmanager
    def _servers(self) -> Iterator[Servers]:
        with contextlib.closing(Servers(self._settings)) as servers:
            yield servers

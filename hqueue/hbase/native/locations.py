"""Which server has which partition."""

from __future__ import annotations

from hqueue.format import rowkey
from hqueue.hbase.native.regions import Meta
from hqueue.hbase.native.servers import Servers
from hqueue.log.store import PartitionLocation

__all__ = ["PartitionLocations"]


class PartitionLocations:
    """The store's `LocationPort`: what ``hbase:meta`` says now. Thread-safe.

    Args:
        servers: to region servers.
        meta: reads it.
    """

    def __init__(self, servers: Servers, meta: Meta) -> None:
        self._servers = servers
        self._meta = meta

    def locate(self, queue: str, partitions: int) -> list[PartitionLocation]:
        found = self._servers.carry_out(self._meta.read(queue))
        found.check()
        located = []
        for partition in range(partitions):
            host, port = found.of(rowkey.first_of(partition)).address
            located.append(PartitionLocation(partition, host, port))
        return located

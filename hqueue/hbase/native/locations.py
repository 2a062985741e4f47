"""Which server has which partition."""

from __future__ import annotations

from hqueue.format import rowkey
from hqueue.hbase.native.regions import Meta
from hqueue.log.store import PartitionLocation

__all__ = ["PartitionLocations"]


class PartitionLocations:
    """The store's `LocationPort`: what ``hbase:meta`` says now. Thread-safe.

    Args:
        meta: reads it.
    """

    def __init__(self, meta: Meta) -> None:
        self._meta = meta

    def locate(self, queue: str, partitions: int) -> list[PartitionLocation]:
        found = self._meta.read(queue)
        found.check()
        located = []
        for partition in range(partitions):
            host, port = found.of(rowkey.first_of(partition)).address
            located.append(PartitionLocation(partition, host, port))
        return located

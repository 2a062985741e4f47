"""How much room the regions of queues take, as the region servers count it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hqueue.errors import HQueueError, Outcome, StoreUnavailableError
from hqueue.format import rowkey
from hqueue.hbase.native.async_servers import AsyncServers
from hqueue.hbase.native.exchanges import AskAll, Asking, Request
from hqueue.hbase.native.protocol import pb
from hqueue.hbase.native.regions import Meta
from hqueue.hbase.native.servers import Servers
from hqueue.hbase.native.table_schema import table_name
from hqueue.hbase.native.translation import reads_answer
from hqueue.hbase.native.wire import ADMIN
from hqueue.log.table_ports import RegionSize
from hqueue.runtime.clock import Clock
from hqueue.runtime.stepwise import OnPorts, stepwise

__all__ = ["RegionSizes"]

MIB = 1024 * 1024


class RegionSizes(OnPorts):
    """The store's `SizePort`: one request to each region server that has regions of the queue,
    which answers for these regions alone. Thread-safe.

    Args:
        servers, async_servers: region servers.
        meta: says which they are.
        clock: where time comes from.
    """

    def __init__(
        self, servers: Servers, async_servers: AsyncServers, meta: Meta, clock: Clock
    ) -> None:
        super().__init__(servers, async_servers, clock)
        self._meta = meta

    @stepwise
    def sizes(self, queue: str, partitions: int) -> Asking[list[RegionSize]]:
        """Like `SizePort.sizes`."""
        found = yield from self._meta.read(queue)
        found.check()
        message = pb.GetRegionLoadRequest(table_name=table_name(queue)).SerializeToString()
        servers = dict.fromkeys(region.address for region in found.regions)
        requests = [Request(each, b"GetRegionLoad", message, service=ADMIN) for each in servers]
        answers = yield AskAll(requests, queue)
        loads = _loads(answers)
        sizes = []
        for region in found.regions:
            load = loads.get(region.name)
            if load is None:
                raise StoreUnavailableError(
                    "a region is moving: its server does not say its size now",
                    outcome=Outcome.NOT_APPLIED,
                    queue=queue,
                )
            first, last = rowkey.partitions_between(region.start, region.end, partitions)
            stored, held = load.storefile_size_MB * MIB, load.memstore_size_MB * MIB
            sizes.append(RegionSize(first, last, stored, held))
        return sizes


@reads_answer
def _loads(answers: Sequence[Any]) -> Mapping[bytes, Any]:
    """What the servers say, by the regions' names."""
    found = {}
    for said in answers:
        if isinstance(said, HQueueError):
            raise said
        for load in pb.GetRegionLoadResponse.FromString(said.message).region_loads:
            found[load.region_specifier.value] = load
    return found

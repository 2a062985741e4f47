"""Which host serves which partition, so that the gateway there can be asked."""

from __future__ import annotations

import bisect
import dataclasses
import threading
from functools import partial
from typing import Any

from hqueue.errors import HQueueError, Outcome, StoreUnavailableError
from hqueue.format import rowkey
from hqueue.hbase.thrift.connection import Service
from hqueue.hbase.thrift.gateways import Gateways
from hqueue.hbase.thrift.translation import present, reads_answer
from hqueue.log.table_ports import PartitionLocation
from hqueue.runtime.clock import SYSTEM_CLOCK, Clock
from hqueue.runtime.fork import register
from hqueue.runtime.held import if_free
from hqueue.runtime.steps import Work
from hqueue.runtime.stepwise import Stepwise, stepwise

__all__ = ["Locations", "PartitionLocations", "RegionLocation", "region_locations"]

FRESH_MS = 30_000
RETRY_MS = 5_000


@dataclasses.dataclass(frozen=True, slots=True)
class RegionLocation:
    """A region of a table and the server that holds it."""

    start_key: bytes
    end_key: bytes
    host: str
    port: int


@reads_answer
def region_locations(gateways: Gateways, table: str) -> list[RegionLocation]:
    """Every region's location, by start key. One request, whatever the number of regions.

    Raises:
        StoreUnavailableError: there was no answer, or it leaves out the first region.
    """
    answer = gateways.call(Service.THRIFT2, "getAllRegionLocations", table, table.encode())
    locations = sorted(
        (
            RegionLocation(
                entry.regionInfo.startKey or b"",
                entry.regionInfo.endKey or b"",
                _text(present(entry.serverName.hostName)),
                entry.serverName.port or 0,
            )
            for entry in answer
        ),
        key=lambda location: location.start_key,
    )
    if not locations or locations[0].start_key:
        raise StoreUnavailableError(
            "the table's first region can't be located", outcome=Outcome.NOT_APPLIED, queue=table
        )
    return locations


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value


class PartitionLocations(Stepwise):
    """The store's `LocationPort`. Thread-safe. Threads make the requests of an event loop."""

    def __init__(self, gateways: Gateways) -> None:
        self._gateways = gateways

    @stepwise
    def locate(self, queue: str, partitions: int) -> Work[Any, list[PartitionLocation]]:
        """Like `LocationPort.locate`."""
        regions: list[RegionLocation]
        regions = yield self._gateways.blocking(partial(region_locations, self._gateways, queue))
        starts = [region.start_key for region in regions]
        holding = [
            regions[bisect.bisect_right(starts, rowkey.first_of(partition)) - 1]
            for partition in range(partitions)
        ]
        return [
            PartitionLocation(partition, region.host, region.port)
            for partition, region in enumerate(holding)
        ]


class Locations:
    """A table's locations, kept for 30 s. A hint: it may be old, and never raises.

    With all gateways on one host there is nothing to prefer, and nothing is asked.
    """

    def __init__(self, gateways: Gateways, table: str, clock: Clock = SYSTEM_CLOCK) -> None:
        self._gateways = gateways
        self._table = table
        self._clock = clock
        hosts = {address.host for address in gateways.settings.gateways}
        self._several_hosts = len(hosts) > 1
        self._stale_from_ms = 0.0
        self._known: tuple[list[bytes], list[str]] = [], []
        """Where the regions start, and their hosts."""
        self.after_fork_in_child()
        register(self)

    def after_fork_in_child(self) -> None:
        self._lock = threading.RLock()
        """Held by the one that asks. Others wait while nothing is known, and else use that."""

    def host_of(self, row: bytes) -> str | None:
        """The host of the region that holds this row, if it is known."""
        if not self._several_hosts:
            return None
        if self._clock.monotonic_ms() >= self._stale_from_ms:
            if self._known[0]:
                if_free(self._lock, self._ask_if_stale)
            else:
                with self._lock:
                    self._ask_if_stale()
        starts, hosts = self._known
        at = bisect.bisect_right(starts, row) - 1
        return hosts[at] if at >= 0 else None

    def _ask_if_stale(self) -> None:
        now_ms = self._clock.monotonic_ms()
        if now_ms < self._stale_from_ms:
            return
        try:
            regions = region_locations(self._gateways, self._table)
        except HQueueError:
            self._stale_from_ms = now_ms + RETRY_MS
            return
        self._known = [each.start_key for each in regions], [each.host for each in regions]
        self._stale_from_ms = now_ms + FRESH_MS

    def doubt(self) -> None:
        """Ask again before the next use: a request to the known host failed."""
        self._stale_from_ms = min(self._stale_from_ms, self._clock.monotonic_ms() + RETRY_MS)

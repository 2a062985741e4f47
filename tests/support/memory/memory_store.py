"""The store's ports in memory."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Literal, TypeVar

from hqueue.errors import ClosedError, Outcome, StoreUnavailableError
from hqueue.format import rowkey
from hqueue.hbase.row_records import RowRecords
from hqueue.log.in_threads import LogInThreads
from hqueue.log.ports import Row
from hqueue.log.table_ports import PartitionLocation, RegionSize, Snapshot
from hqueue.runtime.clock import SYSTEM_CLOCK, Clock, Deadline
from hqueue.runtime.steps import Pause, Wait, Work
from hqueue.runtime.stepwise import OnPorts, Stepwise, stepwise
from hqueue.settings.attributes import QueueDescription
from hqueue.settings.connection import Settings
from hqueue.settings.limits import TRUNCATE_PAUSE_MS
from tests.support.memory.cluster import MemoryCluster
from tests.support.memory.network import Network
from tests.support.memory.record_rows import MemoryRecordRows, in_turn
from tests.support.memory.rows import Rows

__all__ = ["MemoryStore"]

Result = TypeVar("Result")


class MemoryStore(Stepwise):
    """The `StorePort` on a cluster in memory.

    Args:
        cluster: what it stores in; others may be open on the same.
        settings: the bounds on a request and on an operation with all its tries.
        clock: this machine's clock; the cluster has its own.
        network: what lies between; one that loses nothing if None.
    """

    tokens = None

    def __init__(
        self,
        cluster: MemoryCluster,
        settings: Settings,
        clock: Clock = SYSTEM_CLOCK,
        network: Network | None = None,
    ) -> None:
        self._settings = settings
        self._link = _Link(cluster, settings, clock, network or Network())
        self.tables = MemoryTables(self._link)
        self.snapshots = MemorySnapshots(self._link)
        self.locations = MemoryLocations(self._link)
        self.sizes = MemorySizes(self._link)
        rows = MemoryRecordRows(cluster, settings.metadata_table, self._link.ask)
        self._fields = RowRecords(rows, clock, settings.operation_timeout_ms)

    @stepwise
    def cluster_id(self) -> Work[Any, str]:
        deadline = Deadline(self._link.clock, self._settings.operation_timeout_ms)
        return deadline.run(partial(self._link.ask, "cluster_id", lambda: self._link.cluster.id))
        yield

    def log(self, queue: str) -> MemoryLog:
        return MemoryLog(self._link, queue)

    def async_log(self, queue: str) -> LogInThreads:
        return LogInThreads(self.log(queue), _in_loop)

    def fields(self) -> RowRecords:
        return self._fields

    def close(self) -> None:
        self._link.closed = True
        self._fields.close()


async def _in_loop(call: Callable[[], Result]) -> Result:
    """Make a call right in the loop, when all else that is due there has run."""
    await asyncio.sleep(0)
    return call()


class _Link:
    """The way from one store to the cluster."""

    def __init__(
        self, cluster: MemoryCluster, settings: Settings, clock: Clock, network: Network
    ) -> None:
        self.cluster = cluster
        self.clock = clock
        self.closed = False
        self._settings = settings
        self._network = network

    def ask(self, operation: str, request: Callable[[], Result]) -> Result:
        """Make one request."""
        if self.closed:
            raise ClosedError("the client is closed")
        wait = partial(self.clock.sleep_ms, self._settings.request_timeout_ms)
        return self._network.bring(operation, request, wait)

    def wait(self, operation: str, request: Callable[[], Result]) -> Wait:
        """Asks for a request to be made."""
        return in_turn(partial(self.ask, operation, request))

    def insist(self, operation: str, request: Callable[[], Result]) -> Work[Any, Result]:
        """Make a request until it is answered, or the operation's bound is over."""
        deadline = Deadline(self.clock, self._settings.operation_timeout_ms)

        def attempt() -> Work[Any, Result]:
            return (yield self.wait(operation, request))

        return deadline.bound(deadline.insist(attempt))


class _OnLink(OnPorts):
    def __init__(self, link: _Link) -> None:
        super().__init__(None, None, link.clock)
        self._link = link


def _once(request: Callable[[], None]) -> Callable[[], None]:
    """A request that has nothing to do any more once it is done."""
    done = False

    def make() -> None:
        nonlocal done
        if not done:
            request()
        done = True

    return make


class MemoryTables(_OnLink):
    """The store's `TablePort`."""

    def __init__(self, link: _Link) -> None:
        super().__init__(link)
        self._cluster = link.cluster

    @stepwise
    def create(
        self,
        name: str,
        partitions: int,
        ttl_seconds: int | None,
        attributes: Mapping[str, int | str],
    ) -> Work[Any, None]:
        request = partial(
            self._cluster.create, name, partitions, ttl_seconds, attributes, secrets.token_hex(8)
        )
        return self._link.insist("create", request)

    @stepwise
    def list(self) -> Work[Any, list[QueueDescription]]:
        return self._link.insist("list", self._cluster.list)

    @stepwise
    def describe(self, name: str) -> Work[Any, QueueDescription]:
        return self._link.insist("describe", partial(self._cluster.describe, name))

    @stepwise
    def alter(
        self,
        name: str,
        *,
        ttl_seconds: int | Literal["keep"] | None = "keep",
        attributes: Mapping[str, int | str],
    ) -> Work[Any, None]:
        return self._link.insist(
            "alter", partial(self._cluster.alter, name, ttl_seconds, attributes)
        )

    @stepwise
    def enable(self, name: str) -> Work[Any, None]:
        return self._link.insist("enable", partial(self._cluster.enable, name))

    @stepwise
    def disable(self, name: str) -> Work[Any, None]:
        return self._link.insist("disable", partial(self._cluster.disable, name))

    @stepwise
    def delete(self, name: str) -> Work[Any, None]:
        return self._link.insist("delete", _once(partial(self._cluster.delete, name)))

    @stepwise
    def truncate(self, name: str) -> Work[Any, None]:
        yield from self.disable.steps(name)
        yield Pause(TRUNCATE_PAUSE_MS)
        yield from self._link.insist("truncate", partial(self._cluster.truncate, name))


class MemorySnapshots(_OnLink):
    """The store's `SnapshotPort`."""

    @stepwise
    def create(self, name: str, queue: str) -> Work[Any, None]:
        request = partial(self._link.cluster.create_snapshot, name, queue)
        return self._link.insist("create_snapshot", _once(request))

    @stepwise
    def list(self) -> Work[Any, list[Snapshot]]:
        return self._link.insist("list_snapshots", self._link.cluster.list_snapshots)

    @stepwise
    def delete(self, name: str) -> Work[Any, None]:
        request = partial(self._link.cluster.delete_snapshot, name)
        return self._link.insist("delete_snapshot", _once(request))

    @stepwise
    def restore(self, name: str, queue: str) -> Work[Any, None]:
        request = partial(self._link.cluster.restore_snapshot, name, queue)
        return self._link.insist("restore_snapshot", request)


class MemoryLocations(_OnLink):
    """The store's `LocationPort`."""

    @stepwise
    def locate(self, queue: str, partitions: int) -> Work[Any, list[PartitionLocation]]:
        request = partial(self._link.cluster.locate, queue, partitions)
        located = yield self._link.wait("locate", request)
        return [PartitionLocation(partition, *where) for partition, where in enumerate(located)]


class MemorySizes(_OnLink):
    """The store's `SizePort`."""

    @stepwise
    def sizes(self, queue: str, partitions: int) -> Work[Any, list[RegionSize]]:
        request = partial(self._link.cluster.sizes, queue)
        sized = yield self._link.wait("sizes", request)
        return [
            RegionSize(*rowkey.partitions_between(start, end, partitions), 0, size)
            for start, end, size in sized
        ]


class MemoryLog:
    """The store's `LogPort` on one table: each method is one request."""

    def __init__(self, link: _Link, table: str) -> None:
        self._link = link
        self._table = table

    def newest(self, partition: int, at_or_below: int) -> Row | None:
        return self._ask("newest", lambda rows: rows.newest(partition, at_or_below))

    def backwards(self, partition: int, at_or_below: int, limit: int) -> list[Row]:
        return self._ask("backwards", lambda rows: rows.backwards(partition, at_or_below, limit))

    def headers(self, partition: int, start: int, limit: int) -> list[Row]:
        return self._ask("headers", lambda rows: rows.headers(partition, start, limit))

    def header(self, partition: int, slot: int) -> bytes | None:
        return self._ask("header", lambda rows: rows.header(partition, slot))

    def get(self, slots: Sequence[tuple[int, int]], topics: Iterable[str] | None) -> list[Row]:
        return self._ask("get", lambda rows: rows.get(slots, topics))

    def open(
        self, partition: int, start: int, stop: int, topics: Iterable[str] | None
    ) -> MemoryStream:
        self._ask("open", lambda rows: None)
        first, beyond = rowkey.encode(partition, start), rowkey.encode(partition, stop)
        return MemoryStream(self, first, beyond, None if topics is None else frozenset(topics))

    def scan(
        self, first: bytes, beyond: bytes, limit: int, topics: Iterable[str] | None
    ) -> list[Row]:
        """The next rows of an open scan."""
        return self._ask("read", lambda rows: rows.scan(first, beyond, limit, topics))

    def put_if_absent(
        self, partition: int, slot: int, header: bytes, cells: Mapping[bytes, bytes]
    ) -> bool:
        return self._ask(
            "put_if_absent", lambda rows: rows.put_if_absent(partition, slot, header, cells)
        )

    def delete_headers(self, partition: int, slots: Sequence[int], until_ms: int) -> None:
        self._ask("delete_headers", lambda rows: rows.delete_headers(partition, slots, until_ms))

    def delete_row(self, partition: int, slot: int, topics: Iterable[bytes]) -> None:
        self._ask("delete_row", lambda rows: rows.delete_row(partition, slot, topics))

    def record(self, name: str) -> bytes | None:
        return self._ask("record", lambda rows: rows.record(name))

    def replace_record(self, name: str, old: bytes | None, new: bytes) -> bool:
        return self._ask("replace_record", lambda rows: rows.replace_record(name, old, new))

    def clock_offset_ms(self) -> tuple[float, float]:
        there_ms = self._ask("clock_offset_ms", lambda rows: self._link.cluster.clock.wall_ms())
        return float(there_ms - self._link.clock.wall_ms()), 0.0

    def _ask(self, operation: str, request: Callable[[Rows], Result]) -> Result:
        return self._link.ask(operation, partial(self._link.cluster.ask, self._table, request))


class MemoryStream:
    """An open scan. One that failed is gone, as in a gateway."""

    def __init__(
        self, log: MemoryLog, first: bytes, beyond: bytes, topics: frozenset[str] | None
    ) -> None:
        self._log = log
        self._first = first
        self._beyond = beyond
        self._topics = topics
        self._gone = False

    def read(self, rows: int) -> list[Row]:
        if self._gone:
            raise StoreUnavailableError(
                "the scan was closed or interrupted", outcome=Outcome.NOT_APPLIED
            )
        try:
            found = self._log.scan(self._first, self._beyond, rows, self._topics)
        except StoreUnavailableError:
            self._gone = True
            raise
        if found:
            self._first = found[-1].key + b"\0"
        return found

    def close(self) -> None:
        self._gone = True

"""A cluster in memory: tables as HBase has them, for as many stores as are opened on it."""

from __future__ import annotations

import bisect
import builtins
import dataclasses
import threading
import uuid
from collections.abc import Callable, Mapping
from typing import TypeVar

from hqueue.errors import (
    NotAQueueError,
    Outcome,
    QueueDisabledError,
    QueueEnabledError,
    QueueExistsError,
    QueueNotFoundError,
    RequestRefusedError,
    SnapshotExistsError,
    SnapshotNotFoundError,
    StoreUnavailableError,
)
from hqueue.format import rowkey
from hqueue.log.table_ports import Snapshot
from hqueue.runtime.clock import SYSTEM_CLOCK, Clock
from hqueue.settings.attributes import ATTRIBUTES, QueueDescription
from tests.support.memory.rows import Rows
from tests.support.raw import OPENING_ROW, Region

__all__ = ["MemoryCluster", "Table"]

Result = TypeVar("Result")
SERVER = ("memory.test", 16_020)


@dataclasses.dataclass
class Table:
    """A table, and what is known of it."""

    rows: Rows
    starts: list[bytes]
    """Where its regions begin."""
    partitions: int | None
    """None for a table that is no queue."""
    attributes: dict[str, int | str]
    token: str
    """Which call created it: that call, repeated, has done it."""
    enabled: bool = True
    is_records: bool = False
    """Whether it has records of fields."""
    moved: dict[int, tuple[str, int]] = dataclasses.field(default_factory=dict)
    """The servers of regions that were moved, by the region's number."""

    def copied(self, *, enabled: bool) -> Table:
        """A table of its own with the same rows."""
        rows, attributes = self.rows.copied(), dict(self.attributes)
        return dataclasses.replace(self, rows=rows, attributes=attributes, enabled=enabled)


class MemoryCluster:
    """Tables, their rows and their regions. Thread-safe: every method is atomic.

    Tests look at it past hqueue, as at any store's tables: it is `tests.support.raw.RawTables`.

    Args:
        clock: the servers' clock, by which bodies expire.
    """

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self.clock = clock
        self.id = str(uuid.uuid4())
        self.namespaces = {"default"}
        self._tables: dict[str, Table] = {}
        self._snapshots: dict[str, tuple[Snapshot, Table]] = {}
        self._lock = threading.RLock()

    # What stores ask for.

    def create(
        self,
        name: str,
        partitions: int,
        ttl_seconds: int | None,
        attributes: Mapping[str, int | str],
        token: str,
    ) -> None:
        with self._lock:
            if (name.rpartition(":")[0] or "default") not in self.namespaces:
                raise RequestRefusedError("there is no such namespace", queue=name)
            if name in self._tables:
                if self._tables[name].token != token:
                    raise QueueExistsError("there is a table of that name already", queue=name)
                return
            per_region = int(attributes.get("partitions_per_region", 1))
            self._tables[name] = Table(
                Rows(self.clock.wall_ms, _ttl_ms(ttl_seconds)),
                [b"", *rowkey.split_keys(partitions, per_region)],
                partitions,
                {"compression": "NONE", **attributes},
                token,
            )

    def create_records(self, name: str, token: str) -> None:
        """Create a table of records of fields."""
        with self._lock:
            if name in self._tables:
                if self._tables[name].token != token:
                    raise QueueExistsError("there is a table of that name already", queue=name)
                return
            rows = Rows(self.clock.wall_ms)
            self._tables[name] = Table(rows, [b""], None, {}, token, is_records=True)

    def list(self) -> list[QueueDescription]:
        with self._lock:
            queues = sorted(name for name, table in self._tables.items() if table.partitions)
            return [dataclasses.replace(self.describe(name), enabled=None) for name in queues]

    def describe(self, name: str) -> QueueDescription:
        with self._lock:
            table = self._queue(name)
            ttl_ms = table.rows.ttl_ms
            attributes = {n: table.attributes[n] for n in ATTRIBUTES if n in table.attributes}
            return QueueDescription(
                name,
                table.partitions or 0,
                None if ttl_ms is None else ttl_ms // 1_000,
                attributes,
                table.enabled,
            )

    def alter(
        self, name: str, ttl_seconds: int | str | None, attributes: Mapping[str, int | str]
    ) -> None:
        with self._lock:
            table = self._queue(name)
            if not isinstance(ttl_seconds, str):
                table.rows.ttl_ms = _ttl_ms(ttl_seconds)
            table.attributes |= attributes

    def enable(self, name: str) -> None:
        with self._lock:
            self._queue(name).enabled = True

    def disable(self, name: str) -> None:
        with self._lock:
            self._queue(name).enabled = False

    def delete(self, name: str) -> None:
        with self._lock:
            if self._queue(name).enabled:
                raise QueueEnabledError("the queue must be disabled first", queue=name)
            del self._tables[name]

    def truncate(self, name: str) -> None:
        """Delete the rows of a disabled queue, and enable it. An enabled one was truncated by a
        try whose answer was lost.
        """
        with self._lock:
            table = self._queue(name)
            if not table.enabled:
                table.rows.clear()
                table.enabled = True

    def create_snapshot(self, name: str, queue: str) -> None:
        with self._lock:
            if name in self._snapshots:
                raise SnapshotExistsError("there is a snapshot of that name already")
            held = self.table(queue).copied(enabled=False)
            self._snapshots[name] = Snapshot(name, queue, self.clock.wall_ms()), held

    def list_snapshots(self) -> builtins.list[Snapshot]:
        return [snapshot for snapshot, _ in self._snapshots.values()]

    def delete_snapshot(self, name: str) -> None:
        with self._lock:
            if self._snapshots.pop(name, None) is None:
                raise SnapshotNotFoundError("there is no such snapshot")

    def restore_snapshot(self, name: str, queue: str) -> None:
        """Fill a disabled table, or create an enabled one."""
        with self._lock:
            if name not in self._snapshots:
                raise SnapshotNotFoundError("there is no such snapshot")
            there = self._tables.get(queue)
            if there is not None and there.enabled:
                raise QueueEnabledError("the queue must be disabled first", queue=queue)
            self._tables[queue] = self._snapshots[name][1].copied(enabled=there is None)

    def ask(self, name: str, request: Callable[[Rows], Result]) -> Result:
        """Let a table do something with its rows."""
        with self._lock:
            table = self.table(name)
            if not table.enabled:
                raise QueueDisabledError("the queue is disabled", queue=name)
            return request(table.rows)

    def table(self, name: str) -> Table:
        """A table of whatever kind."""
        if name not in self._tables:
            raise QueueNotFoundError("there is no such queue", queue=name)
        return self._tables[name]

    def locate(self, name: str, partitions: int) -> list[tuple[str, int]]:
        """The host and port of each partition's server."""
        with self._lock:
            if name not in self._tables:
                raise StoreUnavailableError(
                    "the partitions are served nowhere", outcome=Outcome.NOT_APPLIED, queue=name
                )
            regions = self.regions(name)
            starts = [region.start_key for region in regions]
            held = [bisect.bisect_right(starts, rowkey.first_of(p)) - 1 for p in range(partitions)]
            return [(regions[number].host, regions[number].port) for number in held]

    def sizes(self, name: str) -> builtins.list[tuple[bytes, bytes, int]]:
        """Each region's first row, the first one beyond it, and how many bytes its cells have."""
        with self._lock:
            if name not in self._tables or not self._tables[name].enabled:
                raise StoreUnavailableError(
                    "the regions are served nowhere", outcome=Outcome.NOT_APPLIED, queue=name
                )
            rows = self.rows(name)
            sizes = dict.fromkeys(self._tables[name].starts, 0)
            starts = [*sizes]
            for key, cells in rows.items():
                start = starts[bisect.bisect_right(starts, key) - 1]
                sizes[start] += sum(len(key) + len(c) + len(v) for c, v in cells.items())
            ends = [*starts[1:], b""]
            return [(start, end, sizes[start]) for start, end in zip(starts, ends, strict=True)]

    # What tests do past hqueue.

    def move(self, name: str, region: int, host: str, port: int) -> None:
        """Let another server hold a region, by its number."""
        with self._lock:
            self.table(name).moved[region] = host, port

    def create_plain(self, name: str) -> None:
        """Create a table with a queue's families that is not a queue."""
        with self._lock:
            self._tables[name] = Table(Rows(self.clock.wall_ms), [b""], None, {}, "")

    def drop(self, name: str) -> None:
        """Disable and delete a table."""
        with self._lock:
            del self._tables[name]

    def create_namespace(self, namespace: str) -> None:
        self.namespaces.add(namespace)

    def delete_namespace(self, namespace: str) -> None:
        self.namespaces.remove(namespace)

    def exists(self, name: str) -> bool:
        return name in self._tables

    def names(self) -> list[str]:
        """The names of all tables."""
        return list(self._tables)

    def is_enabled(self, name: str) -> bool:
        return self.table(name).enabled

    def regions(self, name: str) -> list[Region]:
        """The table's regions by start key."""
        with self._lock:
            table = self.table(name)
            ends = [*table.starts[1:], b""]
            return [
                Region(start, end, *table.moved.get(number, SERVER))
                for number, (start, end) in enumerate(zip(table.starts, ends, strict=True))
            ]

    def rows(self, name: str) -> dict[bytes, dict[bytes, bytes]]:
        """Every row with all its cells, except the record by which a queue is opened."""
        with self._lock:
            rows = self.table(name).rows
            keys = [key for key in rows.between() if key != OPENING_ROW]
            visible = {key: rows.visible(key) for key in keys}
            return {
                key: {column: cell.value for column, cell in sorted(cells.items())}
                for key, cells in visible.items()
                if cells
            }

    def put(
        self, name: str, row: bytes, cells: Mapping[bytes, bytes], timestamp_ms: int | None = None
    ) -> None:
        """Write cells, their columns written ``family:qualifier``, with a timestamp of choice."""
        with self._lock:
            self.table(name).rows.put(row, cells, timestamp_ms)

    def delete_cells(self, name: str, row: bytes, *columns: bytes) -> None:
        """Delete these cells of a row; all if none is named."""
        with self._lock:
            self.table(name).rows.delete(row, columns or None)

    def _queue(self, name: str) -> Table:
        table = self.table(name)
        if table.partitions is None:
            raise NotAQueueError("this table was not created as a queue", queue=name)
        return table


def _ttl_ms(ttl_seconds: int | None) -> int | None:
    return None if ttl_seconds is None else ttl_seconds * 1_000

"""What a client needs of a store for its queues: tables, where they are served, and their logs.

A store keeps each queue in a table of its own. `hqueue.hbase` provides these ports on HBase, and
the tests' store provides them in memory; one suite, `tests/conformance`, holds both to them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, Protocol

from hqueue.log.ports import ReadPort, Row, WritePort
from hqueue.runtime.steps import Work
from hqueue.runtime.stepwise import stepwise
from hqueue.settings.attributes import QueueDescription

__all__ = [
    "AsyncLogPort",
    "AsyncRowStream",
    "LocationPort",
    "LogPort",
    "PartitionLocation",
    "RegionSize",
    "SizePort",
    "Snapshot",
    "SnapshotPort",
    "TablePort",
]


class TablePort(Protocol):
    """Administration of queues' tables: in the caller's thread, or in an event loop. Thread-safe.

    Each operation is repeated until it is done or the operation's bound is over; one that had been
    done by a try whose answer was lost counts as done. Names and values have been checked. Each
    raises

    - `StoreUnavailableError` when there was no usable answer until the bound;
    - `QueueNotFoundError` when there is no such table, unless that is what was asked for;
    - `NotAQueueError` for a table that was not created as a queue: it is left alone.
    """

    @stepwise
    def create(
        self,
        name: str,
        partitions: int,
        ttl_seconds: int | None,
        attributes: Mapping[str, int | str],
    ) -> Work[Any, None]:
        """Create a presharded table that is never split.

        Raises:
            QueueExistsError: there is a table of that name, of whatever kind.
            RequestRefusedError: its namespace doesn't exist, for example.
        """

    @stepwise
    def list(self) -> Work[Any, list[QueueDescription]]:
        """Every queue, by name; tables that are not queues are left out."""

    @stepwise
    def describe(self, name: str) -> Work[Any, QueueDescription]:
        """What the store says of a queue now, `enabled` too."""

    @stepwise
    def alter(
        self,
        name: str,
        *,
        ttl_seconds: int | Literal["keep"] | None = "keep",
        attributes: Mapping[str, int | str],
    ) -> Work[Any, None]:
        """Change the TTL (unless ``"keep"``; None is for ever) and attributes; the others stay."""

    @stepwise
    def enable(self, name: str) -> Work[Any, None]:
        """Enable a queue; one that is enabled stays so."""

    @stepwise
    def disable(self, name: str) -> Work[Any, None]:
        """Disable a queue; one that is disabled stays so. Its rows are refused until it is enabled:
        `QueueDisabledError`.
        """

    @stepwise
    def delete(self, name: str) -> Work[Any, None]:
        """Delete a disabled queue with its messages.

        Raises:
            QueueEnabledError: it is not disabled.
        """

    @stepwise
    def truncate(self, name: str) -> Work[Any, None]:
        """Delete all rows and keep the presharding. It is enabled afterwards.

        The table stays disabled for longer than any writer trusts what it knows of the log.
        """


@dataclasses.dataclass(frozen=True, slots=True)
class PartitionLocation:
    """The region server that serves a partition."""

    partition: int
    host: str
    port: int


class LocationPort(Protocol):
    """Which server serves which partition now: for threads, and for event loops."""

    @stepwise
    def locate(self, queue: str, partitions: int) -> Work[Any, list[PartitionLocation]]:
        """The locations of a queue's partitions, each once and in order. One try.

        Raises:
            StoreUnavailableError: there was no usable answer, or a partition is served nowhere, as
                those of a queue that is not there.
        """


@dataclasses.dataclass(frozen=True, slots=True)
class RegionSize:
    """How much room a region of a queue's table takes, as its region server counts it: HBase counts
    in whole MiB.
    """

    first_partition: int
    """The first partition that has rows in the region."""
    last_partition: int
    """The last one. Regions have one partition each, unless the queue has the attribute
    ``partitions_per_region``; a partition that was split by hand has several regions.
    """
    stored_bytes: int
    """In store files: compressed, and without the copies that HDFS keeps."""
    memory_bytes: int
    """In the region server's memory, until HBase flushes it into a store file."""


class SizePort(Protocol):
    """How much room queues take now: for threads, and for event loops."""

    @stepwise
    def sizes(self, queue: str, partitions: int) -> Work[Any, list[RegionSize]]:
        """The sizes of a queue's regions, by their first rows. One try.

        Raises:
            StoreUnavailableError: there was no usable answer, or a region is served nowhere.
            RequestRefusedError: this client may not ask.
        """


@dataclasses.dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot of a table: the rows that it had at one moment."""

    name: str
    queue: str
    """The table whose rows it has."""
    created_ms: int
    """When it was taken, by the store's clock."""


class SnapshotPort(Protocol):
    """Snapshots of queues' tables: in the caller's thread, or in an event loop. Thread-safe.

    Each operation is repeated as those of `TablePort` are. Names have been checked.
    """

    @stepwise
    def create(self, name: str, queue: str) -> Work[Any, None]:
        """Take a snapshot of a table, enabled or not. Of each partition it has all appends up to a
        moment, and none after it.

        Raises:
            SnapshotExistsError: there is a snapshot of that name.
            QueueNotFoundError, RequestRefusedError: there is no such table.
        """

    @stepwise
    def list(self) -> Work[Any, list[Snapshot]]:
        """All snapshots of all tables, queues or not."""

    @stepwise
    def delete(self, name: str) -> Work[Any, None]:
        """Delete a snapshot. Tables that were restored from it keep their rows.

        Raises:
            SnapshotNotFoundError: there is no snapshot of that name.
        """

    @stepwise
    def restore(self, name: str, queue: str) -> Work[Any, None]:
        """Give a table the schema and the rows of a snapshot. A table that exists must have been
        disabled, and stays so, and the snapshot must be its own; a table that doesn't exist is
        created, and enabled.

        Raises:
            SnapshotNotFoundError: there is no snapshot of that name.
            QueueEnabledError, StoreUnavailableError: the table is enabled. It stays as it is.
        """


class LogPort(ReadPort, WritePort, Protocol):
    """Everything of `hqueue.log.ports`, on one queue's table. Thread-safe, and usable in a forked
    child.

    While the table is disabled, each method raises `QueueDisabledError`; `delete_headers` may raise
    `StoreUnavailableError` instead. If the table was deleted, each raises `QueueNotFoundError`.
    """


class AsyncRowStream(Protocol):
    """Like `RowStream`. One coroutine at a time."""

    async def read(self, rows: int) -> list[Row]: ...
    async def close(self) -> None: ...


class AsyncLogPort(Protocol):
    """Like `LogPort`, for coroutines of whichever event loop runs. None of its methods blocks a
    loop.

    A caller may be cancelled wherever it waits, without harm to others; the outcome of a write is
    unknown then. `open` may leave it to the first `read` to ask the store.
    """

    async def newest(self, partition: int, at_or_below: int) -> Row | None: ...
    async def headers(self, partition: int, start: int, limit: int) -> list[Row]: ...
    async def get(
        self, slots: Sequence[tuple[int, int]], topics: Iterable[str] | None
    ) -> list[Row]: ...
    async def open(
        self, partition: int, start: int, stop: int, topics: Iterable[str] | None
    ) -> AsyncRowStream: ...
    async def put_if_absent(
        self, partition: int, slot: int, header: bytes, cells: Mapping[bytes, bytes]
    ) -> bool: ...
    async def header(self, partition: int, slot: int) -> bytes | None: ...
    async def backwards(self, partition: int, at_or_below: int, limit: int) -> list[Row]: ...
    async def delete_headers(self, partition: int, slots: Sequence[int], until_ms: int) -> None: ...
    async def delete_row(self, partition: int, slot: int, topics: Iterable[bytes]) -> None: ...
    async def clock_offset_ms(self) -> tuple[float, float]: ...
    async def record(self, name: str) -> bytes | None: ...
    async def replace_record(self, name: str, old: bytes | None, new: bytes) -> bool: ...

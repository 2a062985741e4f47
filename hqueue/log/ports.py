"""What the log needs of a store: rows that are atomic, and a put on condition of absence.

The log (`hqueue.log`) is written against these ports alone; `hqueue.hbase` provides them on real
tables, and the tests provide them in memory, where the model explores every fault. What a client
needs beyond them is in `hqueue.log.table_ports`. Each method makes one try.
Each raises `StoreUnavailableError` when it got no usable answer, with the outcome of a write, and
another `HQueueError` for an answer that trying again won't change.

A write is applied by the server of the partition, and by no one else. A read may be answered by a
server that lost the partition and has not noticed: from the log as it was before, with what is in
one answer known to one server.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from hqueue.format.header import Header, decode_header

__all__ = [
    "AppendPort",
    "HeaderPort",
    "ReadPort",
    "RecordPort",
    "Row",
    "RowStream",
    "WritePort",
    "header_of",
]


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """A row as the store returns it. Only the row key is decoded."""

    key: bytes
    partition: int
    slot: int
    header: bytes | None
    cells: Mapping[str, bytes]
    """Each topic's cell of bodies, for those topics that were requested and that the row has."""


def header_of(row: Row) -> Header:
    """The header of a row.

    Raises:
        CorruptLogError: it is not a header, or the header is missing, as where only a body is left.
    """
    return decode_header(row.key, row.header or b"")


class HeaderPort(Protocol):
    """Reading headers. Their rows come without bodies."""

    def newest(self, partition: int, at_or_below: int) -> Row | None:
        """The row with the highest slot that is not above `at_or_below`, if there is one."""

    def headers(self, partition: int, start: int, limit: int) -> list[Row]:
        """The first `limit` rows from slot `start` on, ascending."""


class ReadPort(HeaderPort, Protocol):
    """Reading rows with their bodies. `topics` None means all topics."""

    def get(self, slots: Sequence[tuple[int, int]], topics: Iterable[str] | None) -> list[Row]:
        """The rows that exist of these (partition, slot) pairs, in one request."""

    def open(
        self, partition: int, start: int, stop: int, topics: Iterable[str] | None
    ) -> RowStream:
        """The rows of the slots [start, stop), ascending."""


class RowStream(Protocol):
    """An open scan."""

    def read(self, rows: int) -> list[Row]:
        """At most this many rows; none at the end."""

    def close(self) -> None:
        """Free what it holds in the store. Never raises."""


class AppendPort(HeaderPort, Protocol):
    """Writing."""

    def put_if_absent(
        self, partition: int, slot: int, header: bytes, cells: Mapping[bytes, bytes]
    ) -> bool:
        """Write a row if its slot has no header. Atomic, and durable when it returns True.

        False means that the slot has a header: another's, or the very same one, where a try of
        this call was repeated below.
        """

    def header(self, partition: int, slot: int) -> bytes | None:
        """The header at a slot."""

    def backwards(self, partition: int, at_or_below: int, limit: int) -> list[Row]:
        """The last `limit` rows that are not above `at_or_below`, descending: all as one server
        knows them, and without bodies.
        """

    def delete_headers(self, partition: int, slots: Sequence[int], until_ms: int) -> None:
        """Delete the headers at these slots, but for those that were written after `until_ms`, by
        the store's clock, however late this is done.
        """

    def delete_row(self, partition: int, slot: int, topics: Iterable[bytes]) -> None:
        """Delete a row whole: its header and the cells of these topics."""

    def clock_offset_ms(self) -> tuple[float, float]:
        """Measure the store's clock: (how far it is ahead of this machine's, the error bound)."""


class RecordPort(Protocol):
    """Small records that lie with a queue, beyond every partition, and never expire."""

    def record(self, name: str) -> bytes | None:
        """The record of this name."""

    def replace_record(self, name: str, old: bytes | None, new: bytes) -> bool:
        """Write a record if it is `old` now; None means that there is none. Atomic."""


class WritePort(AppendPort, RecordPort, Protocol):
    """Writing to one queue: its batches, and the records that lie with them."""

"""Scans of one region: a range of rows, as one server knows them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from hqueue.hbase.native.cells import Cell, CellReader
from hqueue.hbase.native.protocol import pb
from hqueue.hbase.native.servers import Request, Servers
from hqueue.hbase.native.wire import Answer
from hqueue.settings.addresses import Address

__all__ = ["Range", "RegionPort", "Scanning"]

RESULT_BYTES_MAX = 64 * 1024 * 1024
"""What a server gathers for one answer, but for the row that goes beyond it."""

EMPTY_MAX = 1_000
"""Answers without a row, one after the other: a server gives one when its time is over."""


class RegionPort(Protocol):
    """What a scan needs of a region."""

    @property
    def address(self) -> Address: ...

    @property
    def specifier(self) -> Any: ...


class Range(NamedTuple):
    """Rows from `start` on; without `stop`, which is empty for none."""

    start: bytes
    stop: bytes
    reversed: bool = False


class Scanning:
    """A scan of a range of one region, as one server knows it. One thread at a time.

    The server's scanner is open only between two answers of one `read`.

    Args:
        servers: to region servers.
        table: the table's name, for errors.
        region: the region. It must hold the range: else the answer is empty.
        rows: the range.
        columns: what is wanted of each row.
        by_bytes: whether the rows' order is that of their bytes.
    """

    def __init__(
        self,
        servers: Servers,
        table: str,
        region: RegionPort,
        rows: Range,
        columns: Sequence[Any],
        *,
        by_bytes: bool = True,
    ) -> None:
        self._servers = servers
        self._table = table
        self._region = region
        self._range = rows
        self._columns = columns
        self._by_bytes = by_bytes

    def read(self, limit: int) -> list[list[Cell]]:
        """The next rows with their cells; fewer than `limit` at the end of the range alone.

        Raises:
            ValueError: the answer makes no sense.
            HQueueError: as `Servers.ask`.
        """
        found: list[list[Cell]] = []
        scanner: int | None = None
        empty = calls = 0
        while len(found) < limit and empty < EMPTY_MAX:
            message = self._request(limit - len(found), scanner, calls)
            request = Request(self._region.address, b"Scan", message.SerializeToString())
            answer = self._servers.ask(request, self._table)
            said = pb.ScanResponse.FromString(answer.message)
            rows = self._rows(said, answer, limit - len(found))
            found += rows
            self._check_order(found[-len(rows) - 1 :])
            empty = 0 if rows else empty + 1
            calls += 1
            if not said.more_results_in_region:
                break
            if scanner is None:
                scanner = said.scanner_id
        else:
            if len(found) < limit:
                raise ValueError("a scan without an end")
        if found:
            self._range = self._range._replace(start=self._beyond(found[-1][0].row))
        return found

    def _request(self, rows: int, scanner: int | None, calls: int) -> Any:
        request = pb.ScanRequest(
            number_of_rows=rows,
            limit_of_rows=rows,
            client_handles_partials=False,
            client_handles_heartbeats=True,
        )
        if scanner is not None:
            request.scanner_id = scanner
            request.next_call_seq = calls - 1  # The call that opened it does not count.
            return request
        start, stop, is_reversed = self._range
        request.region.CopyFrom(self._region.specifier)
        request.scan.CopyFrom(
            pb.Scan(
                column=self._columns,
                start_row=start,
                stop_row=stop,
                max_versions=1,
                max_result_size=RESULT_BYTES_MAX,
                reversed=is_reversed,
                # Else a server begins so, and breaks off after four blocks to go on with a stream.
                readType=pb.Scan.PREAD,
            )
        )
        return request

    def _rows(self, said: Any, answer: Answer, limit: int) -> list[list[Cell]]:
        if len(said.cells_per_result) > limit or any(said.partial_flag_per_result):
            raise ValueError("other rows than were asked for")
        if not said.HasField("more_results_in_region"):
            raise ValueError("an answer that does not say whether there is more")
        reader = CellReader(answer.cells)
        rows = [reader.take(count) for count in said.cells_per_result]
        reader.finish()
        for cells in rows:
            if not cells or any(cell.row != cells[0].row for cell in cells):
                raise ValueError("a row with cells of another, or none")
            self._check(cells[0].row)
        return rows

    def _check(self, row: bytes) -> None:
        start, stop, is_reversed = self._range
        if is_reversed:
            inside = row <= start and row > stop
        else:
            inside = row >= start and (not stop or row < stop)
        if not inside:
            raise ValueError("a row outside of the range that was asked for")

    def _check_order(self, rows: Sequence[Sequence[Cell]]) -> None:
        keys = [cells[0].row for cells in rows]
        pairs = itertools.pairwise(reversed(keys) if self._range.reversed else keys)
        if self._by_bytes and any(one >= other for one, other in pairs):
            raise ValueError("rows that are in no order")

    def _beyond(self, row: bytes) -> bytes:
        """Where a scan goes on after a row. One that is reversed is not gone on with."""
        return row if self._range.reversed else row + b"\0"

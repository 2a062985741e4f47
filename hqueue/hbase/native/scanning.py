"""Scans of one region: a range of rows, as one server knows them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol

from hqueue.hbase.native.cells import Cell, CellReader
from hqueue.hbase.native.exchanges import Ask, Asking, Request
from hqueue.hbase.native.protocol import pb
from hqueue.hbase.native.wire import FRAME_BYTES_MAX, Answer
from hqueue.settings.addresses import Address

__all__ = ["Range", "RegionPort", "Scanning"]

RESULT_BYTES_MAX = 64 * 1024 * 1024
"""What a server gathers for one answer; a row that goes beyond it comes in parts."""

EMPTY_MAX = 1_000
"""Answers that end no row, one after the other: a server gives one when its time is over."""

ROW_BYTES_MAX = FRAME_BYTES_MAX
"""What such answers may have together: parts of a row."""


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


class _RowAssembler:
    """Puts rows together whose cells come in several results: an answer may break off in a row."""

    def __init__(self) -> None:
        self._begun: list[Cell] = []
        """The last row, while there may be more of it."""

    def take(self, results: Iterable[tuple[list[Cell], bool]]) -> list[list[Cell]]:
        """The rows that are whole, by these results: cells, and whether there may be more."""
        rows = []
        for cells, is_partial in results:
            if self._begun and self._begun[0].row == cells[0].row:
                row = self._begun + cells
            else:
                rows += self.finish()
                row = cells
            self._begun = row if is_partial else []
            rows += [] if is_partial else [row]
        return rows

    def finish(self) -> list[list[Cell]]:
        """The last row, if more of it was awaited: there is no more."""
        begun, self._begun = self._begun, []
        return [begun] if begun else []


class Scanning:
    """A scan of a range of one region, as one server knows it. One thread at a time.

    The server's scanner is open only between two answers of one `read`.

    Args:
        table: the table's name, for errors.
        region: the region. It must hold the range: else the answer is empty.
        rows: the range.
        columns: what is wanted of each row.
        by_bytes: whether the rows' order is that of their bytes.
        row_bytes_max: what answers without a whole row may have together.
    """

    def __init__(
        self,
        table: str,
        region: RegionPort,
        rows: Range,
        columns: Sequence[Any],
        *,
        by_bytes: bool = True,
        row_bytes_max: int = ROW_BYTES_MAX,
    ) -> None:
        self._table = table
        self._region = region
        self._range = rows
        self._columns = columns
        self._by_bytes = by_bytes
        self._row_bytes_max = row_bytes_max

    def read(self, limit: int) -> Asking[list[list[Cell]]]:
        """The next rows with their cells; fewer than `limit` at the end of the range alone.

        Raises:
            ValueError: the answer is malformed.
            HQueueError: as `Ask`.
        """
        found: list[list[Cell]] = []
        parts = _RowAssembler()
        scanner: int | None = None
        empty = empty_bytes = calls = 0
        while len(found) < limit:
            message = self._request(limit - len(found), scanner, calls)
            request = Request(self._region.address, b"Scan", message.SerializeToString())
            answer: Answer = yield Ask(request, self._table)
            said = pb.ScanResponse.FromString(answer.message)
            rows = parts.take(self._results(said, answer, limit - len(found)))
            # That the last row was whole may be known by the next one, which is not wanted: then
            # there is more in the region, and no more of the scan.
            has_all = said.HasField("more_results") and not said.more_results
            is_over = has_all or not said.more_results_in_region
            if is_over:
                rows += parts.finish()
            found += rows
            self._check_order(found[-len(rows) - 1 :])
            if len(found) > limit:
                raise ValueError("the answer has more rows than the request")
            if is_over:
                if len(found) < limit and said.more_results_in_region:
                    raise ValueError("the answer has fewer rows than the request")
                break
            empty = 0 if rows else empty + 1
            empty_bytes = 0 if rows else empty_bytes + len(answer.cells)
            if empty == EMPTY_MAX or empty_bytes > self._row_bytes_max:
                raise ValueError("a scan, or a row, does not end")
            calls += 1
            if scanner is None:
                scanner = said.scanner_id
        if found:
            self._range = self._range._replace(start=self._beyond(found[-1][0].row))
        return found

    def _request(self, rows: int, scanner: int | None, calls: int) -> Any:
        request = pb.ScanRequest(
            number_of_rows=rows,
            limit_of_rows=rows,
            client_handles_partials=True,
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

    def _results(self, said: Any, answer: Answer, limit: int) -> list[tuple[list[Cell], bool]]:
        """Cells of a row each, and whether there may be more of it."""
        sizes, flags = said.cells_per_result, said.partial_flag_per_result
        if len(sizes) > limit or len(flags) > len(sizes):
            raise ValueError("the answer's rows are not those of the request")
        if not said.HasField("more_results_in_region"):
            raise ValueError("the answer does not say whether more rows follow")
        reader = CellReader(answer.cells)
        results = [
            (reader.take(size), is_partial)
            for size, is_partial in itertools.zip_longest(sizes, flags, fillvalue=False)
        ]
        reader.finish()
        for cells, _ in results:
            if not cells or any(cell.row != cells[0].row for cell in cells):
                raise ValueError("a row has cells of another row, or no cells")
            self._check(cells[0].row)
        return results

    def _check(self, row: bytes) -> None:
        start, stop, is_reversed = self._range
        if is_reversed:
            inside = row <= start and row > stop
        else:
            inside = row >= start and (not stop or row < stop)
        if not inside:
            raise ValueError("the answer has a row outside of the requested range")

    def _check_order(self, rows: Sequence[Sequence[Cell]]) -> None:
        keys = [cells[0].row for cells in rows]
        pairs = itertools.pairwise(reversed(keys) if self._range.reversed else keys)
        if self._by_bytes and any(one >= other for one, other in pairs):
            raise ValueError("the answer's rows are not in order")

    def _beyond(self, row: bytes) -> bytes:
        """Where a scan goes on after a row. One that is reversed is not gone on with."""
        return row if self._range.reversed else row + b"\0"

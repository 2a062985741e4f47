"""Reading rows of a queue's table, through Thrift1."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Sequence
from typing import Any

from hqueue.errors import HQueueError, Outcome, StoreUnavailableError
from hqueue.format import rowkey
from hqueue.hbase.schema import HEADER_COLUMN, columns, topic_of
from hqueue.hbase.thrift.connection import Service
from hqueue.hbase.thrift.gateway import Run
from hqueue.hbase.thrift.gateways import Gateways
from hqueue.hbase.thrift.headers import TableHeaders
from hqueue.hbase.thrift.idl import TScan
from hqueue.hbase.thrift.translation import present, reads_answer
from hqueue.log.ports import Row, RowStream
from hqueue.rpc.transports import LARGE_BYTES

__all__ = ["TableReads"]

CACHING = 1_000
"""Rows that the gateway asks of a region server at once. The server cuts its answers at 2 MiB
(hbase.client.scanner.max.result.size), so this is a bound for small rows only."""

CLOSING_MS = 3_000
"""How long a gateway may take to close a scan: then it is avoided, so that who closes many waits
once. A pause of its collector does not take that long."""


class TableReads(TableHeaders):
    """The log's `ReadPort` on one table. Thread-safe."""

    _bulk = False
    """Whether the rows that came last were large. The next are likely to be."""

    @reads_answer
    def get(self, slots: Sequence[tuple[int, int]], topics: Iterable[str] | None) -> list[Row]:
        keys = [rowkey.encode(partition, slot) for partition, slot in slots]
        try:
            found = self._get(keys, columns(topics))
        except StoreUnavailableError as exc:
            if len(keys) > 1 and exc.outcome is Outcome.UNKNOWN:
                # If the table is disabled, a gateway's error for several rows only says that it
                # has tried too long. Its error for one row says that the table is disabled.
                self._get(keys[:1], [HEADER_COLUMN])
            raise
        rows = [_row(result) for result in found if result.columns]
        self._bulk = _are_large(rows, self._bulk)
        return rows

    def _get(self, keys: Sequence[bytes], wanted: Sequence[bytes]) -> Any:
        return self._call(
            "getRowsWithColumns", keys[0], keys, wanted, {},
            service=Service.THRIFT1, bulk=self._bulk,
        )  # fmt: skip

    def open(
        self, partition: int, start: int, stop: int, topics: Iterable[str] | None
    ) -> RowStream:
        key = rowkey.encode(partition, start)
        scan = TScan(
            startRow=key,
            stopRow=rowkey.encode(partition, stop),
            columns=columns(topics),
            caching=CACHING,
        )
        return _Scanner(self._gateways, self._table, scan, self._locations.host_of(key))


class _Scanner:
    """An open scan. It lives in one process of a gateway, so all its requests go to that one."""

    def __init__(self, gateways: Gateways, table: str, scan: Any, host: str | None) -> None:
        self._gateways = gateways
        self._table = table
        self._run: Run | None = Run(gateways.choose(Service.THRIFT1, host))
        self._next, self._stop = scan.startRow, scan.stopRow
        self._pid = os.getpid()
        self._bulk = False
        self._id = self._call("scannerOpenWithScan", table.encode(), scan, {})

    def _call(self, method: str, *arguments: Any, **options: Any) -> Any:
        try:
            return self._gateways.call(
                Service.THRIFT1, method, self._table, *arguments, run=self._run, **options
            )
        except StoreUnavailableError:
            self._run = None  # It is not waited for a second time, to close the scan.
            raise

    @reads_answer
    def read(self, rows: int) -> list[Row]:
        if self._run is None or os.getpid() != self._pid:
            raise StoreUnavailableError(
                "the scan was closed, or belongs to the parent process", outcome=Outcome.NOT_APPLIED
            )
        found = self._call("scannerGetList", self._id, rows, bulk=self._bulk)
        if len(found) > rows:
            raise ValueError("the answer has more rows than the request")
        got = [_row(result) for result in found]
        for row in got:
            if not self._next <= row.key < self._stop:
                raise ValueError(
                    "the answer has a row outside of the requested range, or out of order"
                )
            self._next = row.key + b"\0"
        self._bulk = _are_large(got, self._bulk)
        return got

    def close(self) -> None:
        if self._run is None or os.getpid() != self._pid:
            return
        # A scanner that is not closed dies of old age in its gateway.
        if not self._run.gateway.is_avoided:
            with contextlib.suppress(HQueueError):
                self._call("scannerClose", self._id, timeout_ms=CLOSING_MS)
        self._run = None


def _are_large(rows: Sequence[Row], otherwise: bool) -> bool:
    """Whether these rows are worth what bulk costs for each; nothing is known of none."""
    if not rows:
        return otherwise
    return sum(len(cell) for row in rows for cell in row.cells.values()) >= LARGE_BYTES * len(rows)


def _row(result: Any) -> Row:
    cells = {column: present(cell.value) for column, cell in result.columns.items()}
    partition, slot = rowkey.decode(result.row)
    header = cells.pop(HEADER_COLUMN, None)
    return Row(
        result.row,
        partition,
        slot,
        header,
        {topic_of(column, result.row): value for column, value in cells.items()},
    )

"""Reading headers alone, through Thrift2: a whole scan is one request there."""

from __future__ import annotations

from typing import Any

from hqueue.format import rowkey
from hqueue.hbase.schema import BATCH, LOG
from hqueue.hbase.thrift.idl import hbase2
from hqueue.hbase.thrift.requests import TableRequests
from hqueue.hbase.thrift.translation import present, reads_answer
from hqueue.log.ports import Row

__all__ = ["TableHeaders"]

_HEADER = [hbase2.TColumn(family=LOG, qualifier=BATCH)]


class TableHeaders(TableRequests):
    """The log's `HeaderPort` on one table. Thread-safe."""

    def newest(self, partition: int, at_or_below: int) -> Row | None:
        rows = self.backwards(partition, at_or_below, 1)
        return rows[0] if rows else None

    def backwards(self, partition: int, at_or_below: int, limit: int) -> list[Row]:
        scan = hbase2.TScan(
            startRow=rowkey.encode(partition, at_or_below),
            stopRow=rowkey.before_first_of(partition),
            columns=_HEADER,
            caching=limit,
            reversed=True,
            limit=limit,
        )
        return self._scan(scan, limit)

    def headers(self, partition: int, start: int, limit: int) -> list[Row]:
        scan = hbase2.TScan(
            startRow=rowkey.encode(partition, start),
            stopRow=rowkey.first_of(partition + 1),
            columns=_HEADER,
            caching=limit,
            limit=limit,
        )
        return self._scan(scan, limit)

    @reads_answer
    def header(self, partition: int, slot: int) -> bytes | None:
        key = rowkey.encode(partition, slot)
        answer = self._call("get", key, hbase2.TGet(row=key, columns=_HEADER))
        found = present(answer.columnValues)
        return present(found[0].value) if found else None

    @reads_answer
    def _scan(self, scan: Any, limit: int) -> list[Row]:
        found = self._call("getScannerResults", scan.startRow, scan, limit)
        return [
            Row(result.row, *rowkey.decode(result.row), present(result.columnValues[0].value), {})
            for result in found
            if present(result.columnValues)
        ]

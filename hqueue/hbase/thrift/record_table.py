"""The table of topics' metadata, through Thrift2: its rows as `RowRecords` need them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import partial
from typing import Any

from hqueue.errors import (
    HQueueError,
    Outcome,
    QueueDisabledError,
    QueueNotFoundError,
    StoreUnavailableError,
)
from hqueue.hbase.record_cells import HISTORY, RECORD, VERSION, Cells
from hqueue.hbase.record_rows import Answer, RowUpdate
from hqueue.hbase.thrift.gateways import Gateways
from hqueue.hbase.thrift.idl import hbase2
from hqueue.hbase.thrift.locations import Locations
from hqueue.hbase.thrift.requests import TableRequests
from hqueue.hbase.thrift.side_by_side import SideBySide
from hqueue.hbase.thrift.tables import Tables
from hqueue.hbase.thrift.translation import present, reads_answer
from hqueue.rpc.transports import LARGE_BYTES
from hqueue.runtime.clock import SYSTEM_CLOCK, Clock
from hqueue.runtime.steps import Work
from hqueue.runtime.stepwise import Stepwise, stepwise

__all__ = ["RecordTable"]

READ_TOGETHER = 128
"""Rows of a request that reads: they may be large."""

REPEAT_MS = 100
"""A gateway's client waits for longer before it repeats a request: ``hbase.client.pause``, unless
that is set lower. An answer that comes sooner is that of the first try."""

_RECORD = [hbase2.TColumn(family=RECORD)]
_ALL = [*_RECORD, hbase2.TColumn(family=HISTORY)]
_VERSION = VERSION.split(b":", 1)


class RecordTable(TableRequests, Stepwise):
    """The `RowPort` on one table. Thread-safe, and usable in a forked child. Threads make the
    requests of an event loop.

    Args:
        gateways: to HBase.
        table: the table's name.
        locations: where its regions are.
        tables: creates it.
        clock: how long an answer took.
    """

    def __init__(
        self,
        gateways: Gateways,
        table: str,
        locations: Locations,
        tables: Tables,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        super().__init__(gateways, table, locations)
        self._tables = tables
        self._clock = clock
        self._prepared = False
        self._side_by_side = SideBySide()

    def close(self) -> None:
        self._side_by_side.close()

    @stepwise
    def prepare(self) -> Work[Any, None]:
        """Like `RowPort.prepare`."""
        if not self._prepared:
            yield self._tables.ensure_records.asked(self._table)
            self._prepared = True

    @stepwise
    def exists(self) -> Work[Any, bool]:
        """Like `RowPort.exists`."""
        return self._prepared or (yield self._tables.has_records.asked(self._table))

    @stepwise
    def read(
        self, keys: Sequence[bytes], *, history: bool = False
    ) -> Work[Any, list[tuple[bytes, Cells]]]:
        """Like `RowPort.read`."""
        found: list[tuple[bytes, Cells]]
        found = yield self._gateways.blocking(partial(self._read_all, keys, history=history))
        return found

    def _read_all(self, keys: Sequence[bytes], *, history: bool) -> list[tuple[bytes, Cells]]:
        batches = [
            keys[first : first + READ_TOGETHER] for first in range(0, len(keys), READ_TOGETHER)
        ]
        found = self._side_by_side.each(
            batches, lambda batch: self._read(batch, history=history), alone_max=1
        )
        return [*itertools.chain(*found)]

    @reads_answer
    def _read(self, keys: Sequence[bytes], *, history: bool) -> list[tuple[bytes, Cells]]:
        columns = _ALL if history else _RECORD
        gets = [hbase2.TGet(row=key, columns=columns) for key in keys]
        if len(gets) == 1:
            return _rows([self._ask("get", keys[0], gets[0])], keys)
        return _rows(self._ask("getMultiple", keys[0], gets), keys)

    @stepwise
    def scan(self, first: bytes, beyond: bytes, limit: int) -> Work[Any, list[tuple[bytes, Cells]]]:
        """Like `RowPort.scan`."""
        found: list[tuple[bytes, Cells]]
        found = yield self._gateways.blocking(partial(self._scan, first, beyond, limit))
        return found

    @reads_answer
    def _scan(self, first: bytes, beyond: bytes, limit: int) -> list[tuple[bytes, Cells]]:
        scan = hbase2.TScan(
            startRow=first, stopRow=beyond, columns=_RECORD, caching=limit, limit=limit
        )
        found = self._ask("getScannerResults", first, scan, limit)
        return _rows(found, [present(result.row) for result in found])

    @stepwise
    def update(self, updates: Sequence[RowUpdate]) -> Work[Any, list[Answer | HQueueError]]:
        """Like `RowPort.update`."""
        found: list[Answer | HQueueError]
        found = yield self._gateways.blocking(partial(self._update_all, updates))
        return found

    def _update_all(self, updates: Sequence[RowUpdate]) -> list[Answer | HQueueError]:
        def update(one: RowUpdate) -> Answer | HQueueError:
            try:
                return self._update(one)
            except HQueueError as exc:
                return exc

        return self._side_by_side.each(updates, update)

    def _update(self, update: RowUpdate) -> Answer:
        began_ms = self._clock.monotonic_ms()
        if update.cells is None:
            made = self._check_and_delete(update.key, update.version)
        else:
            made = self._check_and_put(update.key, update.version, update.cells)
        if made:
            return Answer.MADE
        was_late = self._clock.monotonic_ms() - began_ms >= REPEAT_MS
        return Answer.REFUSED_LATE if was_late else Answer.REFUSED

    def _check_and_put(self, key: bytes, version: bytes | None, cells: Cells) -> bool:
        values = [
            hbase2.TColumnValue(*column.split(b":", 1), value) for column, value in cells.items()
        ]
        put = hbase2.TPut(key, values)
        bulk = max(map(len, cells.values())) >= LARGE_BYTES
        return bool(self._ask("checkAndPut", key, key, *_VERSION, version, put, bulk=bulk))

    def _check_and_delete(self, key: bytes, version: bytes | None) -> bool:
        delete = hbase2.TDelete(row=key)
        return bool(self._ask("checkAndDelete", key, key, *_VERSION, version, delete))

    @stepwise
    def delete(self, keys: Sequence[bytes]) -> Work[Any, None]:
        """Like `RowPort.delete`."""
        deletes = [hbase2.TDelete(row=key) for key in keys]
        yield self._gateways.blocking(partial(self._ask, "deleteMultiple", keys[0], deletes))

    def _ask(self, method: str, key: bytes, *arguments: Any, bulk: bool = False) -> Any:
        try:
            return self._call(method, key, *arguments, bulk=bulk)
        except QueueDisabledError as exc:
            # The gateway repeats requests by itself: one may have come in before that.
            exc.outcome = Outcome.UNKNOWN
            raise
        except QueueNotFoundError as exc:
            self._prepared = False  # It was dropped: the next try creates it.
            raise StoreUnavailableError(
                "the table of topics' metadata is gone",
                outcome=Outcome.UNKNOWN,
                table=self._table,
            ) from exc


def _rows(results: Sequence[Any], keys: Sequence[bytes]) -> list[tuple[bytes, Cells]]:
    """The rows that have cells, of the answers for these keys."""
    if len(results) != len(keys):
        raise ValueError("the number of rows in the answer is not that of the request")
    return [
        (
            key,
            {
                cell.family + b":" + cell.qualifier: present(cell.value)
                for cell in result.columnValues
            },
        )
        for key, result in zip(keys, results, strict=True)
        if present(result.columnValues)
    ]

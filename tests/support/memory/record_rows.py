"""The rows of records of fields in memory."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol, TypeVar

from hqueue.errors import (
    HQueueError,
    QueueExistsError,
    QueueNotFoundError,
    SettingsError,
)
from hqueue.hbase.record_cells import HISTORY, VERSION, Cells
from hqueue.hbase.record_rows import Answer, RowUpdate
from tests.support.memory.cluster import MemoryCluster
from tests.support.memory.rows import Rows

__all__ = ["MemoryRecordRows"]

Result = TypeVar("Result")


class Ask(Protocol):
    def __call__(self, operation: str, request: Callable[[], Result]) -> Result: ...


class MemoryRecordRows:
    """The `RowPort` on a cluster in memory: each method is one request, and each row's update.

    Args:
        cluster: what has the table.
        table: its name.
        ask: brings a request to the cluster.
    """

    def __init__(self, cluster: MemoryCluster, table: str, ask: Ask) -> None:
        self._cluster = cluster
        self._table = table
        self._bring = ask
        self._prepared = False

    def prepare(self) -> None:
        if self._prepared:
            return

        def create() -> None:
            try:
                self._cluster.create_records(self._table, secrets.token_hex(8))
            except QueueExistsError:
                if not self._cluster.table(self._table).is_records:
                    raise SettingsError(
                        "metadata_table names a table that was not created for topics' metadata: "
                        "choose another name",
                        metadata_table=self._table,
                    ) from None

        self._bring("create_records", create)
        self._prepared = True

    def exists(self) -> bool:
        def look() -> bool:
            try:
                return self._cluster.table(self._table).is_records
            except QueueNotFoundError:
                return False

        return self._bring("has_records", look)

    def read(self, keys: Sequence[bytes], *, history: bool = False) -> list[tuple[bytes, Cells]]:
        def read(rows: Rows) -> list[tuple[bytes, Cells]]:
            found = ((key, _cells(rows, key, history=history)) for key in keys)
            return [(key, cells) for key, cells in found if cells]

        return self._ask("read_records", read)

    def scan(self, first: bytes, beyond: bytes, limit: int) -> list[tuple[bytes, Cells]]:
        def scan(rows: Rows) -> list[tuple[bytes, Cells]]:
            found = ((key, _cells(rows, key)) for key in rows.between(first, beyond))
            return [(key, cells) for key, cells in found if cells][:limit]

        return self._ask("scan_records", scan)

    def update(self, updates: Sequence[RowUpdate]) -> list[Answer | HQueueError]:
        return [self._update(each) for each in updates]

    def _update(self, update: RowUpdate) -> Answer | HQueueError:
        key, version, cells = update

        def change(rows: Rows) -> Answer:
            if _cells(rows, key).get(VERSION) != version:
                return Answer.REFUSED
            if cells is None:
                rows.delete(key)
            else:
                rows.put(key, cells)
            return Answer.MADE

        try:
            return self._ask("check_and_delete" if cells is None else "check_and_put", change)
        except HQueueError as exc:
            return exc

    def close(self) -> None:
        pass

    def delete(self, keys: Sequence[bytes]) -> None:
        def delete(rows: Rows) -> None:
            for key in keys:
                rows.delete(key)

        self._ask("delete_records", delete)

    def _ask(self, operation: str, request: Callable[[Rows], Result]) -> Result:
        return self._bring(operation, partial(self._cluster.ask, self._table, request))


def _cells(rows: Rows, key: bytes, *, history: bool = False) -> Cells:
    cells = rows.visible(key).items()
    return {
        column: cell.value
        for column, cell in cells
        if history or not column.startswith(HISTORY + b":")
    }

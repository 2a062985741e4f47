"""The rows of records of fields in memory."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

from hqueue.errors import (
    HQueueError,
    QueueExistsError,
    QueueNotFoundError,
    SettingsError,
)
from hqueue.hbase.record_cells import HISTORY, VERSION, Cells
from hqueue.hbase.record_rows import Answer, RowUpdate
from hqueue.runtime.steps import Wait, Work
from hqueue.runtime.stepwise import Stepwise, stepwise
from tests.support.memory.cluster import MemoryCluster
from tests.support.memory.rows import Rows

__all__ = ["MemoryRecordRows", "in_turn"]

Result = TypeVar("Result")


def in_turn(request: Callable[[], object]) -> Wait:
    """Asks for a request to be made: in a loop when all else that is due there has run."""

    async def ask() -> object:
        await asyncio.sleep(0)
        return request()

    return Wait(request, ask)


class Ask(Protocol):
    def __call__(self, operation: str, request: Callable[[], Result]) -> Result: ...


class MemoryRecordRows(Stepwise):
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

    @stepwise
    def prepare(self) -> Work[Any, None]:
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

        yield in_turn(partial(self._bring, "create_records", create))
        self._prepared = True

    @stepwise
    def exists(self) -> Work[Any, bool]:
        def look() -> bool:
            try:
                return self._cluster.table(self._table).is_records
            except QueueNotFoundError:
                return False

        return (yield in_turn(partial(self._bring, "has_records", look)))

    @stepwise
    def read(
        self, keys: Sequence[bytes], *, history: bool = False
    ) -> Work[Any, list[tuple[bytes, Cells]]]:
        def read(rows: Rows) -> list[tuple[bytes, Cells]]:
            found = ((key, _cells(rows, key, history=history)) for key in keys)
            return [(key, cells) for key, cells in found if cells]

        return (yield in_turn(partial(self._ask, "read_records", read)))

    @stepwise
    def scan(self, first: bytes, beyond: bytes, limit: int) -> Work[Any, list[tuple[bytes, Cells]]]:
        def scan(rows: Rows) -> list[tuple[bytes, Cells]]:
            found = ((key, _cells(rows, key)) for key in rows.between(first, beyond))
            return [(key, cells) for key, cells in found if cells][:limit]

        return (yield in_turn(partial(self._ask, "scan_records", scan)))

    @stepwise
    def update(self, updates: Sequence[RowUpdate]) -> Work[Any, list[Answer | HQueueError]]:
        return (yield in_turn(lambda: [self._update(each) for each in updates]))

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

    @stepwise
    def delete(self, keys: Sequence[bytes]) -> Work[Any, None]:
        def delete(rows: Rows) -> None:
            for key in keys:
                rows.delete(key)

        yield in_turn(partial(self._ask, "delete_records", delete))

    def _ask(self, operation: str, request: Callable[[Rows], Result]) -> Result:
        return self._bring(operation, partial(self._cluster.ask, self._table, request))


def _cells(rows: Rows, key: bytes, *, history: bool = False) -> Cells:
    cells = rows.visible(key).items()
    return {
        column: cell.value
        for column, cell in cells
        if history or not column.startswith(HISTORY + b":")
    }

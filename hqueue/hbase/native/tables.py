"""Tables of queues: create, describe, alter, truncate, delete. Through the master."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from hqueue.errors import Outcome, QueueNotFoundError, StoreUnavailableError
from hqueue.hbase.native.async_servers import AsyncServers
from hqueue.hbase.native.exchanges import Asking
from hqueue.hbase.native.master import Master, Procedure
from hqueue.hbase.native.protocol import pb
from hqueue.hbase.native.registry import Registry
from hqueue.hbase.native.servers import Servers
from hqueue.hbase.native.table_schema import (
    attributes_of,
    description,
    family,
    name_of,
    set_attributes,
    set_ttl,
    table_name,
    table_schema,
)
from hqueue.hbase.native.translation import reads_answer
from hqueue.hbase.table_attributes import SMALL_BLOCK_BYTES
from hqueue.hbase.table_procedures import Change, Step, TableProcedures, Work
from hqueue.runtime.clock import Clock, Deadline
from hqueue.settings.attributes import QueueDescription

__all__ = ["Tables"]

Result = TypeVar("Result")

_ONE_VERSION = {b"VERSIONS": b"1"}
_SMALL = {
    **_ONE_VERSION,
    b"BLOCKSIZE": str(SMALL_BLOCK_BYTES).encode(),
    b"DATA_BLOCK_ENCODING": b"FAST_DIFF",
}


class Tables(TableProcedures[Any]):
    """Administration of queues by the master, which identifies procedures by numbers.

    Args:
        servers, async_servers: the master is among them.
        registry: where the master is.
        clock: where time comes from.
    """

    TRIES_ARE_KNOWN = True

    def __init__(
        self, servers: Servers, async_servers: AsyncServers, registry: Registry, clock: Clock
    ) -> None:
        super().__init__(servers, async_servers, clock, servers.settings.operation_timeout_ms)
        self._master = Master(servers, registry)

    def _run(self, operation: Callable[[Deadline], Work[Result]]) -> Work[Result]:
        deadline = self._deadline()

        @reads_answer
        def attempt() -> Work[Result]:
            return (yield from operation(deadline))

        return deadline.bound(deadline.insist(attempt))

    def _new(
        self,
        name: str,
        attributes: Mapping[bytes, bytes],
        families: Sequence[bytes],
        *,
        small: bool,
    ) -> Any:
        made = [family(each, _SMALL if small else _ONE_VERSION) for each in families]
        return table_schema(name, attributes, made)

    def _set_ttl(self, table: Any, ttl_seconds: int | None) -> None:
        set_ttl(table, ttl_seconds)

    def _set_attributes(self, table: Any, attributes: Mapping[str, int | str]) -> None:
        set_attributes(table, attributes)

    def _attributes_of(self, table: Any) -> Mapping[bytes, bytes]:
        return attributes_of(table)

    def _description(self, table: Any, enabled: bool | None) -> QueueDescription:
        return description(table, enabled)

    def _get(self, name: str, deadline: Deadline) -> Asking[Any]:
        request = pb.GetTableDescriptorsRequest(table_names=[table_name(name)])
        found = yield from self._schemas(request, name, deadline)
        if not found:
            raise QueueNotFoundError("there is no such queue", queue=name)
        if len(found) > 1 or name_of(found[0]) != name:
            raise StoreUnavailableError(
                "the master's answer is about another table",
                outcome=Outcome.NOT_APPLIED,
                queue=name,
            )
        return found[0]

    def _all(self, deadline: Deadline) -> Asking[Sequence[Any]]:
        return self._schemas(pb.GetTableDescriptorsRequest(), "", deadline)

    def _is_enabled(self, name: str, deadline: Deadline) -> Asking[bool]:
        request = pb.GetTableStateRequest(table_name=table_name(name))
        kind = pb.GetTableStateResponse
        answer = yield from self._master.ask("GetTableState", request, kind, name, deadline)
        return bool(answer.table_state.state == pb.TableState.ENABLED)

    def _creation(self, name: str, table: Any, splits: Sequence[bytes]) -> Step:
        request = pb.CreateTableRequest(table_schema=table, split_keys=splits)
        return Procedure(self._master, "CreateTable", request, name).run

    def _modification(self, name: str, table: Any) -> Step:
        request = pb.ModifyTableRequest(table_name=table_name(name), table_schema=table)
        return Procedure(self._master, "ModifyTable", request, name).run

    def _change_of(self, name: str, change: Change) -> Step:
        table = table_name(name)
        method, request = {
            Change.ENABLE: ("EnableTable", pb.EnableTableRequest(table_name=table)),
            Change.DISABLE: ("DisableTable", pb.DisableTableRequest(table_name=table)),
            Change.DELETE: ("DeleteTable", pb.DeleteTableRequest(table_name=table)),
            Change.TRUNCATE: (
                "truncateTable",
                pb.TruncateTableRequest(tableName=table, preserveSplits=True),
            ),
        }[change]
        return Procedure(self._master, method, request, name).run

    def _schemas(self, request: Any, name: str, deadline: Deadline) -> Asking[list[Any]]:
        kind = pb.GetTableDescriptorsResponse
        answer = yield from self._master.ask("GetTableDescriptors", request, kind, name, deadline)
        return list(answer.table_schema)

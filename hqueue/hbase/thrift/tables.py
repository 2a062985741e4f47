"""Tables of queues: create, describe, alter, truncate, delete. Through Thrift2."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from hqueue.hbase.schema import MESSAGE
from hqueue.hbase.table_attributes import SMALL_BLOCK_BYTES, describe
from hqueue.hbase.table_procedures import Change, Step, TableProcedures, Work
from hqueue.hbase.thrift.connection import Service
from hqueue.hbase.thrift.gateways import Gateways
from hqueue.hbase.thrift.idl import hbase2
from hqueue.hbase.thrift.translation import reads_answer
from hqueue.runtime.clock import SYSTEM_CLOCK, Clock, Deadline
from hqueue.settings.attributes import ATTRIBUTES, QueueDescription
from hqueue.settings.limits import TTL_SECONDS_MAX

__all__ = ["Tables"]

Result = TypeVar("Result")

_SMALL = {
    "blockSize": SMALL_BLOCK_BYTES,
    "dataBlockEncoding": hbase2.TDataBlockEncoding.FAST_DIFF,
}
_CHANGES: dict[Change, tuple[str, tuple[Any, ...]]] = {
    Change.ENABLE: ("enableTable", ()),
    Change.DISABLE: ("disableTable", ()),
    Change.DELETE: ("deleteTable", ()),
    Change.TRUNCATE: ("truncateTable", (True,)),
}


class Tables(TableProcedures[Any]):
    """Administration of queues through gateways, which make each request once more if they like.
    Threads make the requests of an event loop.

    Args:
        gateways: to HBase.
        clock: where time comes from.
    """

    TRIES_ARE_KNOWN = False

    def __init__(self, gateways: Gateways, clock: Clock = SYSTEM_CLOCK) -> None:
        super().__init__(None, None, clock, gateways.settings.operation_timeout_ms)
        self._gateways = gateways

    @reads_answer
    def _run(self, operation: Callable[[Deadline], Work[Result]]) -> Work[Result]:
        deadline = self._deadline()
        return (yield from deadline.bound(deadline.insist(lambda: operation(deadline))))

    def _new(
        self,
        name: str,
        attributes: Mapping[bytes, bytes],
        families: Sequence[bytes],
        *,
        small: bool,
    ) -> Any:
        made = [
            hbase2.TColumnFamilyDescriptor(name=each, maxVersions=1, **(_SMALL if small else {}))
            for each in families
        ]
        return hbase2.TTableDescriptor(
            tableName=_table_name(name), columns=made, attributes=dict(attributes)
        )

    def _set_ttl(self, table: Any, ttl_seconds: int | None) -> None:
        seconds = TTL_SECONDS_MAX if ttl_seconds is None else ttl_seconds
        for family in table.columns:
            if family.name == MESSAGE:
                family.timeToLive = seconds
                family.attributes = {**(family.attributes or {}), b"TTL": str(seconds).encode()}

    def _set_attributes(self, table: Any, attributes: Mapping[str, int | str]) -> None:
        for name, value in attributes.items():
            written = str(value).encode()
            if name == "compression":
                for family in table.columns:
                    family.compressionType = getattr(hbase2.TCompressionAlgorithm, str(value))
                    family.attributes = {**(family.attributes or {}), b"COMPRESSION": written}
            else:
                table.attributes[ATTRIBUTES[name].table_key.encode()] = written

    def _attributes_of(self, table: Any) -> Mapping[bytes, bytes]:
        return table.attributes or {}

    def _description(self, table: Any, enabled: bool | None) -> QueueDescription:
        return _description(table, enabled)

    def _get(self, name: str, deadline: Deadline) -> Work[Any]:
        return self._call("getTableDescriptor", name, _table_name(name))

    def _all(self, deadline: Deadline) -> Work[Sequence[Any]]:
        return self._call("getTableDescriptorsByPattern", "", ".*", False)

    def _is_enabled(self, name: str, deadline: Deadline) -> Work[bool]:
        return self._call("isTableEnabled", name, _table_name(name))

    def _creation(self, name: str, table: Any, splits: Sequence[bytes]) -> Step:
        return lambda deadline: self._call("createTable", name, table, splits)

    def _modification(self, name: str, table: Any) -> Step:
        return lambda deadline: self._call("modifyTable", name, table)

    def _change_of(self, name: str, change: Change) -> Step:
        method, more = _CHANGES[change]
        return lambda deadline: self._call(method, name, _table_name(name), *more)

    def _call(self, method: str, table: str, *arguments: Any) -> Work[Any]:
        timeout_ms = self._gateways.settings.operation_timeout_ms
        call = partial(self._gateways.call, Service.THRIFT2, method, table, *arguments)
        return (yield self._gateways.blocking(partial(call, timeout_ms=timeout_ms)))


def _table_name(name: str) -> Any:
    namespace, _, qualifier = name.rpartition(":")
    return hbase2.TTableName(
        ns=namespace.encode() if namespace else b"default", qualifier=qualifier.encode()
    )


def _name_of(table: Any) -> str:
    namespace = (table.ns or b"default").decode()
    qualifier: str = table.qualifier.decode()
    return qualifier if namespace == "default" else f"{namespace}:{qualifier}"


def _description(descriptor: Any, enabled: bool | None) -> QueueDescription:
    families = {family.name: family for family in descriptor.columns}
    message = families.get(MESSAGE)
    return describe(
        _name_of(descriptor.tableName),
        descriptor.attributes,
        None if message is None else message.attributes or {},
        None if message is None else message.timeToLive,
        enabled,
    )

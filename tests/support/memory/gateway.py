"""Thrift gateways before a cluster in memory: both of HBase's services, on real sockets."""

from __future__ import annotations

import contextlib
import functools
import itertools
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import happybase  # noqa: F401  (loads Hbase_thrift)
from Hbase_thrift import TCell, TRowResult
from thriftpy2 import protocol, transport
from thriftpy2.thrift import TProcessor
from thriftpy2.transport import TMemoryBuffer

from hqueue import GatewayAddress, Settings
from hqueue.errors import (
    HQueueError,
    QueueDisabledError,
    QueueEnabledError,
    QueueExistsError,
    QueueNotFoundError,
    RequestRefusedError,
)
from hqueue.hbase.schema import LOG, MESSAGE
from hqueue.hbase.thrift.idl import Hbase, IOError, TScan, hbase2
from hqueue.settings.attributes import ATTRIBUTES
from hqueue.settings.limits import TTL_SECONDS_MAX
from tests.support.memory.cluster import MemoryCluster, Table
from tests.support.memory.rows import Cell, Rows

__all__ = ["GatewayPair", "Thrift1", "Thrift2"]

COMPRESSION = b"COMPRESSION"
RECORDS = b"hqueue.records"


class CompactRequests(protocol.TCompactProtocol):  # type: ignore[misc]
    """Reads cells as bytes, but a method's name as text."""

    def read_message_begin(self) -> tuple[str, int, int]:
        name, kind, number = super().read_message_begin()
        return name.decode(), kind, number


_TRANSPORTS = {"buffered": transport.TBufferedTransport, "framed": transport.TFramedTransport}
_PROTOCOLS: dict[str, Callable[..., Any]] = {
    "binary": protocol.TBinaryProtocol,
    "compact": CompactRequests,
}


class GatewayPair:
    """Both services, each on a port of its own. Close it at the end.

    Args:
        cluster: what stands behind them.
        transport_name, protocol_name: how they speak, as the settings name it.
    """

    def __init__(
        self,
        cluster: MemoryCluster,
        transport_name: str = "buffered",
        protocol_name: str = "binary",
    ) -> None:
        self.cluster = cluster
        self.zookeeper: str | None = None
        """Where a ZooKeeper is, if there is one beside them."""
        self.transport, self.protocol = transport_name, protocol_name
        self._sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
        ports = [listening.getsockname()[1] for listening in self._sockets]
        self.address = GatewayAddress("127.0.0.1", *ports)
        self._open: set[socket.socket] = set()
        self._thrift1, self._thrift2 = Thrift1(self), Thrift2(self)
        for listening, service, handler in (
            (self._sockets[0], Hbase, self._thrift1),
            (self._sockets[1], hbase2.THBaseService, self._thrift2),
        ):
            processor = TProcessor(service, handler)
            threading.Thread(target=self._accept, args=(listening, processor), daemon=True).start()

    @property
    def gateways(self) -> tuple[GatewayAddress, ...]:
        return (self.address,)

    def settings(self, **changes: object) -> Settings:
        """The settings of a client of these gateways, and of the ZooKeeper beside them."""
        ours = {
            "gateways": self.gateways,
            "transport": self.transport,
            "protocol": self.protocol,
            "notify_workers": False,
            **({"zookeeper": self.zookeeper} if self.zookeeper else {}),
        }
        return Settings(**{**ours, **changes})  # type: ignore[arg-type]

    def answer(self, method: str, by: Callable[..., Any]) -> None:
        """Have a method of either service answered otherwise from now on.

        Args:
            method: its name.
            by: answers it; called with what answered it before, and with the arguments.
        """
        for handler in (self._thrift1, self._thrift2):
            before = getattr(handler, method, None)
            if before is not None:
                setattr(handler, method, functools.partial(by, before))

    def break_connections(self) -> None:
        """Close every connection there is."""
        for connection in list(self._open):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def restart(self) -> None:
        """Be other processes, which have no scans, and number theirs from the beginning."""
        self._thrift1.begin()
        self.break_connections()

    def close(self) -> None:
        for listening in self._sockets:
            with contextlib.suppress(OSError):
                listening.shutdown(socket.SHUT_RDWR)
            listening.close()
        self.break_connections()

    def _accept(self, listening: socket.socket, processor: TProcessor) -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._open.add(connection)
            threading.Thread(target=self._serve, args=(connection, processor), daemon=True).start()

    def _serve(self, connection: socket.socket, processor: TProcessor) -> None:
        wire = _TRANSPORTS[self.transport](transport.TSocket(sock=connection))
        requests = _PROTOCOLS[self.protocol](wire, decode_response=False)
        with contextlib.suppress(Exception), connection:
            while True:
                name, number, result, call = processor.process_in(requests)
                self._answer(connection, processor, call, result, (name, number))
        self._open.discard(connection)

    def _answer(
        self,
        connection: socket.socket,
        processor: TProcessor,
        call: Callable[[], Any],
        result: Any,
        request: tuple[str, int],
    ) -> None:
        """Execute one request, and send its answer."""
        self._execute(processor, call, result)
        connection.sendall(self._encoded(processor, result, request))

    def _execute(self, processor: TProcessor, call: Callable[[], Any], result: Any) -> None:
        try:
            answer = call()
            if 0 in result.thrift_spec:
                result.success = answer
        except HQueueError as exc:
            processor.handle_exception(_declared(exc, result), result)
        except (IOError, hbase2.TIOError) as exc:
            processor.handle_exception(exc, result)

    def _encoded(self, processor: TProcessor, result: Any, request: tuple[str, int]) -> bytes:
        memory = TMemoryBuffer()
        written = _PROTOCOLS[self.protocol](_TRANSPORTS[self.transport](memory))
        name, number = request
        processor.send_result(written, name, result, number)
        encoded: bytes = memory.getvalue()
        return encoded


_CLASSES = {
    QueueNotFoundError: "TableNotFoundException",
    QueueExistsError: "TableExistsException",
    QueueDisabledError: "TableNotEnabledException",
    QueueEnabledError: "TableNotDisabledException",
    RequestRefusedError: "UnsupportedOperationException",
}
_BARE_TEXTS: Mapping[type[HQueueError], str] = {
    QueueNotFoundError: "{table}",
    QueueDisabledError: "{table} is disabled.",
    QueueEnabledError: "tableName={table}, state=ENABLED",
}
"""What Thrift2 says of an exception that its own HBase client raised: it leaves out the class."""


def _declared(error: HQueueError, result: Any) -> Exception:
    """The error as this method declares it, with HBase's own text."""
    table = str(error.facts["queue"])
    named = f"org.apache.hadoop.hbase.{_CLASSES[type(error)]}: {table}"
    if any(hbase2.TIOError in spec for spec in result.thrift_spec.values()):
        text = _BARE_TEXTS.get(type(error), named).format(table=table)
        return hbase2.TIOError(message=text, canRetry=False)  # type: ignore[no-any-return]
    return IOError(message=named)  # type: ignore[no-any-return]


def _text_of_several(error: HQueueError, rows: int) -> str:
    """What HBase's client says of a request for several rows, which it repeats while the table is
    disabled.
    """
    text = "Backoff time of 10005ms would exceed operation timeout"
    if isinstance(error, QueueNotFoundError):
        text = str(error.facts["queue"])
    s = "s" if rows > 1 else ""
    return f"Failed {rows} action{s}: {text}: {rows} time{s}, servers with issues: null"


class Thrift1:
    """The first service: scans, and gets of many rows."""

    def __init__(self, gateway: GatewayPair) -> None:
        self._gateway = gateway
        self.begin()

    def begin(self) -> None:
        self._numbers = itertools.count(1)
        self._scans: dict[int, tuple[str, TScan]] = {}

    def getRowsWithColumns(  # noqa: N802
        self, table: bytes, rows: list[bytes], columns: list[bytes], _attributes: object
    ) -> list[Any]:
        def get(held: Rows) -> list[Any]:
            found = ((key, _chosen(held.visible(key), columns)) for key in rows)
            return [_thrift1_row(key, cells) for key, cells in found if cells]

        try:
            return self._gateway.cluster.ask(table.decode(), get)
        except HQueueError as exc:
            if len(rows) == 1:
                raise
            kind = "org.apache.hadoop.hbase.client.RetriesExhaustedWithDetailsException"
            raise IOError(message=f"{kind}: {_text_of_several(exc, len(rows))}") from exc

    def scannerOpenWithScan(self, table: bytes, scan: TScan, _attributes: object) -> int:  # noqa: N802
        self._gateway.cluster.ask(table.decode(), lambda rows: None)
        number = next(self._numbers)
        self._scans[number] = table.decode(), scan
        return number

    def scannerGetList(self, number: int, limit: int) -> list[Any]:  # noqa: N802
        table, scan = self._scans[number]

        def read(held: Rows) -> list[Any]:
            keys = held.between(scan.startRow, scan.stopRow)
            found = ((key, _chosen(held.visible(key), scan.columns)) for key in keys)
            rows = [_thrift1_row(key, cells) for key, cells in found if cells]
            return rows[:limit]

        rows = self._gateway.cluster.ask(table, read)
        if rows:
            scan.startRow = rows[-1].row + b"\0"
        return rows

    def scannerClose(self, number: int) -> None:  # noqa: N802
        self._scans.pop(number, None)


def _chosen(cells: Mapping[bytes, Cell], columns: Sequence[bytes]) -> dict[bytes, Cell]:
    return {
        column: cell
        for column, cell in cells.items()
        if column in columns or column.partition(b":")[0] in columns
    }


def _thrift1_row(key: bytes, cells: Mapping[bytes, Cell]) -> Any:
    columns = {
        column: TCell(value=cell.value, timestamp=cell.written_ms) for column, cell in cells.items()
    }
    return TRowResult(row=key, columns=columns)


class Thrift2:
    """The second service: conditional puts, headers and administration."""

    def __init__(self, gateway: GatewayPair) -> None:
        self._gateway = gateway

    @property
    def _cluster(self) -> MemoryCluster:
        return self._gateway.cluster

    def get(self, table: bytes, get: Any) -> Any:
        found = self._ask(table, lambda rows: _chosen(rows.visible(get.row), _names(get.columns)))
        return _thrift2_row(get.row, found)

    def getMultiple(self, table: bytes, gets: list[Any]) -> list[Any]:  # noqa: N802
        try:
            return [self.get(table, get) for get in gets]
        except HQueueError as exc:
            if len(gets) == 1:
                raise
            text = _text_of_several(exc, len(gets))
            raise hbase2.TIOError(message=text, canRetry=True) from exc

    def put(self, table: bytes, put: Any) -> None:
        self._ask(table, lambda rows: rows.put(put.row, _values(put)))

    def checkAndPut(  # noqa: N802, PLR0917
        self,
        table: bytes,
        row: bytes,
        family: bytes,
        qualifier: bytes,
        value: bytes | None,
        put: Any,
    ) -> bool:
        def check_and_put(rows: Rows) -> bool:
            cell = rows.visible(row).get(family + b":" + qualifier)
            if (cell.value if cell else None) != value:
                return False
            rows.put(put.row, _values(put))
            return True

        return self._ask(table, check_and_put)

    def checkAndDelete(  # noqa: N802, PLR0917
        self,
        table: bytes,
        row: bytes,
        family: bytes,
        qualifier: bytes,
        value: bytes | None,
        delete: Any,
    ) -> bool:
        def check_and_delete(rows: Rows) -> bool:
            cell = rows.visible(row).get(family + b":" + qualifier)
            if (cell.value if cell else None) != value:
                return False
            rows.delete(delete.row, _names(delete.columns) if delete.columns else None)
            return True

        return self._ask(table, check_and_delete)

    def deleteSingle(self, table: bytes, delete: Any) -> None:  # noqa: N802
        wanted = _names(delete.columns) if delete.columns else None
        until_ms = delete.columns[0].timestamp if delete.columns else None
        self._ask(table, lambda rows: rows.delete(delete.row, wanted, until_ms))

    def deleteMultiple(self, table: bytes, deletes: list[Any]) -> list[Any]:  # noqa: N802
        try:
            for delete in deletes:
                self.deleteSingle(table, delete)
        except HQueueError as exc:
            text = _text_of_several(exc, len(deletes))
            raise hbase2.TIOError(message=text, canRetry=True) from exc
        return []

    def getScannerResults(self, table: bytes, scan: Any, limit: int) -> list[Any]:  # noqa: N802
        names = _names(scan.columns)

        def read(rows: Rows) -> list[Any]:
            if scan.reversed:  # The stop row is exclusive here, too.
                keys = rows.between(scan.stopRow, scan.startRow + b"\0", backwards=True)
                keys = (key for key in keys if key != scan.stopRow)
            else:
                keys = rows.between(scan.startRow, scan.stopRow)
            found = ((key, _chosen(rows.visible(key), names)) for key in keys)
            seen = (_thrift2_row(key, cells) for key, cells in found if cells)
            return list(itertools.islice(seen, limit))

        return self._ask(table, read)

    def getAllRegionLocations(self, table: bytes) -> list[Any]:  # noqa: N802
        if not self._cluster.exists(table.decode()):
            return []
        return [
            hbase2.TRegionLocation(
                hbase2.TServerName(region.host, region.port, 1),
                hbase2.TRegionInfo(number, table, region.start_key, region.end_key),
            )
            for number, region in enumerate(self._cluster.regions(table.decode()))
        ]

    def getTableDescriptor(self, name: Any) -> Any:  # noqa: N802
        return _descriptor(_text(name), self._cluster.table(_text(name)))

    def getTableDescriptorsByPattern(self, _pattern: str, _system: bool) -> list[Any]:  # noqa: N802
        return [_descriptor(name, self._cluster.table(name)) for name in self._cluster.names()]

    def isTableEnabled(self, name: Any) -> bool:  # noqa: N802
        return self._cluster.table(_text(name)).enabled

    def createTable(self, descriptor: Any, _splits: object) -> None:  # noqa: N802
        name = _text(descriptor.tableName)
        if self._cluster.exists(name):
            raise QueueExistsError("there is such a table", queue=name)
        said = descriptor.attributes
        if RECORDS in said:
            self._cluster.create_records(name, said[b"hqueue.id"].decode())
            return
        self._cluster.create(
            name,
            int(said[b"hqueue.partitions"]),
            _ttl_seconds(descriptor),
            _attributes(descriptor),
            said[b"hqueue.id"].decode(),
        )

    def modifyTable(self, descriptor: Any) -> None:  # noqa: N802
        name = _text(descriptor.tableName)
        self._cluster.alter(name, _ttl_seconds(descriptor), _attributes(descriptor))

    def enableTable(self, name: Any) -> None:  # noqa: N802
        self._require(name, enabled=False)
        self._cluster.enable(_text(name))

    def disableTable(self, name: Any) -> None:  # noqa: N802
        self._require(name, enabled=True)
        self._cluster.disable(_text(name))

    def deleteTable(self, name: Any) -> None:  # noqa: N802
        self._cluster.delete(_text(name))

    def truncateTable(self, name: Any, _preserve_splits: bool) -> None:  # noqa: N802
        self._require(name, enabled=False)
        self._cluster.truncate(_text(name))

    def getClusterId(self) -> str:  # noqa: N802
        return self._cluster.id

    def _ask(self, table: bytes, request: Callable[[Rows], Any]) -> Any:
        return self._cluster.ask(table.decode(), request)

    def _require(self, name: Any, *, enabled: bool) -> None:
        if self._cluster.table(_text(name)).enabled is not enabled:
            error = QueueDisabledError if enabled else QueueEnabledError
            raise error("the table is in another state", queue=_text(name))


def _names(columns: Sequence[Any]) -> list[bytes]:
    """Columns, and families that stand for all their columns."""
    return [
        column.family if column.qualifier is None else column.family + b":" + column.qualifier
        for column in columns
    ]


def _values(put: Any) -> dict[bytes, bytes]:
    return {value.family + b":" + value.qualifier: value.value for value in put.columnValues}


def _thrift2_row(key: bytes, cells: Mapping[bytes, Cell]) -> Any:
    values = [
        hbase2.TColumnValue(*column.split(b":", 1), cell.value, cell.written_ms)
        for column, cell in cells.items()
    ]
    return hbase2.TResult(row=key if values else None, columnValues=values)


def _text(name: Any) -> str:
    namespace, qualifier = (name.ns or b"default").decode(), name.qualifier.decode()
    return qualifier if namespace == "default" else f"{namespace}:{qualifier}"


def _descriptor(name: str, table: Table) -> Any:
    namespace, _, qualifier = name.rpartition(":")
    attributes = {}
    if table.partitions is not None:
        attributes = {
            b"hqueue.format": b"1",
            b"hqueue.partitions": b"%d" % table.partitions,
            b"hqueue.id": table.token.encode(),
        }
    if table.is_records:
        attributes = {RECORDS: b"1", b"hqueue.id": table.token.encode()}
    for key, value in table.attributes.items():
        attributes[ATTRIBUTES[key].table_key.encode()] = str(value).encode()
    compression = attributes.pop(COMPRESSION, b"NONE")
    ttl_ms = table.rows.ttl_ms
    return hbase2.TTableDescriptor(
        tableName=hbase2.TTableName((namespace or "default").encode(), qualifier.encode()),
        columns=[
            hbase2.TColumnFamilyDescriptor(
                name=family,
                maxVersions=1,
                timeToLive=ttl_ms // 1_000 if ttl_ms and family == MESSAGE else TTL_SECONDS_MAX,
                attributes={COMPRESSION: compression},
            )
            for family in (MESSAGE, LOG)
        ],
        attributes=attributes,
    )


def _ttl_seconds(descriptor: Any) -> int | None:
    (seconds,) = (family.timeToLive for family in descriptor.columns if family.name == MESSAGE)
    return None if seconds in (None, TTL_SECONDS_MAX) else int(seconds)


def _attributes(descriptor: Any) -> dict[str, int | str]:
    """What hqueue knows of it, by hqueue's names."""
    said = {key.decode(): value.decode() for key, value in descriptor.attributes.items()}
    for family in descriptor.columns:
        if COMPRESSION in (family.attributes or {}):
            said[COMPRESSION.decode()] = family.attributes[COMPRESSION].decode()
    return {
        name: attribute.parse(said[attribute.table_key])
        for name, attribute in ATTRIBUTES.items()
        if attribute.table_key in said
    }

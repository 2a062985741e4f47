"""A gateway pair of the tests' own: it speaks both of HBase's Thrift services over real sockets.

What it answers is true, from rows that the test gives it, until it is told to spoil an answer.
"""

from __future__ import annotations

import contextlib
import dataclasses
import socket
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import happybase  # noqa: F401  (loads Hbase_thrift)
from Hbase_thrift import TCell, TRowResult
from thriftpy2 import protocol, transport
from thriftpy2.thrift import TProcessor, TType
from thriftpy2.transport import TMemoryBuffer

from hqueue import GatewayAddress
from hqueue.hbase.schema import HEADER_COLUMN, LOG, MESSAGE
from hqueue.hbase.thrift.idl import Hbase, TScan, hbase2

from .rows import Stored

__all__ = ["QUEUE", "FakeGateway", "Spoil", "holes"]

QUEUE = b"q"
PARTITIONS = 2
DRIP_S = 0.02
REQUESTS_MAX = 400
"""After so many requests it says no more: a command that follows a queue would go on for ever."""


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


@dataclasses.dataclass(frozen=True)
class Spoil:
    """What is done to one answer.

    Args:
        change: turns the answer's bytes into others.
        hole: which of the fields in the answer is left empty, counted modulo their number.
        manner: how it is sent: "whole", then the connection goes on; "close" after it; "stall",
            which says no more; "drip", byte by byte.
    """

    change: Callable[[bytes], bytes] = bytes
    hole: int | None = None
    manner: str = "whole"


class FakeGateway:
    """Both services, each on a port of its own. Close it at the end."""

    def __init__(self, transport_name: str, protocol_name: str) -> None:
        self.transport, self.protocol = transport_name, protocol_name
        self._sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
        ports = [listening.getsockname()[1] for listening in self._sockets]
        self.address = GatewayAddress("127.0.0.1", *ports)
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self.begin({}, {})
        for listening, service, handler in (
            (self._sockets[0], Hbase, Thrift1(self)),
            (self._sockets[1], hbase2.THBaseService, Thrift2(self)),
        ):
            processor = TProcessor(service, handler)
            threading.Thread(target=self._accept, args=(listening, processor), daemon=True).start()

    def begin(self, rows: Mapping[bytes, Stored], spoils: Mapping[int, Spoil]) -> None:
        """Hold these rows from now on, and spoil the answers with these numbers."""
        with self._lock:
            self.rows = dict(rows)
            self.enabled = True
            self._spoils = spoils
            self._answered = 0
            for connection in list(self._open):
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.begin({}, {})
        for listening in self._sockets:
            listening.close()

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
                spoil = self._next_spoil()
                try:
                    answer = call()
                    if 0 in result.thrift_spec:
                        result.success = answer
                except hbase2.TIOError as exc:
                    processor.handle_exception(exc, result)
                if spoil.hole is not None:
                    places = holes(result)
                    if places:
                        fill = places[spoil.hole % len(places)]
                        fill(spoil.hole)
                memory = TMemoryBuffer()
                written = _TRANSPORTS[self.transport](memory)
                processor.send_result(_PROTOCOLS[self.protocol](written), name, result, number)
                self._send(connection, memory.getvalue(), spoil)
        self._open.discard(connection)

    def _next_spoil(self) -> Spoil:
        with self._lock:
            self._answered += 1
            if self._answered > REQUESTS_MAX:
                raise ConnectionError("this was the last answer")
            return self._spoils.get(self._answered, Spoil())

    def _send(self, connection: socket.socket, answer: bytes, spoil: Spoil) -> None:
        changed = spoil.change(answer)
        if spoil.manner == "drip":
            for index in range(len(changed)):
                connection.sendall(changed[index : index + 1])
                time.sleep(DRIP_S)
            return
        connection.sendall(changed)
        if spoil.manner == "close":
            raise ConnectionError("it is closed")
        if spoil.manner == "stall":
            connection.recv(1)


def holes(struct: Any) -> list[Callable[[int], None]]:
    """For each field of an answer, its own fields' and so on: what empties it."""
    found: list[Callable[[int], None]] = []
    for spec in struct.thrift_spec.values():
        kind, name = spec[0], spec[1]
        value = getattr(struct, name, None)
        if value is None:
            continue
        found.append(_hole(struct, name, kind))
        for inner in [value, *_items(value)]:
            if hasattr(inner, "thrift_spec"):
                found += holes(inner)
    return found


_OTHERS: Mapping[int, tuple[Any, ...]] = {
    TType.STRING: (b"", b"\xff\xfe", b"\0" * 12, b"x" * 300),
    TType.I32: (0, -1, 2**31 - 1, -(2**31)),
    TType.I64: (0, -1, 2**63 - 1, -(2**63)),
    TType.LIST: ([],),
    TType.MAP: ({},),
}


def _hole(struct: Any, name: str, kind: int) -> Callable[[int], None]:
    values = (None, *_OTHERS.get(kind, ()))

    def fill(number: int) -> None:
        setattr(struct, name, values[number // 7 % len(values)])

    return fill


def _items(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


class Thrift1:
    """What is read through the first service."""

    def __init__(self, gateway: FakeGateway) -> None:
        self._gateway = gateway
        self._scans: dict[int, list[Any]] = {}

    def getRowsWithColumns(  # noqa: N802
        self, _table: bytes, rows: list[bytes], columns: list[bytes], _attributes: object
    ) -> list[Any]:
        held = self._gateway.rows
        return [_thrift1_row(held[key], columns) for key in rows if key in held]

    def scannerOpenWithScan(self, _table: bytes, scan: TScan, _attributes: object) -> int:  # noqa: N802
        number = len(self._scans) + 1
        self._scans[number] = [
            _thrift1_row(row, scan.columns)
            for key, row in sorted(self._gateway.rows.items())
            if scan.startRow <= key < scan.stopRow
        ]
        return number

    def scannerGetList(self, number: int, rows: int) -> list[Any]:  # noqa: N802
        left = self._scans.get(number, [])
        self._scans[number] = left[rows:]
        return left[:rows]

    def scannerClose(self, number: int) -> None:  # noqa: N802
        self._scans.pop(number, None)


def _thrift1_row(row: Stored, columns: list[bytes]) -> Any:
    found = {HEADER_COLUMN: row.header}
    found |= {MESSAGE + b":" + topic: cell for topic, cell in row.cells.items()}
    wanted = {
        name: TCell(value=value, timestamp=1)
        for name, value in found.items()
        if name in columns or MESSAGE in columns
    }
    return TRowResult(row=row.key, columns=wanted)


class Thrift2:
    """What is read and done through the second service."""

    def __init__(self, gateway: FakeGateway) -> None:
        self._gateway = gateway

    def get(self, _table: bytes, get: Any) -> Any:
        row = self._gateway.rows.get(get.row)
        return _thrift2_row(row) if row else hbase2.TResult(columnValues=[])

    def put(self, _table: bytes, put: Any) -> None:
        self._gateway.rows[put.row] = Stored(put.row, put.columnValues[0].value, {})

    def checkAndPut(  # noqa: N802
        self, _table: bytes, row: bytes, *condition_and_put: Any
    ) -> bool:
        put = condition_and_put[-1]
        if row in self._gateway.rows:
            return False
        values = {(value.family, value.qualifier): value.value for value in put.columnValues}
        cells = {name: value for (family, name), value in values.items() if family == MESSAGE}
        self._gateway.rows[row] = Stored(row, put.columnValues[0].value, cells)
        return True

    def deleteSingle(self, _table: bytes, delete: Any) -> None:  # noqa: N802
        self._gateway.rows.pop(delete.row, None)

    def deleteMultiple(self, table: bytes, deletes: list[Any]) -> list[Any]:  # noqa: N802
        for delete in deletes:
            self.deleteSingle(table, delete)
        return []

    def getScannerResults(self, _table: bytes, scan: Any, rows: int) -> list[Any]:  # noqa: N802
        keys = sorted(self._gateway.rows)
        if scan.reversed:
            keys = [key for key in keys[::-1] if scan.stopRow < key <= scan.startRow]
        else:
            keys = [key for key in keys if scan.startRow <= key < scan.stopRow]
        return [_thrift2_row(self._gateway.rows[key]) for key in keys[:rows]]

    def getAllRegionLocations(self, table: bytes) -> list[Any]:  # noqa: N802
        return [
            hbase2.TRegionLocation(
                hbase2.TServerName("127.0.0.1", 16020, 1),
                hbase2.TRegionInfo(number, table, start, b""),
            )
            for number, start in enumerate((b"", b"\0\1"))
        ]

    def getTableDescriptor(self, name: Any) -> Any:  # noqa: N802
        if name.qualifier != QUEUE:
            raise hbase2.TIOError(message=name.qualifier.decode(), canRetry=False)
        return _descriptor()

    def getTableDescriptorsByPattern(self, _pattern: str, _system: bool) -> list[Any]:  # noqa: N802
        return [_descriptor(), _descriptor()]

    def isTableEnabled(self, _name: Any) -> bool:  # noqa: N802
        return self._gateway.enabled

    def createTable(self, *_: object) -> None:  # noqa: N802
        raise hbase2.TIOError(message="TableExistsException: q", canRetry=False)

    def modifyTable(self, *_: object) -> None:  # noqa: N802
        """It is as it was."""

    def disableTable(self, *_: object) -> None:  # noqa: N802
        self._gateway.enabled = False

    def enableTable(self, *_: object) -> None:  # noqa: N802
        self._gateway.enabled = True

    def deleteTable(self, *_: object) -> None:  # noqa: N802
        self._gateway.rows.clear()

    def truncateTable(self, *_: object) -> None:  # noqa: N802
        self._gateway.rows.clear()
        self._gateway.enabled = True


def _thrift2_row(row: Stored) -> Any:
    header = hbase2.TColumnValue(LOG, b"batch", row.header, int(time.time() * 1e3))
    return hbase2.TResult(row=row.key, columnValues=[header])


def _descriptor() -> Any:
    return hbase2.TTableDescriptor(
        tableName=hbase2.TTableName(ns=b"default", qualifier=QUEUE),
        columns=[
            hbase2.TColumnFamilyDescriptor(
                name=name, maxVersions=1, timeToLive=86_400, attributes={b"COMPRESSION": b"GZ"}
            )
            for name in (MESSAGE, LOG)
        ],
        attributes={
            b"hqueue.format": b"1",
            b"hqueue.partitions": b"%d" % PARTITIONS,
            b"hqueue.id": b"id",
        },
    )

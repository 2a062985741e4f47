"""HBase without hqueue: what the tests compare with.

It speaks to the gateways with the IDL files of HBase's own jar and with plain happybase, so what
it says of a table does not pass through the code under test.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import happybase
import thriftpy2
from thriftpy2.rpc import make_client

from hqueue import GatewayAddress
from hqueue.handle.opening_record import NAME
from hqueue.hbase.schema import RECORD_ROW_PREFIX
from hqueue.local.jars import ensure_jars

__all__ = ["OPENING_ROW", "RawHBase", "RawTables", "Region"]

OPENING_ROW = RECORD_ROW_PREFIX + NAME.encode()
"""The row of the record by which a queue is opened."""

_IDL = "org/apache/hadoop/hbase/thrift2/hbase.thrift"
TIMEOUT_MS = 60_000


@functools.cache
def _thrift2() -> Any:
    (jar,) = ensure_jars().glob("hbase-thrift-*.jar")
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(jar) as archive:
        path = Path(folder) / "hbase.thrift"
        path.write_bytes(archive.read(_IDL))
        return thriftpy2.load(str(path), module_name="jar_hbase2_thrift")


@dataclasses.dataclass(frozen=True)
class Region:
    """A region as Thrift1's ``getTableRegions`` gives it."""

    start_key: bytes
    end_key: bytes
    host: str
    port: int


class RawTables(Protocol):
    """Tables past hqueue: what tests compare with, and plant into. Columns are written
    ``family:qualifier``.
    """

    def exists(self, name: str) -> bool: ...

    def is_enabled(self, name: str) -> bool: ...

    def regions(self, name: str) -> list[Region]:
        """The table's regions by start key."""

    def rows(self, name: str) -> dict[bytes, dict[bytes, bytes]]:
        """Every row with all its cells, except the record by which a queue is opened."""

    def put(
        self, name: str, row: bytes, cells: Mapping[bytes, bytes], timestamp_ms: int | None = None
    ) -> None:
        """Write cells, with a timestamp of choice."""

    def delete_cells(self, name: str, row: bytes, *columns: bytes) -> None:
        """Delete these cells of a row; all if none is named."""

    def create_plain(self, name: str) -> None:
        """Create a table with a queue's families that is not a queue."""

    def drop(self, name: str) -> None:
        """Disable and delete a table."""

    def create_namespace(self, namespace: str) -> None: ...

    def delete_namespace(self, namespace: str) -> None: ...


class RawHBase:
    """Plain access to the tables behind one gateway pair: `RawTables`, and what only HBase has."""

    def __init__(self, gateway: GatewayAddress) -> None:
        self._gateway = gateway

    @property
    def idl(self) -> Any:
        """Thrift2 as HBase's jar describes it."""
        return _thrift2()

    @contextlib.contextmanager
    def thrift1(self) -> Iterator[happybase.Connection]:
        """A happybase connection."""
        connection = happybase.Connection(
            self._gateway.host, self._gateway.thrift1_port, timeout=TIMEOUT_MS
        )
        try:
            yield connection
        finally:
            connection.close()

    @contextlib.contextmanager
    def thrift2(self) -> Iterator[Any]:
        """A Thrift2 client."""
        client = make_client(
            self.idl.THBaseService,
            self._gateway.host,
            self._gateway.thrift2_port,
            timeout=TIMEOUT_MS,
        )
        try:
            yield client
        finally:
            client.close()

    def table_name(self, name: str) -> Any:
        namespace, _, qualifier = name.rpartition(":")
        return self.idl.TTableName(
            ns=(namespace or "default").encode(), qualifier=qualifier.encode()
        )

    def descriptor(self, table: str) -> Any:
        """The table's description with all that Thrift2 tells."""
        with self.thrift2() as client:
            return client.getTableDescriptor(self.table_name(table))

    def table_attributes(self, table: str) -> dict[str, str]:
        return _texts(self.descriptor(table).attributes)

    def family_attributes(self, table: str, family: str) -> dict[str, str]:
        return self.all_family_attributes(table)[family]

    def all_family_attributes(self, table: str) -> dict[str, dict[str, str]]:
        columns = self.descriptor(table).columns
        return {_text(column.name): _texts(column.attributes) for column in columns}

    def is_enabled(self, name: str) -> bool:
        with self.thrift1() as connection:
            return bool(connection.is_table_enabled(name))

    def exists(self, name: str) -> bool:
        with self.thrift2() as client:
            return bool(client.tableExists(self.table_name(name)))

    def regions(self, name: str) -> list[Region]:
        """The table's regions by start key."""
        with self.thrift1() as connection:
            found = connection.client.getTableRegions(name.encode())
        return sorted(
            (
                Region(_bytes(r.startKey), _bytes(r.endKey), _text(r.serverName), r.port)
                for r in found
            ),
            key=lambda region: region.start_key,
        )

    def rows(self, name: str) -> dict[bytes, dict[bytes, bytes]]:
        """Every row with all its cells, except the record by which a queue is opened."""
        with self.thrift1() as connection:
            found = dict(connection.table(name).scan())
        found.pop(OPENING_ROW, None)
        return found

    def put(
        self, name: str, row: bytes, cells: Mapping[bytes, bytes], timestamp_ms: int | None = None
    ) -> None:
        """Write cells, their columns written ``family:qualifier``, with a timestamp of choice."""
        values = []
        for column, value in cells.items():
            family, _, qualifier = column.partition(b":")
            values.append(self.idl.TColumnValue(family, qualifier, value, timestamp=timestamp_ms))
        with self.thrift2() as client:
            client.put(name.encode(), self.idl.TPut(row, values))

    def delete_cells(self, name: str, row: bytes, *columns: bytes) -> None:
        """Delete these cells of a row; all if none is named."""
        with self.thrift1() as connection:
            connection.table(name).delete(row, columns=columns or None)

    def create_plain(self, name: str) -> None:
        """Create a table with a queue's families that is not a queue."""
        with self.thrift1() as connection:
            connection.create_table(name, {"message": {}, "log": {}})

    def drop(self, name: str) -> None:
        """Disable and delete a table."""
        with self.thrift1() as connection:
            connection.delete_table(name, disable=True)

    def create_namespace(self, namespace: str) -> None:
        with self.thrift2() as client:
            client.createNamespace(self.idl.TNamespaceDescriptor(name=namespace))

    def delete_namespace(self, namespace: str) -> None:
        with self.thrift2() as client:
            client.deleteNamespace(namespace)


def _texts(attributes: Mapping[Any, Any] | None) -> dict[str, str]:
    return {_text(key): _text(value) for key, value in (attributes or {}).items()}


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _bytes(value: bytes | str | None) -> bytes:
    return value.encode("latin-1") if isinstance(value, str) else value or b""

"""Whether HBase serves, natively or through a gateway: a real row is written and read back."""

from __future__ import annotations

import contextlib
import json
import socket
import uuid
from collections.abc import Mapping
from typing import Any

import happybase
from Hbase_thrift import AlreadyExists  # type: ignore[import-not-found]

from hqueue.connecting import open_store
from hqueue.errors import HQueueError
from hqueue.metadata.fields import FieldChange, FieldRecord
from hqueue.metadata.ports import NEW
from hqueue.rpc.connection import Connection, ThriftError
from hqueue.rpc.services import load
from hqueue.settings.connection import NATIVE, Settings

__all__ = ["NATIVE_PROBE_TABLE", "PROBE_TABLE", "check_native", "check_thrift1", "check_thrift2"]

PROBE_TABLE = "hqueue-local-probe"
"""An ordinary table, not a queue. It stays, so that later starts need not create it."""

NATIVE_PROBE_TABLE = "hqueue-local-probe-native"
"""A table of records, not a queue. It stays, too; the record of a check goes with it."""

ROW_TTL_S = 600

_FOLDER = "checks"
_FAMILY = b"p"
_COLUMN = b"p:v"

_hbase2: Any = load("hbase2")
_FAILURES = (OSError, *ThriftError, EOFError)


def check_native(given: Mapping[str, Any], timeout_s: float) -> str | None:
    """Write a record to HBase's own servers and read it back, creating the probe table if absent.
    One check at a time: it deletes what others left.

    Args:
        given: the settings of a client.
        timeout_s: the bound.

    Returns:
        None if the very record came back, else what went wrong.
    """
    settings = Settings(
        hbase=NATIVE,
        **given,
        metadata_table=NATIVE_PROBE_TABLE,
        request_timeout_ms=int(timeout_s * 1e3),
        operation_timeout_ms=int(timeout_s * 1e3),
    )
    key = f"{_FOLDER}/{uuid.uuid4().hex}"
    fields = {"v": json.dumps({"value": uuid.uuid4().hex}).encode()}
    with contextlib.closing(open_store(settings)) as store:
        records = store.fields()
        try:
            records.write({key: FieldChange(fields, NEW)})
            found = records.read([key]).get(key)
            records.clear(_FOLDER)
        except HQueueError as exc:
            return _brief(exc)
    same = isinstance(found, FieldRecord) and dict(found.fields) == fields
    return None if same else "the record that was read is not the one that was written"


def check_thrift1(host: str, port: int, timeout_s: float) -> str | None:
    """Write a row through a Thrift1 gateway and read it back, creating the probe table if absent.

    Returns:
        None if the very value came back, else what went wrong.
    """
    value = uuid.uuid4().bytes
    row = _own_row(host, port)
    try:
        with contextlib.closing(
            happybase.Connection(host, port, timeout=int(timeout_s * 1e3))
        ) as connection:
            if PROBE_TABLE.encode() not in connection.tables():
                with contextlib.suppress(AlreadyExists):
                    connection.create_table(
                        PROBE_TABLE, {_FAMILY.decode(): {"time_to_live": ROW_TTL_S}}
                    )
            table = connection.table(PROBE_TABLE)
            table.put(row, {_COLUMN: value})
            read = table.row(row).get(_COLUMN)
    except _FAILURES as exc:
        return _brief(exc)
    return None if read == value else "the row that was read is not the one that was written"


def check_thrift2(host: str, port: int, timeout_s: float) -> str | None:
    """Write a row through a Thrift2 gateway into the probe table and read it back.

    Returns:
        None if the very value came back, else what went wrong.
    """
    value = uuid.uuid4().bytes
    row = _own_row(host, port)
    table = PROBE_TABLE.encode()
    cell = _hbase2.TColumnValue(family=_FAMILY, qualifier=b"v", value=value)
    try:
        with contextlib.closing(
            Connection(_hbase2.THBaseService, host, port, timeout_s)
        ) as connection:
            connection.socket.settimeout(timeout_s)
            connection.client.put(table, _hbase2.TPut(row=row, columnValues=[cell]))
            connection.socket.settimeout(timeout_s)
            result = connection.client.get(table, _hbase2.TGet(row=row))
    except _FAILURES as exc:
        return _brief(exc)
    read = [bytes(cell.value) for cell in result.columnValues]
    return None if read == [value] else "the row that was read is not the one that was written"


def _own_row(host: str, port: int) -> bytes:
    # A row of its own for each check: a put that was given up may still be applied.
    return f"{host}:{port}/{uuid.uuid4().hex}".encode()


def _brief(exc: BaseException) -> str:
    if isinstance(exc, (ConnectionError, socket.timeout)):
        return type(exc).__name__
    said = getattr(exc, "message", None) or str(exc) or ""
    if isinstance(said, bytes):
        said = said.decode("utf-8", "replace")
    return f"{type(exc).__name__}: {str(said).strip().splitlines()[0][:300] if said else ''}"

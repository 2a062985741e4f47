"""Whether a gateway serves: a real row is written through it and read back."""

from __future__ import annotations

import contextlib
import importlib.resources
import socket
import uuid
from typing import Any

import happybase
import thriftpy2
from Hbase_thrift import AlreadyExists  # type: ignore[import-not-found]
from thriftpy2.protocol import TBinaryProtocolFactory
from thriftpy2.rpc import client_context
from thriftpy2.thrift import TException
from thriftpy2.transport import TBufferedTransportFactory

__all__ = ["PROBE_TABLE", "check_thrift1", "check_thrift2"]

PROBE_TABLE = "hqueue-local-probe"
"""An ordinary table, not a queue. It stays, so that later starts need not create it."""

ROW_TTL_S = 600

_FAMILY = b"p"
_COLUMN = b"p:v"

with importlib.resources.as_file(
    importlib.resources.files("hqueue.rpc").joinpath("idl/hbase2.thrift")
) as _path:
    _hbase2: Any = thriftpy2.load(str(_path), module_name="hqueue_local_hbase2_thrift")

_FAILURES = (OSError, TException, EOFError)


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
        with client_context(
            _hbase2.THBaseService,
            host,
            port,
            connect_timeout=int(timeout_s * 1e3),
            socket_timeout=int(timeout_s * 1e3),
            proto_factory=TBinaryProtocolFactory(decode_response=False),  # type: ignore[no-untyped-call]
            trans_factory=TBufferedTransportFactory(),
        ) as client:
            client.put(table, _hbase2.TPut(row=row, columnValues=[cell]))
            result = client.get(table, _hbase2.TGet(row=row))
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

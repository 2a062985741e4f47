"""The limits of updates: the same changes, built before, and sent without the library."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import happybase
from kazoo.client import KazooClient

from hqueue import GatewayAddress, Settings
from hqueue.hbase.record_cells import VERSION, Mark, encode
from hqueue.hbase.records import THREADS
from hqueue.hbase.thrift.connection import Service, connect
from hqueue.hbase.thrift.idl import hbase2
from hqueue.metadata.fields import Fields

__all__ = ["BarePuts", "BareSets"]

WAIT_S = 120.0
LASTS_S_MAX = 3_600


class BarePuts:
    """Conditional puts of records' rows, by as many connections as the library has, a thread each.

    Args:
        gateway: where to.
        connection: reads the rows' versions.
        table: the records' table.
        rows: whose records are changed.
    """

    def __init__(
        self,
        gateway: GatewayAddress,
        connection: happybase.Connection,
        table: str,
        rows: Sequence[bytes],
    ) -> None:
        connections = [connect(gateway, Service.THRIFT2, Settings()) for _ in range(THREADS)]
        for each in connections:
            each.socket.settimeout(LASTS_S_MAX)
        self._clients: list[Any] = [each.client for each in connections]
        self._table = table
        found = connection.table(table).rows(rows, columns=[VERSION])
        self._marks = {row: Mark.decode(cells[VERSION]) for row, cells in found}

    def send(self, fields: Fields) -> float:
        """Change these fields of each record, as the library does; how many a second."""
        built = [self._put(row, fields) for row in self._marks]
        with ThreadPoolExecutor(THREADS) as pool:
            pool.submit(int).result()
            start = time.perf_counter()
            for done in [
                pool.submit(self._send, client, built[number::THREADS])
                for number, client in enumerate(self._clients)
            ]:
                done.result()
            return len(built) / (time.perf_counter() - start)

    def _put(self, row: bytes, fields: Fields) -> tuple[bytes, Any]:
        old = self._marks[row]
        assert old is not None
        self._marks[row] = new = old.next()
        values = [
            hbase2.TColumnValue(*column.split(b":", 1), value)
            for column, value in encode(new, fields, whole=False).items()
        ]
        return old.cell, hbase2.TPut(row, values)

    def _send(self, client: Any, puts: Sequence[tuple[bytes, Any]]) -> None:
        table, version = self._table.encode(), VERSION.split(b":", 1)
        for old, put in puts:
            assert client.checkAndPut(table, put.row, *version, old, put)


class BareSets:
    """Conditional sets of nodes by kazoo, all sent before any answer.

    Args:
        zookeeper: where to.
        versions: of the nodes that are changed.
    """

    def __init__(self, zookeeper: str, versions: Mapping[str, int]) -> None:
        self._client = KazooClient(zookeeper)
        self._client.start(WAIT_S)
        self._versions = dict(versions)

    def send(self, value: bytes) -> float:
        """Write this into each node; how many a second."""
        start = time.perf_counter()
        answers = {
            path: self._client.set_async(path, value, version)
            for path, version in self._versions.items()
        }
        for path, answer in answers.items():
            self._versions[path] = answer.get(timeout=WAIT_S).version
        return len(answers) / (time.perf_counter() - start)

    def close(self) -> None:
        self._client.stop()
        self._client.close()

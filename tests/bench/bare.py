"""The limits and the rivals: the same work without the library."""

from __future__ import annotations

import collections
import secrets
import time
from collections.abc import Iterator, Sequence
from typing import Any

import happybase

from hqueue import GatewayAddress, Message, Settings
from hqueue.format import encode_bodies, encode_header, rowkey
from hqueue.hbase.thrift.connection import Service, connect
from hqueue.hbase.thrift.idl import hbase2
from hqueue.rpc.transports import LARGE_BYTES

__all__ = ["BarePuts", "one_message_rows", "scan_rows"]

LASTS_S_MAX = 3_600


class BarePuts:
    """A loop that sends conditional puts that were built before: the limit of any append.

    Rows, columns and bytes are those that `Queue.put` would send for the same messages.
    """

    def __init__(self, gateway: GatewayAddress, table: str, partition: int) -> None:
        connection = connect(gateway, Service.THRIFT2, Settings())
        connection.socket.settimeout(LASTS_S_MAX)
        self._connection = connection
        self._table = table.encode()
        self._partition = partition
        self._slot = 0
        self._built: collections.deque[Any] = collections.deque()

    def build(self, messages: Sequence[Message], puts: int) -> None:
        """Make puts ready to be sent."""
        bodies = encode_bodies(messages)
        client: Any = self._connection.client
        if bodies.size >= LARGE_BYTES:
            client = self._connection.bulk_client
        for _ in range(puts):
            base = max(self._slot, time.time_ns() // 1_000_000 << 15)
            key = rowkey.encode(self._partition, self._slot)
            header = encode_header(
                key, bodies, base=base, ordinal=0, nonce=secrets.token_bytes(8), published_ms=0
            )
            values = [hbase2.TColumnValue(b"log", b"batch", header)]
            values += [hbase2.TColumnValue(b"message", t, c) for t, c in bodies.cells.items()]
            self._built.append((hbase2.TPut(key, values), client))
            self._slot = base + bodies.count

    def send(self) -> None:
        """Send the next one."""
        put, client = self._built.popleft()
        assert client.checkAndPut(self._table, put.row, b"log", b"batch", None, put)


def one_message_rows(
    connection: happybase.Connection, table: str, messages: Sequence[Message]
) -> None:
    """What a queue of a row a message would do: happybase's `table.batch`."""
    with connection.table(table).batch() as batch:
        for number, message in enumerate(messages):
            row = time.time_ns().to_bytes(8, "big") + number.to_bytes(4, "big")
            batch.put(row, {"m:t": message.value})


def scan_rows(connection: happybase.Connection, table: str, a_call: int) -> Iterator[Any]:
    """Happybase's scan of one-message rows."""
    return iter(connection.table(table).scan(batch_size=a_call))

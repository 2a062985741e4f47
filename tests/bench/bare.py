"""The limits and the rivals: the same work without the library."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Sequence
from typing import Any

import happybase

from hqueue import GatewayAddress, Message, Settings, rowkey
from hqueue.batch import encode_bodies, encode_header
from hqueue.hbase.connection import Connection, Service
from hqueue.hbase.idl import hbase2

__all__ = ["BarePuts", "one_message_rows", "scan_rows"]


class BarePuts:
    """A loop that sends conditional puts that were built before: the limit of any append.

    Rows, columns and bytes are those that `Queue.put` would send for the same messages.
    """

    def __init__(self, gateway: GatewayAddress, table: str, partition: int) -> None:
        self._client: Any = Connection(gateway, Service.THRIFT2, Settings()).client
        self._table = table.encode()
        self._partition = partition
        self._slot = 0

    def build(self, messages: Sequence[Message], puts: int) -> list[Any]:
        """The puts, ready to be sent."""
        bodies = encode_bodies(messages)
        built = []
        for _ in range(puts):
            base = max(self._slot, time.time_ns() // 1_000_000 << 15)
            key = rowkey.encode(self._partition, self._slot)
            header = encode_header(
                key, bodies, base=base, ordinal=0, nonce=secrets.token_bytes(8), published_ms=0
            )
            values = [hbase2.TColumnValue(b"log", b"batch", header)]
            values += [hbase2.TColumnValue(b"message", t, c) for t, c in bodies.cells.items()]
            built.append(hbase2.TPut(key, values))
            self._slot = base + bodies.count
        return built

    def send(self, puts: Sequence[Any]) -> list[float]:
        """Send them one after the other; the seconds that each took."""
        took = []
        for put in puts:
            start = time.perf_counter()
            won = self._client.checkAndPut(self._table, put.row, b"log", b"batch", None, put)
            took.append(time.perf_counter() - start)
            assert won
        return took


def one_message_rows(
    connection: happybase.Connection, table: str, value: bytes, rows: int, a_batch: int
) -> None:
    """What a queue of a row a message would do: happybase's `table.batch`."""
    handle = connection.table(table)
    with handle.batch(batch_size=a_batch) as batch:
        for number in range(rows):
            batch.put(time.time_ns().to_bytes(8, "big") + number.to_bytes(4, "big"), {"m:t": value})


def scan_rows(connection: happybase.Connection, table: str, a_call: int) -> Iterator[Any]:
    """Happybase's scan of one-message rows."""
    return iter(connection.table(table).scan(batch_size=a_call))

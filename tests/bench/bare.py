"""The limits and the rivals: the same work without the library."""

from __future__ import annotations

import collections
import dataclasses
import secrets
import time
from collections.abc import Iterator, Sequence
from typing import Any

import happybase

from hqueue import Message, Settings
from hqueue.format import rowkey
from hqueue.format.cells import encode_bodies
from hqueue.format.header import encode_header
from hqueue.hbase.native.cells import put_cells
from hqueue.hbase.native.exchanges import Request
from hqueue.hbase.native.protocol import pb
from hqueue.hbase.native.regions import Meta, RegionMap
from hqueue.hbase.native.requests import has_value, mutate, put_of
from hqueue.hbase.native.servers import Servers
from hqueue.hbase.native.zookeeper_registry import ZooKeeperRegistry
from hqueue.hbase.schema import BATCH, LOG, MESSAGE
from hqueue.zookeeper import ZooKeeperNodes

__all__ = ["BarePuts", "one_message_rows", "scan_rows"]

LASTS_MS_MAX = 3_600_000


class BarePuts:
    """A loop that sends conditional puts that were built before: the limit of any append.

    Rows, columns and bytes are those that `Queue.put` would send for the same messages, and they
    go the same way: natively, to the server that has the partition.
    """

    def __init__(self, settings: Settings, table: str, partition: int) -> None:
        settings = dataclasses.replace(settings, request_timeout_ms=LASTS_MS_MAX)
        self._servers = Servers(settings)
        registry = ZooKeeperRegistry(
            ZooKeeperNodes(settings).read.asked, settings.hbase_znode_parent
        )
        regions = self._servers.carry_out(RegionMap(Meta(registry), table, 15_000).regions())
        self._region = regions.of(rowkey.encode(partition, 0))
        self._table = table
        self._partition = partition
        self._slot = 0
        self._built: collections.deque[Request] = collections.deque()

    def build(self, messages: Sequence[Message], puts: int) -> None:
        """Make puts ready to be sent."""
        bodies = encode_bodies(messages)
        for _ in range(puts):
            base = max(self._slot, time.time_ns() // 1_000_000 << 15)
            key = rowkey.encode(self._partition, self._slot)
            header = encode_header(
                key, bodies, base=base, ordinal=0, nonce=secrets.token_bytes(8), published_ms=0
            )
            values = [(LOG, BATCH, header), *((MESSAGE, t, c) for t, c in bodies.cells.items())]
            cells, size, count = put_cells(key, values)
            absent = has_value(key, (LOG, BATCH), None)
            self._built.append(mutate(self._region, put_of(key, count), absent, cells, size))
            self._slot = base + bodies.count

    def send(self) -> None:
        """Send the next one."""
        answer = self._servers.ask(self._built.popleft(), self._table)
        assert pb.MutateResponse.FromString(answer.message).processed


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

"""A gateway pair whose answers are true, until it is told to spoil one."""

from __future__ import annotations

import dataclasses
import socket
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from thriftpy2.thrift import TProcessor, TType

from hqueue.hbase.schema import HEADER_COLUMN, MESSAGE
from tests.support.memory.cluster import MemoryCluster
from tests.support.memory.gateway import GatewayPair

from .rows import Stored

__all__ = ["QUEUE", "FakeGateway", "Spoil", "holes"]

QUEUE = b"q"
PARTITIONS = 2
DRIP_S = 0.02
REQUESTS_MAX = 400
"""After so many requests it says no more: a command that follows a queue would go on for ever."""


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


class FakeGateway(GatewayPair):
    """Both services before a table of the tests' own. Close it at the end."""

    def __init__(self, transport_name: str, protocol_name: str) -> None:
        self._lock = threading.Lock()
        super().__init__(MemoryCluster(), transport_name, protocol_name)
        self.begin({}, {})

    def begin(self, rows: Mapping[bytes, Stored], spoils: Mapping[int, Spoil]) -> None:
        """Hold these rows from now on, and spoil the answers with these numbers."""
        cluster = MemoryCluster()
        cluster.create(QUEUE.decode(), PARTITIONS, 86_400, {"compression": "GZ"}, "id")
        for row in rows.values():
            bodies = {MESSAGE + b":" + topic: cell for topic, cell in row.cells.items()}
            cluster.put(QUEUE.decode(), row.key, {HEADER_COLUMN: row.header, **bodies})
        with self._lock:
            self.cluster = cluster
            self._spoils = spoils
            self._answered = 0
        self.break_connections()

    def _answer(
        self,
        connection: socket.socket,
        processor: TProcessor,
        call: Callable[[], Any],
        result: Any,
        request: tuple[str, int],
    ) -> None:
        spoil = self._next_spoil()
        self._execute(processor, call, result)
        if spoil.hole is not None:
            places = holes(result)
            if places:
                fill = places[spoil.hole % len(places)]
                fill(spoil.hole)
        self._send(connection, self._encoded(processor, result, request), spoil)

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
            raise ConnectionError("the connection is closed")
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

"""What the log asks a store for, as values: its decisions yield them, and are sent the answers.

Each is one request of the ports of `hqueue.log.ports`, and makes one try; its fields are the
arguments of the port's method, where the answers are described. `Pause` comes between two tries. A
driver carries them out: `drive` in the caller's thread, or `drive_in_loop`.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from hqueue.log.ports import AppendPort, HeaderPort, Row
from hqueue.runtime.steps import Pause

__all__ = [
    "Backwards",
    "DeleteHeaders",
    "DeleteRow",
    "HeaderAt",
    "Headers",
    "Newest",
    "PutIfAbsent",
    "Work",
    "ask",
]

Result = TypeVar("Result")


class Newest(NamedTuple):
    """`HeaderPort.newest`."""

    partition: int
    at_or_below: int

    def do(self, port: HeaderPort) -> Row | None:
        return port.newest(*self)


class Headers(NamedTuple):
    """`HeaderPort.headers`."""

    partition: int
    start: int
    limit: int

    def do(self, port: HeaderPort) -> list[Row]:
        return port.headers(*self)


class Backwards(NamedTuple):
    """`AppendPort.backwards`."""

    partition: int
    at_or_below: int
    limit: int

    def do(self, port: AppendPort) -> list[Row]:
        return port.backwards(*self)


class HeaderAt(NamedTuple):
    """`AppendPort.header`."""

    partition: int
    slot: int

    def do(self, port: AppendPort) -> bytes | None:
        return port.header(*self)


class PutIfAbsent:
    """`AppendPort.put_if_absent`. No named tuple, which would take longer to make: each put has
    one.
    """

    __slots__ = ("cells", "header", "partition", "slot")

    def __init__(
        self, partition: int, slot: int, header: bytes, cells: Mapping[bytes, bytes]
    ) -> None:
        self.partition = partition
        self.slot = slot
        self.header = header
        self.cells = cells

    def do(self, port: AppendPort) -> bool:
        return port.put_if_absent(self.partition, self.slot, self.header, self.cells)


class DeleteHeaders(NamedTuple):
    """`AppendPort.delete_headers`."""

    partition: int
    slots: Sequence[int]
    until_ms: int

    def do(self, port: Any) -> object:
        answer: object = port.delete_headers(*self)
        return answer


class DeleteRow(NamedTuple):
    """`AppendPort.delete_row`."""

    partition: int
    slot: int
    topics: Mapping[bytes, bytes]

    def do(self, port: Any) -> object:
        answer: object = port.delete_row(*self)
        return answer


Step = Newest | Headers | Backwards | HeaderAt | PutIfAbsent | DeleteHeaders | DeleteRow | Pause
Work = Generator[Step, Any, Result]
"""Yields steps, and returns a result."""


def ask(step: Step) -> Work[Any]:
    """Work of one step; its result is the answer."""
    return (yield step)

"""The log's requests to a store, as values: its decisions yield them, and receive the answers.

Each is one request of the ports of `hqueue.log.ports`, and makes one try; its fields are the
arguments of the port's method, where the answers are described. `Pause` comes between two tries. A
driver carries them out: `drive` in the caller's thread, or `drive_in_loop`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from hqueue.log.ports import AppendPort, HeaderPort, ReadPort, RecordPort, Row, RowStream
from hqueue.runtime.clock import Deadline
from hqueue.runtime.steps import Give, Pause, Wait, reading

__all__ = [
    "Backwards",
    "Close",
    "DeleteHeaders",
    "DeleteRow",
    "Get",
    "HeaderAt",
    "Headers",
    "MeasureClock",
    "Newest",
    "Open",
    "PutIfAbsent",
    "Read",
    "ReadRecord",
    "ReplaceRecord",
    "Work",
    "ask",
    "operation",
    "request",
]

Result = TypeVar("Result")


@reading
class Newest(NamedTuple):
    """`HeaderPort.newest`."""

    partition: int
    at_or_below: int

    def do(self, port: HeaderPort) -> Row | None:
        return port.newest(*self)


@reading
class Headers(NamedTuple):
    """`HeaderPort.headers`."""

    partition: int
    start: int
    limit: int

    def do(self, port: HeaderPort) -> list[Row]:
        return port.headers(*self)


@reading
class Get(NamedTuple):
    """`ReadPort.get`."""

    slots: Sequence[tuple[int, int]]
    topics: Iterable[str] | None

    def do(self, port: ReadPort) -> list[Row]:
        return port.get(*self)


@reading
class Open(NamedTuple):
    """`ReadPort.open`."""

    partition: int
    start: int
    stop: int
    topics: Iterable[str] | None

    def do(self, port: ReadPort) -> RowStream:
        return port.open(*self)


@reading
class Read(NamedTuple):
    """`RowStream.read`."""

    stream: RowStream
    rows: int

    def do(self, _: object) -> list[Row]:
        return self.stream.read(self.rows)


class Close(NamedTuple):
    """`RowStream.close`."""

    stream: Any

    def do(self, _: object) -> object:
        answer: object = self.stream.close()
        return answer


@reading
class Backwards(NamedTuple):
    """`AppendPort.backwards`."""

    partition: int
    at_or_below: int
    limit: int

    def do(self, port: AppendPort) -> list[Row]:
        return port.backwards(*self)


@reading
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


# The probe that it writes is not a batch, nor part of one.
@reading
class MeasureClock(NamedTuple):
    """`AppendPort.clock_offset_ms`."""

    def do(self, port: AppendPort) -> tuple[float, float]:
        return port.clock_offset_ms()


@reading
class ReadRecord(NamedTuple):
    """`RecordPort.record`."""

    name: str

    def do(self, port: RecordPort) -> bytes | None:
        return port.record(self.name)


class ReplaceRecord(NamedTuple):
    """`RecordPort.replace_record`."""

    name: str
    old: bytes | None
    new: bytes

    def do(self, port: RecordPort) -> bool:
        return port.replace_record(*self)


Step = (
    Newest
    | Headers
    | Get
    | Open
    | Read
    | Close
    | Backwards
    | HeaderAt
    | PutIfAbsent
    | DeleteHeaders
    | DeleteRow
    | MeasureClock
    | ReadRecord
    | ReplaceRecord
    | Pause
    | Give
    | Wait
)
Work = Generator[Step, Any, Result]
"""Yields steps, and returns a result."""


def ask(step: Step) -> Work[Any]:
    """Work of one step; its result is the answer."""
    return (yield step)


def operation(
    deadline: Callable[[], Deadline], decide: Callable[[Deadline], Work[Result]]
) -> Work[Result]:
    """Work with a deadline of its own, which it is given."""
    bound = deadline()
    return bound.bound(decide(bound))


def request(step: Step, deadline: Deadline) -> Work[Any]:
    """Work of one step as an operation of its own, which is repeated until its deadline."""
    return deadline.bound(deadline.insist(lambda: ask(step)))

"""The face that every library has here, so that each does the same work."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple, Protocol, TypeVar

__all__ = ["A_BATCH", "Keyed", "Library", "Log", "batches"]

A_BATCH = 10_000
"""Messages that are handed over at once, where many are."""

A_BATCH_BYTES = 2_000_000
"""But not more bytes than these."""


class Keyed(NamedTuple):
    """A batch of messages: their values, keys and headers."""

    values: Sequence[bytes]
    keys: Sequence[bytes]
    headers: Sequence[tuple[tuple[str, bytes], ...]]


class Log(Protocol):
    """A queue or a topic, fresh, with the clients that write and read it."""

    def put_batches(self, values: Sequence[bytes], a_batch: int = A_BATCH) -> int:
        """Write them, as batches where the library has any; all are acknowledged on return."""

    def put_each(self, values: Sequence[bytes]) -> int:
        """Write them one by one through a buffer; all are acknowledged on return."""

    def put_one(self, value: bytes) -> None:
        """Write one message and wait for its acknowledgement."""

    def read(self, count: int) -> int:
        """Read so many messages from the oldest on, each as the library's own object."""

    def read_last(self) -> None:
        """Read the message that `put_one` wrote last."""

    def deliver(self, handle: Callable[[Iterable[bytes]], object]) -> Delivering:
        """Hand over all that is published meanwhile, by push or in a poll loop."""

    def close(self) -> None:
        """Close the clients, and delete the queue or topic."""


class Delivering(Protocol):
    """While a log delivers: how to publish one message at once. A context manager."""

    def __enter__(self) -> Callable[[bytes], object]: ...

    def __exit__(self, *exc: object) -> None: ...


class Library(Protocol):
    """A way from Python to a log."""

    name: str
    share: float
    """How much of a round's work it gets: less than 1 for one that is many times slower."""

    def fresh(self, partitions: int = 4, *, on_disk: bool = False) -> Log:
        """A log without messages.

        Args:
            partitions: how many.
            on_disk: with the strongest durability of its server instead of the default.
        """


Item = TypeVar("Item")


def batches(values: Sequence[bytes], a_batch: int) -> Iterator[list[bytes]]:
    """Cut values of one size into what is handed over at once."""
    a_batch = max(1, min(a_batch, A_BATCH_BYTES // len(values[0])))
    rest = iter(values)
    while batch := list(islice(rest, a_batch)):
        yield batch

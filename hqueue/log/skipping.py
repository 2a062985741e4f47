"""Skipping what can't be read, where an operator chose that readers do."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from hqueue.errors import CorruptLogError
from hqueue.format.compression import plain_cell
from hqueue.format.header import Header, TopicEntry
from hqueue.log.ports import Row
from hqueue.log.steps import Work

__all__ = [
    "NO_DECISIONS",
    "HeldUpError",
    "SkipDecisions",
    "Skips",
    "UnreadableError",
    "missing",
    "readable",
]


class SkipDecisions(Protocol):
    """What operators decided of a queue's batches."""

    def is_skipped(self, row: bytes, header: Header) -> Work[bool]:
        """Whether readers skip the batch in this row, where they can't read it. One try.

        Args:
            row: the row's key.
            header: its header, which can be read.
        """

    def decide(self, row: bytes, header: Header) -> bool:
        """Like `is_skipped`, for callers without a driver: in the caller's thread, in as many tries
        as an operation's bound allows.

        Raises:
            StoreUnavailableError: it is not known.
        """

    def note(self, row: bytes, header: Header, entry: TopicEntry, error: CorruptLogError) -> None:
        """A reader skips the messages of a topic in that batch, because of this error."""


class _NoDecisions:
    """Nothing is skipped."""

    def is_skipped(self, row: bytes, header: Header) -> Work[bool]:
        return False
        yield

    def decide(self, row: bytes, header: Header) -> bool:
        return False

    def note(self, row: bytes, header: Header, entry: TopicEntry, error: CorruptLogError) -> None:
        """Never called."""


NO_DECISIONS: SkipDecisions = _NoDecisions()


class Skips:
    """The batches that one reader skips. Made by a `PartitionReader`.

    It reads the operator's decisions only at a batch that can't be read. So readable batches cost
    nothing, and decisions take effect at once.

    It skips only cells that can't be read; a cell has a topic's messages in a batch. So a reader
    returns the same messages of a topic, whatever other topics it reads.

    Args:
        decisions: the operator's decisions for the queue.
    """

    __slots__ = ("_decisions", "_messages")

    def __init__(self, decisions: SkipDecisions = NO_DECISIONS) -> None:
        self._decisions = decisions
        self._messages: dict[tuple[bytes, str], int] = {}

    @property
    def messages(self) -> int:
        """How many messages were skipped, in cells that could not be read."""
        return sum(self._messages.values())

    def skip(self, row: bytes, header: Header, entry: TopicEntry, error: CorruptLogError) -> None:
        """Skip a topic's messages in a batch, which can't be read, if the operator chose so.

        Raises:
            CorruptLogError: the given error, if the messages are not skipped.
            StoreUnavailableError: the decisions can't be read now.
        """
        self._judge(row, header, entry, error, self._decisions.decide(row, header))

    def skip_in_steps(
        self, row: bytes, header: Header, entry: TopicEntry, error: CorruptLogError
    ) -> Work[None]:
        """Like `skip`, in steps and in one try."""
        is_skipped = yield from self._decisions.is_skipped(row, header)
        self._judge(row, header, entry, error, is_skipped)

    def _judge(
        self,
        row: bytes,
        header: Header,
        entry: TopicEntry,
        error: CorruptLogError,
        is_skipped: bool,
    ) -> None:
        if not is_skipped:
            raise error
        self._messages[row, entry.topic] = entry.count
        self._decisions.note(row, header, entry, error)


class HeldUpError(Exception):
    """A row can't be taken in before something was asked for."""


class UnreadableError(HeldUpError):
    """A topic's messages in a batch can't be read."""

    def __init__(self, header: Header, entry: TopicEntry, error: CorruptLogError) -> None:
        super().__init__()
        self.header = header
        self.entry = entry
        self.error = error


def readable(
    row: Row, header: Header, wanted: Iterable[TopicEntry], *, strange: bool
) -> tuple[tuple[TopicEntry, bytes], ...]:
    """The cells of these topics, decompressed, and compared with what the header says of them.

    Args:
        row: the row, read with the wanted topics.
        header: its header.
        wanted: what the header says of these topics.
        strange: whether the row has other cells, too.

    Raises:
        UnreadableError: one can't be read.
    """
    cells = []
    for entry in wanted:
        try:
            if strange or entry.topic not in row.cells:
                raise missing(row)
            cells.append((entry, plain_cell(row.key, header, entry, row.cells[entry.topic])))
        except CorruptLogError as exc:
            raise UnreadableError(header, entry, exc) from exc
    return tuple(cells)


def missing(row: Row) -> CorruptLogError:
    """The error of a row that does not have the cells that its header speaks of."""
    return CorruptLogError(
        "the topics of a row differ from those in its header",
        row=row.key.hex(),
        topics=sorted(row.cells),
    )

"""Passing by what can't be read, where an operator decided that readers do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from hqueue.errors import CorruptLogError
from hqueue.format import Header, TopicEntry, plain_cell
from hqueue.log.ports import Row

__all__ = ["NO_DECISIONS", "SkipDecisions", "Skips", "missing"]


class SkipDecisions(Protocol):
    """What operators decided of a queue's batches."""

    def is_skipped(self, row: bytes, header: Header, *, one_try: bool) -> bool:
        """Whether readers pass by the batch in this row, where they can't read it.

        Args:
            row: the row's key.
            header: its header, which can be read.
            one_try: whether the caller tries again; else this takes an operation's bound.

        Raises:
            StoreUnavailableError: it is not known.
        """

    def note(self, row: bytes, header: Header, entry: TopicEntry, error: CorruptLogError) -> None:
        """A reader passes by the messages of a topic in that batch, because of this error."""


class _NoDecisions:
    """Nothing is passed by."""

    def is_skipped(self, row: bytes, header: Header, *, one_try: bool) -> bool:
        return False

    def note(self, row: bytes, header: Header, entry: TopicEntry, error: CorruptLogError) -> None:
        """Never called."""


NO_DECISIONS: SkipDecisions = _NoDecisions()


class Skips:
    """What one reader passes by. Made by a `PartitionReader`.

    It asks for decisions only where it can't read something: so they cost nothing elsewhere, and
    count from the moment on at which they are made.

    Only the cells are passed by that can't be read, a cell being a topic's messages in a batch. So
    whatever topics a reader wants, it gives the same messages of each.

    Args:
        decisions: those of the queue.
    """

    __slots__ = ("_decisions", "_messages")

    def __init__(self, decisions: SkipDecisions = NO_DECISIONS) -> None:
        self._decisions = decisions
        self._messages: dict[tuple[bytes, str], int] = {}

    @property
    def messages(self) -> int:
        """How many messages were passed by: those of the cells that could not be read."""
        return sum(self._messages.values())

    def readable(
        self, row: Row, header: Header, wanted: Sequence[TopicEntry], *, strange: bool
    ) -> tuple[tuple[TopicEntry, bytes], ...]:
        """The cells of these topics, decompressed, and compared with what the header says of them.
        One try.

        Args:
            row: the row, read with the wanted topics.
            header: its header.
            wanted: what the header says of these topics.
            strange: whether the row has other cells, too.

        Raises:
            CorruptLogError, StoreUnavailableError: as `pass_by`.
        """
        cells = []
        for entry in wanted:
            try:
                if strange or entry.topic not in row.cells:
                    raise missing(row)
                cells.append((entry, plain_cell(row.key, header, entry, row.cells[entry.topic])))
            except CorruptLogError as exc:
                self.pass_by(row.key, header, entry, exc, one_try=True)
        return tuple(cells)

    def pass_by(
        self,
        row: bytes,
        header: Header,
        entry: TopicEntry,
        error: CorruptLogError,
        *,
        one_try: bool = False,
    ) -> None:
        """Return if a topic's messages in a batch, which can't be read, are to be passed by.

        Raises:
            CorruptLogError: they are not: the same error.
            StoreUnavailableError: it is not known.
        """
        if not self._decisions.is_skipped(row, header, one_try=one_try):
            raise error
        self._messages[row, entry.topic] = entry.count
        self._decisions.note(row, header, entry, error)


def missing(row: Row) -> CorruptLogError:
    """The error of a row that does not have the cells that its header speaks of."""
    return CorruptLogError(
        "a row has other topics than its header says", row=row.key.hex(), topics=sorted(row.cells)
    )

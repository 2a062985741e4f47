"""What records of fields need of the table that has their rows."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from hqueue.errors import HQueueError
from hqueue.hbase.record_cells import Cells
from hqueue.runtime.steps import Work
from hqueue.runtime.stepwise import stepwise

__all__ = ["Answer", "RowPort", "RowUpdate"]


class RowUpdate(NamedTuple):
    """What becomes of a row, if its version cell is this one. Atomic."""

    key: bytes
    version: bytes | None
    """None: if it has none."""
    cells: Cells | None
    """What is written; None: the row is deleted."""


class Answer(enum.Enum):
    """What the store says of a row's update."""

    MADE = enum.auto()
    REFUSED = enum.auto()
    """The row has another version."""
    REFUSED_LATE = enum.auto()
    """The row has another version, maybe by a first try of this same update: what stands between
    may have repeated it by itself."""


class RowPort(Protocol):
    """The rows of records' table. Thread-safe. Each method makes one try, and raises as those of
    `hqueue.log.ports` do.
    """

    @stepwise
    def prepare(self) -> Work[Any, None]:
        """Create the table if it is not there. Asks when it is first called, and not again."""

    @stepwise
    def exists(self) -> Work[Any, bool]:
        """Whether the table is there."""

    @stepwise
    def read(
        self, keys: Sequence[bytes], *, history: bool = False
    ) -> Work[Any, list[tuple[bytes, Cells]]]:
        """Those of these rows that exist, each as it is at one moment; also its last versions, if
        these are asked for.
        """

    @stepwise
    def scan(self, first: bytes, beyond: bytes, limit: int) -> Work[Any, list[tuple[bytes, Cells]]]:
        """The first rows of ``[first, beyond)``, this many; fewer if there are no more."""

    @stepwise
    def update(self, updates: Sequence[RowUpdate]) -> Work[Any, list[Answer | HQueueError]]:
        """Update rows, each named once and each on its own: for each, in their order, an answer, or
        an error of its own with an outcome of its own. In whatever order they are made.

        Raises:
            ClosedError: the store was closed before. None was made.
        """

    @stepwise
    def delete(self, keys: Sequence[bytes]) -> Work[Any, None]:
        """Delete these rows, whatever their versions. What isn't there counts as done."""

    def close(self) -> None:
        """Let go of what the table alone needs. Never raises."""

"""One change of a record's row, and the question what became of it."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Protocol

from hqueue.errors import HQueueError, Outcome, StoreUnavailableError
from hqueue.hbase.record_cells import VERSION, Cells, Mark, history_column
from hqueue.runtime.clock import Clock, Deadline

__all__ = ["RowChange", "RowPort"]

REPEAT_MS = 100
"""A gateway's client waits for longer before it repeats a request: ``hbase.client.pause``, unless
that is set lower. An answer that comes sooner is that of the first try."""


class RowPort(Protocol):
    """The rows of records' table. Thread-safe. Each method makes one try, and raises as those of
    `hqueue.log.ports` do.
    """

    def prepare(self) -> None:
        """Create the table if it is not there. Asks when it is first called, and not again."""

    def exists(self) -> bool:
        """Whether the table is there."""

    def read(self, keys: Sequence[bytes], *, history: bool = False) -> list[tuple[bytes, Cells]]:
        """Those of these rows that exist, each as it is at one moment; also its last versions, if
        these are asked for.
        """

    def scan(self, first: bytes, beyond: bytes, limit: int) -> list[tuple[bytes, Cells]]:
        """The first so many rows of ``[first, beyond)``; fewer if there are no more."""

    def check_and_put(self, key: bytes, version: bytes | None, cells: Cells) -> bool:
        """Write these cells if the row's version cell is this one; None: if it has none. Atomic.

        False also where a try of this call was repeated below.
        """

    def check_and_delete(self, key: bytes, version: bytes) -> bool:
        """Delete the row if its version cell is this one. Atomic."""

    def delete(self, keys: Sequence[bytes]) -> None:
        """Delete these rows, whatever their versions. What isn't there counts as done."""


class _Fate(enum.Enum):
    """What became of a change."""

    MADE = enum.auto()
    REFUSED = enum.auto()
    STILL_TO_COME = enum.auto()
    """The row is as it was."""
    UNKNOWABLE = enum.auto()


class RowChange:
    """A change of a row from one version to another, which is its own: made once, or not at all.

    A request whose answer is lost is looked up, and sent again while the row is as it was. It can't
    be made twice, for the version that it needs never comes again. An answer that says no is looked
    up as well: gateways repeat requests, and may refuse what they did themselves.

    Args:
        rows: the table.
        clock: how long an answer took.
        key: the row.
        old: the version cell that it needs; None for none.
        new: the version that it makes.
        cells: what is written, `new` too.
    """

    def __init__(
        self,
        rows: RowPort,
        clock: Clock,
        key: bytes,
        *,
        old: bytes | None,
        new: Mark,
        cells: Cells,
    ) -> None:
        self._rows = rows
        self._clock = clock
        self._key = key
        self._old = old
        self._new = new
        self._cells = cells
        self._in_doubt = False
        """Whether a request may have been done of which there is no answer."""

    def make(self, deadline: Deadline) -> bool:
        """Whether it was made; False where the row had another version.

        Raises:
            StoreUnavailableError: there was no answer in time, or too many others have changed the
                record since. The outcome is unknown if a request may have been done.
        """
        try:
            fate = deadline.run(self._try)
        except HQueueError as exc:
            exc.outcome = Outcome.UNKNOWN if self._in_doubt else Outcome.NOT_APPLIED
            raise
        if fate is _Fate.UNKNOWABLE:
            raise StoreUnavailableError(
                "an answer was lost, and others have changed the record too often since",
                outcome=Outcome.UNKNOWN,
                path=self._key.decode(errors="backslashreplace"),
            )
        return fate is _Fate.MADE

    def _try(self) -> _Fate:
        self._rows.prepare()
        if self._in_doubt:
            fate = self._look_up()
            if fate is not _Fate.STILL_TO_COME:
                return fate
        began_ms = self._clock.monotonic_ms()
        try:
            if self._rows.check_and_put(self._key, self._old, self._cells):
                return _Fate.MADE
        except HQueueError as exc:
            self._in_doubt |= exc.outcome is Outcome.UNKNOWN
            raise
        self._in_doubt |= self._clock.monotonic_ms() - began_ms >= REPEAT_MS
        fate = self._look_up()
        if fate is _Fate.STILL_TO_COME:
            raise StoreUnavailableError("a server answers from an older log")
        if fate is _Fate.UNKNOWABLE and not self._in_doubt:
            return _Fate.REFUSED
        return fate

    def _look_up(self) -> _Fate:
        found = self._rows.read([self._key], history=True)
        cells = found[0][1] if found else {}
        then = cells.get(history_column(self._new))
        if self._new.cell in (cells.get(VERSION), then):
            return _Fate.MADE
        if cells.get(VERSION) == self._old:
            return _Fate.STILL_TO_COME
        if _are_rivals(then, self._new.cell) or _are_rivals(cells.get(VERSION), self._old):
            return _Fate.REFUSED
        return _Fate.UNKNOWABLE


def _are_rivals(one: bytes | None, other: bytes | None) -> bool:
    """Whether these version cells are different ones of the same counter: a row has had at most
    one of them.
    """
    a, b = Mark.decode(one or b""), Mark.decode(other or b"")
    return a is not None and b is not None and a.counter == b.counter and a.nonce != b.nonce

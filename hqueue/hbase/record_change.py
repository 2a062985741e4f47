"""One change of a record's row, and the question what became of it."""

from __future__ import annotations

import enum

from hqueue.errors import HQueueError, Outcome, StoreUnavailableError
from hqueue.hbase.record_cells import VERSION, Cells, Mark, history_column
from hqueue.hbase.record_rows import Answer, RowUpdate
from hqueue.hbase.record_steps import Look, Work
from hqueue.runtime.clock import Deadline

__all__ = ["RowChange"]


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
        key: the row.
        old: the version cell that it needs; None for none.
        new: the version that it makes.
        cells: what is written, `new` too.
    """

    def __init__(self, key: bytes, *, old: bytes | None, new: Mark, cells: Cells) -> None:
        self._key = key
        self._old = old
        self._new = new
        self._cells = cells
        self._in_doubt = False
        """Whether a request without an answer may have been done."""

    def make(self, deadline: Deadline) -> Work[bool]:
        """Whether it was made; False where the row had another version.

        Raises:
            StoreUnavailableError: there was no answer in time, or too many others have changed the
                record since. The outcome is unknown if a request may have been done.
        """
        try:
            fate = yield from deadline.insist(self._try)
        except HQueueError as exc:
            exc.outcome = Outcome.UNKNOWN if self._in_doubt else Outcome.NOT_APPLIED
            raise
        if fate is _Fate.UNKNOWABLE:
            raise StoreUnavailableError(
                "an answer was lost, and other programs have changed the record too often since "
                "to find out its outcome: read the record again",
                outcome=Outcome.UNKNOWN,
                path=self._key.decode(errors="backslashreplace"),
            )
        return fate is _Fate.MADE

    def _try(self) -> Work[_Fate]:
        if self._in_doubt:
            fate = yield from self._look_up()
            if fate is not _Fate.STILL_TO_COME:
                return fate
        try:
            answer = yield RowUpdate(self._key, self._old, self._cells)
        except HQueueError as exc:
            self._in_doubt |= exc.outcome is Outcome.UNKNOWN
            raise
        if answer is Answer.MADE:
            return _Fate.MADE
        self._in_doubt |= answer is Answer.REFUSED_LATE
        fate = yield from self._look_up()
        if fate is _Fate.STILL_TO_COME:
            raise StoreUnavailableError(
                "a server answered with an older state of the record", outcome=Outcome.NOT_APPLIED
            )
        if fate is _Fate.UNKNOWABLE and not self._in_doubt:
            return _Fate.REFUSED
        return fate

    def _look_up(self) -> Work[_Fate]:
        cells: Cells = yield Look(self._key, history=True)
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

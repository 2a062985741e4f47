"""Records of fields as rows of one table, changed by compare-and-set."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from hqueue.errors import ClosedError, HQueueError, Outcome, StoreUnavailableError
from hqueue.hbase.record_cells import (
    VERSION,
    Cells,
    Mark,
    check_fields,
    check_version,
    decode,
    encode,
    row_key,
    version_of,
)
from hqueue.hbase.record_change import RowChange
from hqueue.hbase.record_rows import RowPort, RowUpdate
from hqueue.hbase.record_steps import (
    TOGETHER_MAX,
    Look,
    PrepareRows,
    ReadRows,
    Work,
    work_together,
)
from hqueue.metadata.fields import FieldChange, Fields, Found
from hqueue.metadata.outcomes import answers_of, is_made, partly_done
from hqueue.metadata.ports import ANY, NEW, Version
from hqueue.runtime.backoff import Backoff
from hqueue.runtime.clock import SYSTEM_CLOCK, Clock, Deadline
from hqueue.runtime.only_reads import OnlyReads
from hqueue.runtime.steps import Give, Pause, Request
from hqueue.runtime.steps import Work as AnyWork
from hqueue.runtime.stepwise import InLoop, OnPorts, paged, stepwise

__all__ = ["RowRecords"]

PAGE_ROWS = 256
PAGE_BYTES = 4 * 1024 * 1024
"""What a page of a scan should weigh, by the largest record of the page before."""

TRIES_MAX = 100
"""How often a record may be changed by others while it is changed whatever its version."""

HIDDEN = Backoff(2.0, 100.0)
"""The pauses until a row is tried again that delete markers hide."""

Input = TypeVar("Input")
Result = TypeVar("Result")


class _Exists(NamedTuple):
    """`RowPort.exists`."""

    def do(self, rows: RowPort) -> object:
        return rows.exists()


class _Scan(NamedTuple):
    """`RowPort.scan`."""

    first: bytes
    beyond: bytes
    limit: int

    def do(self, rows: RowPort) -> object:
        return rows.scan(*self)


class _Delete(NamedTuple):
    """`RowPort.delete`."""

    keys: Sequence[bytes]

    def do(self, rows: RowPort) -> object:
        return rows.delete(*self)


class RowRecords(OnPorts):
    """`FieldRecords` on a table of rows. Thread-safe, and usable in a forked child.

    What is read of a server that lost a region and has not noticed may be older than the call: it
    is for compare-and-set to refuse what is built on it.

    Args:
        rows: the table.
        clock: where time comes from.
        bound_ms: the bound on each call with all its tries; of a scan, on each page.
        page_rows: the most rows that a scan reads at a time.
    """

    def __init__(
        self,
        rows: RowPort,
        clock: Clock = SYSTEM_CLOCK,
        bound_ms: float = 60_000,
        page_rows: int = PAGE_ROWS,
    ) -> None:
        super().__init__(rows, InLoop(rows), clock)
        self._rows = rows
        self._bound_ms = bound_ms
        self._page_rows = page_rows
        self._closed = False

    def close(self) -> None:
        """Take no more: later calls raise `ClosedError`. Never raises."""
        self._closed = True
        self._rows.close()

    @stepwise
    def is_partial(self) -> AnyWork[Any, bool]:
        """Like `FieldRecords.is_partial`."""
        yield from ()
        return True

    @stepwise
    def check_version(self, version: Version) -> AnyWork[Any, None]:
        """Like `FieldRecords.check_version`."""
        yield from ()
        _check_version(version)

    @stepwise
    def read(self, keys: Iterable[str]) -> AnyWork[Any, dict[str, Found]]:
        """Like `FieldRecords.read`."""
        rows = {row_key(key): key for key in keys}
        wanted = list(rows)
        deadline = self._deadline()
        found: dict[str, Found] = {}
        for first in range(0, len(wanted), TOGETHER_MAX):
            batch = wanted[first : first + TOGETHER_MAX]
            with OnlyReads():
                there = yield from self._insisted(PrepareRows(), ReadRows(batch), deadline=deadline)
            for row, cells in there:
                record = decode(cells, rows[row])
                if record is not None:
                    found[rows[row]] = record
        return found

    @paged
    def scan(self, prefix: str, depth: int) -> AnyWork[Any, None]:
        """Like `FieldRecords.scan`. Each page is a request of its own, from the last row on: so it
        is nothing to a scan whether a region moves.
        """
        segments = prefix.count("/") + depth
        first, beyond = _below(prefix)
        limit = self._page_rows
        while True:
            page = yield from self._page(first, beyond, limit)
            found = ((row.decode(errors="backslashreplace"), cells) for row, cells in page)
            records = (
                (key, decode(cells, key)) for key, cells in found if key.count("/") == segments
            )
            yield Give([(key, record) for key, record in records if record is not None])
            if len(page) < limit:
                return
            first = page[-1][0] + b"\0"
            largest = max(sum(map(len, cells.values())) for _, cells in page)
            limit = max(1, min(self._page_rows, 2 * limit, PAGE_BYTES // max(1, largest)))

    @stepwise
    def write(self, changes: Mapping[str, FieldChange]) -> AnyWork[Any, dict[str, Version | None]]:
        """Like `FieldRecords.write`."""
        for key, change in changes.items():
            row_key(key)
            check_fields(change.fields)
            _check_version(change.version)
        deadline = self._deadline()

        def write(key: str, change: FieldChange) -> Work[Version | None]:
            row = row_key(key)
            if change.version == NEW:
                return self._create(row, change.fields, deadline)
            if change.version == ANY:
                return self._overwrite(row, change, deadline)
            old = version_of(change.version)
            return self._make(row, old.cell, old.next(), change, deadline)

        return (yield from self._change(changes, write, deadline))

    @stepwise
    def delete(self, versions: Mapping[str, Version]) -> AnyWork[Any, dict[str, bool]]:
        """Like `FieldRecords.delete`."""
        for key, version in versions.items():
            row_key(key)
            _check_version(version)
        deadline = self._deadline()

        def delete(key: str, version: Version) -> Work[bool]:
            return self._delete(row_key(key), version, deadline)

        return (yield from self._change(versions, delete, deadline))

    @stepwise
    def clear(self, prefix: str) -> AnyWork[Any, None]:
        """Like `ClearableRecords.clear`: whole rows, without tombstones, a page at a time. Even so,
        no version is used twice. Creates no table.
        """
        first, beyond = _below(prefix)
        outcome = Outcome.NOT_APPLIED
        try:
            there = yield from self._insisted(_Exists())
            while there and (page := (yield from self._page(first, beyond, self._page_rows))):
                rows = [row for row, _ in page]
                outcome = Outcome.UNKNOWN
                yield from self._insisted(_Delete(rows))
                first = rows[-1] + b"\0"
        except HQueueError as exc:
            exc.outcome = outcome
            raise

    # One record.

    def _make(
        self, row: bytes, old: bytes | None, new: Mark, change: FieldChange, deadline: Deadline
    ) -> Work[Version | None]:
        cells = encode(new, change.fields, whole=change.whole)
        made = yield from RowChange(row, old=old, new=new, cells=cells).make(deadline)
        return new.version if made else None

    def _overwrite(
        self, row: bytes, change: FieldChange, deadline: Deadline
    ) -> Work[Version | None]:
        """Change what is there, whatever its version. What can't be read is replaced as a whole."""
        for _ in self._tries(row, deadline):
            cells = yield from self._look(row, deadline)
            old = cells.get(VERSION)
            mark = Mark.decode(old or b"")
            if not cells or (mark is not None and mark.gone) or not (mark or change.whole):
                return None
            new = mark.next() if mark else Mark.first(self._clock.wall_ms())._replace(gone=False)
            version = yield from self._make(row, old, new, change, deadline)
            if version is not None:
                return version
        raise AssertionError

    def _create(self, row: bytes, fields: Fields, deadline: Deadline) -> Work[Version | None]:
        """Put a version without a record where there is no row, then the record upon what is seen
        there: see `hqueue.hbase.record_cells`.
        """
        change = FieldChange(fields, NEW)
        vacant = Mark.first(self._clock.wall_ms())
        update = RowUpdate(row, None, encode(vacant, {}, whole=False))
        pauses = HIDDEN.pauses()
        while True:
            yield from self._harmless(update, deadline)
            there = yield from self._look(row, deadline)
            old = Mark.decode(there.get(VERSION, b""))
            if there and (old is None or not old.gone):
                return None
            if old is not None:
                version = yield from self._make(row, old.cell, old.next(), change, deadline)
                if version is not None:
                    return version
            if deadline.expired:
                raise StoreUnavailableError(
                    "an earlier deletion still hides the new record: try again",
                    outcome=Outcome.NOT_APPLIED,
                    path=row.decode(),
                )
            yield Pause(min(next(pauses), deadline.remaining_ms))

    def _delete(self, row: bytes, version: Version, deadline: Deadline) -> Work[bool]:
        if version == NEW:
            return False
        for _ in self._tries(row, deadline):
            if version == ANY:
                cells = yield from self._look(row, deadline)
                old = cells.get(VERSION)
                mark = Mark.decode(old or b"")
                if not cells or (mark is not None and mark.gone):
                    return False
            else:
                mark = version_of(version)
                old = mark.cell
            now_ms = self._clock.wall_ms()
            gone = mark.next(gone=True) if mark else Mark.first(now_ms)
            tombstone = encode(gone, {}, whole=False)
            burial = RowChange(row, old=old, new=gone, cells=tombstone)
            if (yield from burial.make(deadline)):
                # A tombstone that stays does no harm.
                with contextlib.suppress(HQueueError):
                    yield RowUpdate(row, gone.cell, None)
                return True
            if version != ANY:
                return False
        raise AssertionError

    def _tries(self, row: bytes, deadline: Deadline) -> Iterator[int]:
        for number in range(TRIES_MAX):
            if number and deadline.expired:
                break
            yield number
        raise StoreUnavailableError(
            "other programs keep changing the record: try again",
            outcome=Outcome.NOT_APPLIED,
            path=row.decode(),
        )

    def _look(self, row: bytes, deadline: Deadline) -> Work[Cells]:
        cells: Cells = yield from self._harmless(Look(row), deadline)
        return cells

    def _harmless(self, step: Look | RowUpdate, deadline: Deadline) -> Work[Any]:
        """Ask for what changes no record until it is answered."""

        def attempt() -> Work[Any]:
            return (yield step)

        with OnlyReads():
            return (yield from deadline.insist(attempt))

    def _page(
        self, first: bytes, beyond: bytes, limit: int
    ) -> AnyWork[Any, list[tuple[bytes, Cells]]]:
        page: list[tuple[bytes, Cells]]
        with OnlyReads():
            page = yield from self._insisted(PrepareRows(), _Scan(first, beyond, limit))
        return page

    # Requests.

    def _deadline(self) -> Deadline:
        if self._closed:
            raise ClosedError("the client is closed")
        return Deadline(self._clock, self._bound_ms)

    def _insisted(self, *requests: Request, deadline: Deadline | None = None) -> AnyWork[Any, Any]:
        """Make requests, one after the other, until the last one is answered: its answer."""
        deadline = deadline or self._deadline()

        def attempt() -> AnyWork[Any, Any]:
            for request in requests:
                answer = yield request
            return answer

        return deadline.bound(deadline.insist(attempt))

    def _change(
        self,
        inputs: Mapping[str, Input],
        work: Callable[[str, Input], Work[Result]],
        deadline: Deadline,
    ) -> AnyWork[Any, dict[str, Result]]:
        """Change each record, all together."""
        works = ((key, work(key, each)) for key, each in inputs.items())
        worked = yield from work_together(self._clock, deadline, works)
        done, failed, refused = worked.done, worked.failed, worked.refused
        if refused:
            unknown = [exc for exc in refused.values() if exc.outcome is Outcome.UNKNOWN]
            error = (unknown or [*refused.values()])[0]
            if any(map(is_made, (*done.values(), *failed.values()))):
                error.outcome = Outcome.UNKNOWN
            raise error
        if failed:
            first = next(iter(failed.values()))
            if len(inputs) == 1:
                raise first
            left = answers_of(first, inputs.keys() - done.keys(), Outcome.NOT_APPLIED)
            raise partly_done(first, {**left, **failed, **done}) from first
        return {key: done[key] for key in inputs}


def _check_version(version: Version) -> None:
    if version not in (ANY, NEW):
        check_version(version)


def _below(prefix: str) -> tuple[bytes, bytes]:
    """The rows below a prefix: the first key that there can be, and one beyond them."""
    return row_key(f"{prefix}/"), row_key(f"{prefix}0")  # The one after "/".

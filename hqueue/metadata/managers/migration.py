"""Moving a queue's topics' metadata from one store to another while it is used."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from hqueue.errors import (
    BadVersionError,
    HQueueError,
    MetadataError,
    Outcome,
    SettingsError,
    StoreUnavailableError,
    UnsupportedFormatError,
)
from hqueue.metadata.fields import FieldChange, FieldRecord, FieldRecords, Found
from hqueue.metadata.managers.layout import OWNERSHIP, PERSISTENCE, SUBSCRIPTION, key_in
from hqueue.metadata.managers.metadata_locations import LocationRecords, MetadataLocations
from hqueue.metadata.managers.migration_state import (
    HBASE,
    MEMORY,
    ZOOKEEPER,
    MetadataLocation,
    MigrationState,
    MigrationStateRecord,
    Phase,
)
from hqueue.metadata.managers.own_moves import OwnMove, OwnMoves
from hqueue.metadata.ports import ANY, NEW, Version
from hqueue.runtime.clock import SYSTEM_CLOCK, Clock, Deadline
from hqueue.runtime.forgotten import release_later
from hqueue.runtime.program_loop import ProgramLoop
from hqueue.runtime.steps import Give, Pause, Wait, Work, taken_in
from hqueue.runtime.stepwise import OnPorts, Stepwise, asked, stepwise
from hqueue.settings.kinds import check_callback
from hqueue.settings.numbers import check_number

__all__ = ["MetadataMigration", "OnProgress", "ignore_progress"]

PAUSE_MS = 20
MOVED = (PERSISTENCE, SUBSCRIPTION)

OnProgress = Callable[[str, int], None]


def ignore_progress(step: str, records: int) -> None:
    """Does nothing."""


class MetadataMigration(OnPorts):
    """Moves a queue's topics' metadata from one store to another. Made by
    `Client.metadata_migration`.

    Hubs keep running meanwhile. Reads are answered all the time. Changes are made while all records
    are copied. They wait while the records are compared and changed ones are copied again; a change
    that waits for longer than an operation may take raises `MetadataReadOnlyError`. A move loses
    nothing, whatever process dies at whatever point: the store in force changes in one step, after
    all records were compared. Owners are not moved: hubs acquire their topics again.

    Args:
        record: the record of the migration state.
        locations: the locations of records.
        clock: measures the wait for writers.
        check: raises an error if there is no such queue. Called before anything is moved.
        moves: the client's moves; those of this migration alone if None.
    """

    def __init__(
        self,
        record: MigrationStateRecord,
        locations: MetadataLocations,
        clock: Clock = SYSTEM_CLOCK,
        *,
        check: Callable[[], Wait] | None = None,
        moves: OwnMoves | None = None,
    ) -> None:
        super().__init__(None, None, clock)
        self._moves = moves or OwnMoves()
        self._check = check
        self._record = record
        self._locations = locations

    @stepwise
    def state(self) -> Work[Any, MigrationState]:
        """The location that is in force now, and the progress of a move."""
        state, _ = yield self._record.read.asked()
        return state  # type: ignore[no-any-return]

    @stepwise
    def move(
        self,
        to: str,
        *,
        drain_ms: float = 60_000,
        on_progress: OnProgress = ignore_progress,
    ) -> Work[Any, int]:
        """Move the metadata to another store. Returns how many records were moved, 0 if it is there
        already.

        A move that was interrupted begins its copy again, in another location. If another process
        is moving the metadata, this call takes the move over, and that process's call fails. If the
        call raises an error, the metadata stays in force where it was, and writers continue there.
        If the process dies, writers continue when the move is repeated or abandoned.

        Args:
            to: ``zookeeper`` or ``hbase``.
            drain_ms: how long to wait for writers until each has finished its changes under way, or
                its session has ended.
            on_progress: called with the present phase (``copying``, ``draining``, ``comparing``)
                and a number of records: 0 when the phase begins, then the size of each batch.

        Raises:
            SettingsError: there is no such store, or metadata can't be moved to it.
            QueueNotFoundError: there is no such queue. Nothing was written.
            InvalidInputError: the metadata is being moved to another store: abandon that move
                first. Or an argument is out of range; nothing was sent.
            UnsupportedFormatError: a record can't be read. ``hqueue metadata verify`` names all.
            BadVersionError: another process has taken the move over, or abandoned it.
            ClosedError: the client was closed. It has waited until the move was abandoned.
            StoreUnavailableError: a store or a writer did not answer in time.
            MetadataError: another process writes to the copy, which no hub does.
        """
        check_callback(on_progress, "on_progress", needed=True)
        drain_ms = check_number(drain_ms, 0, math.inf, option="drain_ms")
        if to not in (ZOOKEEPER, HBASE):
            raise SettingsError(
                "topics' metadata can be moved only to 'zookeeper' or 'hbase'", store=to
            )
        if self._check is not None:
            yield self._check()
        state, version = yield self._record.read.asked()
        if state.phase is Phase.STABLE and state.location.store == to:
            return 0
        if state.location.store == MEMORY:
            raise SettingsError("topics' metadata in the memory of hubs can't be moved", target=to)
        begun = state.begun(to)
        assert begun.copy is not None
        changing = _Changing(self._record, version, begun.copy, self._moves)
        return (
            yield from changing.carried(self._moved(changing, state, begun, drain_ms, on_progress))
        )

    @stepwise
    def abandon(self) -> Work[Any, bool]:
        """Abandon a move: the metadata stays in force where it is. Returns whether a move was under
        way.

        Raises:
            BadVersionError: another process continues the move at the same time.
        """
        state, version = yield self._record.read.asked()
        if state.phase is Phase.STABLE:
            return False
        yield self._record.change.asked(state.abandoned(), version)
        return True

    @stepwise
    def clear(self, *, on_progress: OnProgress = ignore_progress) -> Work[Any, int]:
        """Delete the records that moves and interrupted copies left in locations that are not in
        force. Returns how many.

        Raises:
            InvalidInputError: `on_progress` can't be called, or is a coroutine function.
            BadVersionError: another process begins a move at the same time. The deleted records are
                not in force, and never will be.
        """
        check_callback(on_progress, "on_progress", needed=True)
        number = 0
        while True:
            state, version = yield self._record.read.asked()
            if not state.old_copies:
                return number
            number += yield from self._clear(state.old_copies[0], on_progress)
            yield self._record.change.asked(state.cleared(state.old_copies[0]), version)

    def _moved(
        self,
        changing: _Changing,
        state: MigrationState,
        begun: MigrationState,
        drain_ms: float,
        on_progress: OnProgress,
    ) -> Work[Any, int]:
        assert begun.copy is not None
        source, target = self._locations.open(state.location), self._locations.open(begun.copy)
        yield from changing.to(begun)
        on_progress("copying", 0)
        yield from _copy(source, target, on_progress)
        state = begun.draining()
        yield from changing.to(state)
        on_progress("draining", 0)
        yield from self._drain(state, drain_ms)
        state = state.drained()
        yield from changing.to(state)
        on_progress("comparing", 0)
        moved = yield from _amend(source, target, on_progress)
        yield from changing.to(state.switched())
        return moved

    def _drain(self, state: MigrationState, drain_ms: float) -> Work[Any, None]:
        """Wait until each writer that is present has acknowledged this state. Writers of this
        client whose event loops were closed never would, so they are closed first.
        """
        yield self._moves.close_left.asked(self._record.above)
        deadline = Deadline(self._clock, drain_ms)
        while True:
            writers = yield self._record.writers.asked()
            behind = sorted(name for name, number in writers.items() if number < state.number)
            if not behind:
                return
            if deadline.expired:
                raise StoreUnavailableError(
                    f"{len(behind)} of {len(writers)} hubs and other writers did not finish their "
                    "changes in time: try again, or end those that don't answer. The name of a "
                    "writer begins with its host and process ID",
                    outcome=Outcome.NOT_APPLIED,
                    writers=behind,
                )
            yield Pause(PAUSE_MS)

    def _clear(self, location: MetadataLocation, on_progress: OnProgress) -> Work[Any, int]:
        records = self._locations.open(location)
        number = 0
        for kind in (OWNERSHIP, *MOVED):
            store = records.owners if kind == OWNERSHIP else records.records

            def clear(
                page: Sequence[tuple[str, Found]], store: FieldRecords = store
            ) -> Work[Any, None]:
                nonlocal number
                if page:
                    deleted = yield asked(store.delete, dict.fromkeys(dict(page), ANY))
                    number += sum(deleted.values())
                    on_progress("clearing", sum(deleted.values()))

            yield from taken_in(records.records.scan.asked(*records.layout.subtree(kind)), clear)
        return number


class _Changing(Stepwise):
    """Changes the migration state for one move. If the move is cancelled in an event loop, the
    change that it has asked for ends first: otherwise it could be made after the move was
    abandoned.

    Args:
        record: the state's record.
        version: the record's version that was read.
        copy: the location that the move copies to.
        moves: the client's moves.
    """

    def __init__(
        self,
        record: MigrationStateRecord,
        version: Version,
        copy: MetadataLocation,
        moves: OwnMoves,
    ) -> None:
        self._record = record
        self._version = version
        self._copy = copy
        self._is_begun = False
        self._move = OwnMove(moves, self._abandon.asked)
        self._tasks = None if self._move.loop is None else ProgramLoop()

    def carried(self, moved: Work[Any, int]) -> Work[Any, int]:
        """Carry out the work of the move. If it fails, or must end, the move is abandoned before
        the error is raised. In an event loop that also happens if the caller is cancelled again, or
        the loop ends.
        """
        self._move.begin()
        try:
            number = yield from self._move.checked(moved)
        except GeneratorExit:
            self._cut_off()
            raise
        except BaseException:
            if self._move.loop is not None and self._move.loop.is_closed():
                self._cut_off()  # What lets go of a wait may fail in a loop that was closed.
            else:
                yield from self._end()
            raise
        self._move.end()
        return number

    def to(self, state: MigrationState) -> Work[Any, None]:
        """Change the migration state to this."""
        change = self._change.asked(state)
        yield change if self._tasks is None else self._tasks.to_end(change)

    def _end(self) -> Work[Any, None]:
        abandon = self._abandon.asked()
        if self._tasks is not None:
            abandon = Wait(abandon.here, partial(self._tasks.insist, self._abandon.in_loop))
        try:
            yield abandon
        except GeneratorExit:
            self._cut_off()
            raise
        except BaseException:
            self._move.end()
            raise
        self._move.end()

    def _cut_off(self) -> None:
        """Abandon the move if a thread was interrupted between two steps, and executes no more of
        them. In an event loop that happens only if tasks are dropped with their loop.
        """
        if self._tasks is None:
            self._let_go()
        else:
            release_later(self._let_go)

    def _let_go(self) -> None:
        try:
            self._abandon()
        finally:
            self._move.end()

    @stepwise
    def _change(self, state: MigrationState) -> Work[Any, None]:
        was_begun, self._is_begun = self._is_begun, True
        try:
            self._version = yield self._record.change.asked(state, self._version)
        except BadVersionError:
            self._is_begun = was_begun
            raise

    @stepwise
    def _abandon(self) -> Work[Any, None]:
        """Abandon the move, if it was begun, is not done, and no other process has taken it
        over.
        """
        # The state shows how far the move came, since the answer to its last change may be lost. If
        # the move is done, there is no copy; if another process took it over, the copy is another.
        with contextlib.suppress(HQueueError):
            is_there = self._is_begun
            while is_there:
                found, version = yield self._record.read.asked()
                is_there = found.copy == self._copy
                if is_there:
                    # A change of its own that was given up may come in between.
                    with contextlib.suppress(BadVersionError):
                        yield self._record.change.asked(found.abandoned(), version)
                        is_there = False


Batch = dict[str, FieldRecord]


def _batches(source: LocationRecords) -> Work[Any, None]:
    """Gives the records that are moved, in batches of some hundred.

    Raises:
        UnsupportedFormatError: a record can't be read.
    """

    def readable(page: Sequence[tuple[str, Found]]) -> Work[Any, None]:
        batch: Batch = {}
        for key, found in page:
            if not isinstance(found, FieldRecord):
                raise found
            if source.layout.subject(key) is None or _members(found) is None:
                raise UnsupportedFormatError("this node or row is not a record of hqueue", path=key)
            batch[key] = found
        if batch:
            yield Give(batch)

    for kind in MOVED:
        yield from taken_in(source.records.scan.asked(*source.layout.subtree(kind)), readable)


def _copy(
    source: LocationRecords, target: LocationRecords, on_progress: OnProgress
) -> Work[Any, None]:
    """Copy all records to an empty location."""

    def copy(batch: Batch) -> Work[Any, None]:
        yield from _write(
            target,
            {
                key_in(target.layout, key, of=source.layout): FieldChange(each.fields, NEW)
                for key, each in batch.items()
            },
        )
        on_progress("copying", len(batch))

    return taken_in(_batches(source), copy)


def _amend(
    source: LocationRecords, target: LocationRecords, on_progress: OnProgress
) -> Work[Any, int]:
    """Compare all records with the copy, and copy those that have changed since. Returns how many
    records there are.
    """
    number = copied = 0

    def compare(batch: Batch) -> Work[Any, None]:
        nonlocal number
        keys = {key_in(target.layout, key, of=source.layout): key for key in batch}
        there = yield asked(target.records.read, keys)
        yield from _write(
            target,
            {
                key: FieldChange(batch[own].fields, ANY if key in there else NEW)
                for key, own in keys.items()
                if not _is_same(there.get(key), batch[own])
            },
        )
        number += len(batch)
        on_progress("comparing", len(batch))

    def count(batch: Batch) -> Work[Any, None]:
        nonlocal copied
        copied += len(batch)
        yield from ()

    def delete_gone(batch: Batch) -> Work[Any, None]:
        keys = {key_in(source.layout, key, of=target.layout): key for key in batch}
        gone = keys.keys() - (yield asked(source.records.read, keys)).keys()
        yield asked(target.records.delete, {keys[key]: ANY for key in gone})

    yield from taken_in(_batches(source), compare)
    yield from taken_in(_batches(target), count)
    if copied != number:
        yield from taken_in(_batches(target), delete_gone)
    return number


def _write(target: LocationRecords, changes: dict[str, FieldChange]) -> Work[Any, None]:
    written = (yield asked(target.records.write, changes)) if changes else {}
    if None in written.values():
        raise MetadataError(
            "another program writes to the copy of topics' metadata: run one move at a time",
            outcome=Outcome.NOT_APPLIED,
            location=target.location,
        )


def _is_same(found: Found | None, record: FieldRecord) -> bool:
    return isinstance(found, FieldRecord) and _members(found) == _members(record)


def _members(record: FieldRecord) -> dict[str, Any] | None:
    """The decoded fields of a record; None if one is not JSON."""
    try:
        return {name: json.loads(value) for name, value in record.fields.items()}
    except (ValueError, RecursionError):
        return None
